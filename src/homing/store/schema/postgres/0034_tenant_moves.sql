-- Tenants that move to or from another installation.

CREATE TABLE tenant_move (          -- the last move of a tenant
    tenant  text PRIMARY KEY,
    id      text NOT NULL,         -- the same in both installations
    step    text NOT NULL,         -- where it leaves: leaving, left, moved; where it arrives: arriving, arrived
    place   text NOT NULL,         -- the other installation
    url     text NOT NULL,         -- where its callers find it from then on; '': not given
    version bigint NOT NULL,      -- of the catalog: processes that have read it act on this step
    at      bigint NOT NULL       -- when this step began
);

-- Processes that have read of a move, and in which nothing of the tenant runs any more.
CREATE TABLE tenant_move_ready (
    move_id text NOT NULL,
    process bigint NOT NULL,
    PRIMARY KEY (move_id, process)
);

CREATE TABLE tenant_move_progress ( -- how far the rows of a tenant that arrives are copied
    tenant text NOT NULL,
    name   text NOT NULL,
    note   text NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- A change takes the lock of its tenant together with others; the mark of a move takes it alone. So
-- a change comes before the mark, or sees it.
CREATE FUNCTION hold_tenant(name text) RETURNS TABLE (step text, url text) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(723914056, hashtext(name)); RETURN QUERY
    SELECT m.step, m.url FROM tenant_move m WHERE m.tenant = name AND m.step <> 'arrived'; END
$$;
