-- Tenants that move to or from another installation. `homing move --tenant` writes the rows; the
-- processes of both installations read them with the catalog.

-- name: tenant_moves
-- Of tenants that are not served here, or not now.
SELECT tenant, id, step, url FROM tenant_move WHERE step <> 'arrived' ORDER BY tenant;

-- name: tenant_hold [sqlite]
SELECT step, url FROM tenant_move WHERE tenant = :tenant AND step <> 'arrived';

-- name: tenant_hold [postgres]
-- Until the commit no move of this tenant begins.
SELECT step, url FROM hold_tenant(:tenant);

-- name: tenant_move_ready
INSERT INTO tenant_move_ready (move_id, process) VALUES (:move_id, :process)
ON CONFLICT (move_id, process) DO NOTHING;

-- name: tenant_move_of
SELECT id, step, place, url, version FROM tenant_move WHERE tenant = :tenant;

-- name: tenant_move_lock [sqlite]
-- There is one writer.
SELECT :tenant LIMIT 0;

-- name: tenant_move_lock [postgres]
-- Waits for changes of this tenant that are being made; later ones see the mark.
SELECT pg_advisory_xact_lock(723914056, hashtext(:tenant));

-- name: tenant_move_set
INSERT INTO tenant_move (tenant, id, step, place, url, version, at)
VALUES (:tenant, :id, :step, :place, :url, :version, :at)
ON CONFLICT (tenant) DO UPDATE SET id = excluded.id, step = excluded.step, place = excluded.place,
    url = excluded.url, version = excluded.version, at = excluded.at;

-- name: tenant_move_remove
DELETE FROM tenant_move WHERE tenant = :tenant AND id = :id;

-- name: tenant_move_ready_remove
DELETE FROM tenant_move_ready WHERE move_id = :move_id;

-- name: tenant_move_not_ready [sqlite]
-- A file has one process, which is not running while a move has the file.
SELECT :move_id LIMIT 0;

-- name: tenant_move_not_ready [postgres]
-- Without processes that are fenced: the events that they still write are refused.
SELECT name FROM process p
WHERE (p.catalog_version IS NOT NULL OR p.expires_at > (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
AND NOT EXISTS (SELECT 1 FROM tenant_move_ready r WHERE r.move_id = :move_id AND r.process = p.id)
ORDER BY id;

-- name: tenant_move_unread [sqlite]
SELECT :version LIMIT 0;

-- name: tenant_move_unread [postgres]
-- The processes that have not read this version of the catalog yet, without those whose heartbeat has stopped.
SELECT name FROM process
WHERE delivers >= 0 AND catalog_version < :version
AND expires_at > (extract(epoch FROM clock_timestamp()) * 1000)::bigint
ORDER BY id;

-- name: log_position [sqlite]
SELECT '';

-- name: log_position [postgres]
-- Where the write-ahead log is after the last commit.
SELECT pg_current_wal_lsn()::text;

-- name: standbys_before [sqlite]
SELECT :position LIMIT 0;

-- name: standbys_before [postgres]
-- The standbys that have not received the log up to here. A user who may not see how far they are
-- gets no rows. Readers of a logical slot are no standbys.
SELECT coalesce(nullif(r.application_name, ''), r.client_addr::text, 'unnamed')
FROM pg_stat_replication r
WHERE r.write_lsn < :position::text::pg_lsn
AND NOT EXISTS (
    SELECT 1 FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical'
)
ORDER BY 1;

-- name: tenant_progress
SELECT note FROM tenant_move_progress WHERE tenant = :tenant AND name = :name;

-- name: tenant_progress_remove
DELETE FROM tenant_move_progress WHERE tenant = :tenant;

-- name: tenant_subscriptions_raise
-- Processes read them when the tenant has arrived.
UPDATE subscription SET version = :version WHERE tenant = :tenant;

-- name: tenant_signing_keys_raise
UPDATE signing_keys SET version = :version WHERE tenant = :tenant;

-- name: tenant_probe_add
-- Whether two addresses lead to one database: a row that was written through one of them.
INSERT INTO tenant_move_progress (tenant, name, note) VALUES ('', :name, '');

-- name: tenant_probe
SELECT 1 FROM tenant_move_progress WHERE tenant = '' AND name = :name;

-- name: tenant_probe_remove
DELETE FROM tenant_move_progress WHERE tenant = '' AND name = :name;

-- name: tenant_erasures_running
SELECT 1 FROM erasure WHERE tenant = :tenant AND finished_at IS NULL LIMIT 1;

-- name: tenant_api_keys_remove
-- They were left when the tenant moved away, to tell its callers so; the present ones come back.
DELETE FROM api_key WHERE tenant = :tenant;
