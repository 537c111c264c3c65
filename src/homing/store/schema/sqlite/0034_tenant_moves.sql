-- Tenants that move to or from another installation.

CREATE TABLE tenant_move (          -- the last move of a tenant
    tenant  TEXT PRIMARY KEY,
    id      TEXT NOT NULL,         -- the same in both installations
    step    TEXT NOT NULL,         -- where it leaves: leaving, left, moved; where it arrives: arriving, arrived
    place   TEXT NOT NULL,         -- the other installation
    url     TEXT NOT NULL,         -- where its callers find it from then on; '': not given
    version INTEGER NOT NULL,      -- of the catalog: processes that have read it act on this step
    at      INTEGER NOT NULL       -- when this step began
) WITHOUT ROWID;

-- Processes that have read of a move, and in which nothing of the tenant runs any more.
CREATE TABLE tenant_move_ready (
    move_id TEXT NOT NULL,
    process INTEGER NOT NULL,
    PRIMARY KEY (move_id, process)
) WITHOUT ROWID;

CREATE TABLE tenant_move_progress ( -- how far the rows of a tenant that arrives are copied
    tenant TEXT NOT NULL,
    name   TEXT NOT NULL,
    note   TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
