-- Versions of the catalog that no failover gives twice: the first change of another database server
-- makes a large step.

CREATE FUNCTION server_started() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint
$$;

ALTER TABLE catalog ADD COLUMN server bigint NOT NULL DEFAULT 0;  -- that made the last change: when it was started
ALTER TABLE catalog ADD COLUMN base bigint;                       -- the version that it found; NULL: it was the first
UPDATE catalog SET server = server_started();
