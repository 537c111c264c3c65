-- What is past retention, removed in bounded steps, oldest first. On PostgreSQL these see to the
-- default parts; days go as a whole (partitions.py).

-- name: old_history [sqlite]
-- The next old rows to check: one that finished late stays.
SELECT id, finished_at FROM history
WHERE id > :after_id AND id < :bound_id ORDER BY id LIMIT :limit;

-- name: old_history [postgres]
SELECT id, finished_at FROM history_default
WHERE id > :after_id AND id < :bound_id ORDER BY id LIMIT :limit;

-- name: history_remove [sqlite]
DELETE FROM history WHERE id = :id;

-- name: history_remove [postgres]
DELETE FROM history_default WHERE id = ANY(:id::bigint[]);

-- name: attempts_remove [sqlite]
-- The attempts of deliveries that went.
DELETE FROM attempt WHERE delivery_id = :delivery_id;

-- name: attempts_remove [postgres]
DELETE FROM attempt WHERE delivery_id = ANY(:delivery_id::bigint[]);

-- name: old_attempts [sqlite]
-- The next old attempts to check: those that are left are mostly test sends.
SELECT delivery_id, finished_at, lane FROM attempt
WHERE delivery_id > :after_id AND delivery_id < :bound_id
ORDER BY delivery_id, number LIMIT :limit;

-- name: old_attempts [postgres]
SELECT delivery_id, finished_at, lane FROM attempt_default
WHERE delivery_id > :after_id AND delivery_id < :bound_id
ORDER BY delivery_id, number LIMIT :limit;

-- name: first_needed
-- The oldest pending delivery, and the oldest event of a pending replay: events before both may go.
SELECT
    (SELECT min(id) FROM pending),
    (SELECT min(event_id) FROM pending WHERE replay = 1);

-- name: old_events [sqlite]
-- Events that no pending delivery needs.
SELECT id, tenant, key FROM event
WHERE id < :bound_id AND last_id < :first_pending_id AND accepted_at < :before
ORDER BY id LIMIT :limit;

-- name: old_events [postgres]
SELECT id, tenant, key FROM event_default
WHERE id < :bound_id AND last_id < :first_pending_id AND accepted_at < :before
ORDER BY id LIMIT :limit;

-- name: event_remove [sqlite]
DELETE FROM event WHERE id = :id;

-- name: event_remove [postgres]
DELETE FROM event_default WHERE id = ANY(:id::bigint[]);

-- name: key_remove [sqlite]
-- With its event an id becomes free again.
DELETE FROM event_key WHERE tenant = :tenant AND key = :key AND event_id = :event_id;

-- name: key_remove [postgres]
DELETE FROM event_key k
USING unnest(:tenant::text[], :key::text[], :event_id::bigint[]) AS it (tenant, key, event_id)
WHERE k.tenant = it.tenant AND k.key = it.key AND k.event_id = it.event_id;

-- name: replay_link_remove [sqlite]
DELETE FROM replay_link WHERE event_id = :event_id;

-- name: replay_link_remove [postgres]
DELETE FROM replay_link WHERE event_id = ANY(:event_id::bigint[]);

-- name: transitions_remove
DELETE FROM transition WHERE id IN (
    SELECT id FROM transition WHERE id < :bound_id AND at < :before ORDER BY id LIMIT :limit
) RETURNING id;

-- name: subscriptions_remove
-- Deleted long ago; while a cleanup job is left, something of it may still be pending.
DELETE FROM subscription WHERE id IN (
    SELECT s.id FROM subscription s
    WHERE s.deleted_at < :before
    AND NOT EXISTS (SELECT 1 FROM cleanup_job c WHERE c.subscription_id = s.id)
    ORDER BY s.deleted_at LIMIT :limit
) RETURNING id;

-- name: endpoints_scan
-- How far a step goes.
SELECT count(*), max(id) FROM (
    SELECT id FROM endpoint WHERE id > :after_id ORDER BY id LIMIT :limit
) AS scanned;

-- name: endpoints_remove
-- Endpoints that nothing refers to any more, by seeks alone.
DELETE FROM endpoint WHERE id IN (
    SELECT e.id FROM endpoint e
    WHERE e.id > :after_id AND e.id <= :upto_id
    AND e.created_at < :before AND e.since < :before
    AND NOT EXISTS (SELECT 1 FROM subscription s WHERE s.endpoint_id = e.id)
    AND NOT EXISTS (SELECT 1 FROM pending p WHERE p.endpoint_id = e.id)
    AND NOT EXISTS (SELECT 1 FROM cleanup_job c WHERE c.endpoint_id = e.id)
    AND NOT EXISTS (SELECT 1 FROM history h WHERE h.endpoint_id = e.id)
) RETURNING id;
