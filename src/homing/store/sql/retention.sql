-- Removes rows past retention in bounded steps, oldest first. On PostgreSQL these statements apply to
-- the default partitions. Other days are dropped as a whole (partitions.py).

-- name: old_history [sqlite]
-- The next old rows to check. A delivery that finished late stays.
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
-- The attempts of removed deliveries.
DELETE FROM attempt WHERE delivery_id = :delivery_id;

-- name: attempts_remove [postgres]
DELETE FROM attempt WHERE delivery_id = ANY(:delivery_id::bigint[]);

-- name: old_attempts [sqlite]
-- The next old attempts to check. Those that are left are mostly test sends.
SELECT delivery_id, finished_at, lane FROM attempt
WHERE delivery_id > :after_id AND delivery_id < :bound_id
ORDER BY delivery_id, number LIMIT :limit;

-- name: old_attempts [postgres]
SELECT delivery_id, finished_at, lane FROM attempt_default
WHERE delivery_id > :after_id AND delivery_id < :bound_id
ORDER BY delivery_id, number LIMIT :limit;

-- name: first_needed
-- The oldest pending delivery, and the oldest event of a pending replay. Older events are not needed.
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
-- When an event is removed, its id can be used again.
DELETE FROM event_key WHERE tenant = :tenant AND key = :key AND event_id = :event_id;

-- name: key_remove [postgres]
DELETE FROM event_key k
USING unnest(:tenant::text[], :key::text[], :event_id::bigint[]) AS it (tenant, key, event_id)
WHERE k.tenant = it.tenant AND k.key = it.key AND k.event_id = it.event_id;

-- name: replay_link_remove [sqlite]
DELETE FROM replay_link WHERE event_id = :event_id;

-- name: replay_link_remove [postgres]
DELETE FROM replay_link WHERE event_id = ANY(:event_id::bigint[]);

-- name: event_fields_remove [sqlite]
DELETE FROM event_field WHERE event_id = :event_id;

-- name: event_fields_remove [postgres]
DELETE FROM event_field WHERE event_id = ANY(:event_id::bigint[]);

-- name: transitions_remove
DELETE FROM transition WHERE id IN (
    SELECT id FROM transition WHERE id < :bound_id AND at < :before ORDER BY id LIMIT :limit
) RETURNING id;

-- name: subscriptions_remove
-- Subscriptions that were deleted long ago. While a cleanup job exists, deliveries may be pending.
DELETE FROM subscription WHERE id IN (
    SELECT s.id FROM subscription s
    WHERE s.deleted_at < :before
    AND NOT EXISTS (SELECT 1 FROM cleanup_job c WHERE c.subscription_id = s.id)
    ORDER BY s.deleted_at LIMIT :limit
) RETURNING id;

-- name: replay_jobs_remove
-- What an old job has replayed is past retention, too.
DELETE FROM replay_job WHERE id IN (
    SELECT id FROM replay_job WHERE id < :bound_id AND state <> 'running' ORDER BY id LIMIT :limit
) RETURNING id;

-- name: endpoints_scan
-- The last row of one step.
SELECT count(*), max(id) FROM (
    SELECT id FROM endpoint WHERE id > :after_id ORDER BY id LIMIT :limit
) AS scanned;

-- name: endpoints_hold [sqlite]
-- Endpoints without a subscription.
SELECT e.id FROM endpoint e
WHERE e.id > :after_id AND e.id <= :upto_id AND e.created_at < :before AND e.since < :before
AND NOT EXISTS (SELECT 1 FROM subscription s WHERE s.endpoint_id = e.id);

-- name: endpoints_hold [postgres]
-- Endpoints without a subscription. One that a new subscription takes at this moment is left out; a
-- later one waits, and makes an endpoint of its own.
SELECT e.id FROM endpoint e
WHERE e.id > :after_id AND e.id <= :upto_id AND e.created_at < :before AND e.since < :before
AND NOT EXISTS (SELECT 1 FROM subscription s WHERE s.endpoint_id = e.id)
FOR UPDATE OF e SKIP LOCKED;

-- name: endpoints_remove [sqlite]
-- Those of them that nothing refers to any more, by seeks alone.
DELETE FROM endpoint WHERE id IN (
    SELECT e.id FROM endpoint e
    WHERE e.id IN (SELECT value FROM json_each(:ids))
    AND NOT EXISTS (SELECT 1 FROM subscription s WHERE s.endpoint_id = e.id)
    AND NOT EXISTS (SELECT 1 FROM pending p WHERE p.endpoint_id = e.id)
    AND NOT EXISTS (SELECT 1 FROM cleanup_job c WHERE c.endpoint_id = e.id)
    AND NOT EXISTS (SELECT 1 FROM history h WHERE h.endpoint_id = e.id)
) RETURNING id;

-- name: endpoints_remove [postgres]
-- A subscription that was created before the endpoints were locked is seen by this statement.
DELETE FROM endpoint WHERE id IN (
    SELECT e.id FROM endpoint e
    WHERE e.id = ANY(:ids::bigint[])
    AND NOT EXISTS (SELECT 1 FROM subscription s WHERE s.endpoint_id = e.id)
    AND NOT EXISTS (SELECT 1 FROM pending p WHERE p.endpoint_id = e.id)
    AND NOT EXISTS (SELECT 1 FROM cleanup_job c WHERE c.endpoint_id = e.id)
    AND NOT EXISTS (SELECT 1 FROM history h WHERE h.endpoint_id = e.id)
) RETURNING id;

-- name: tenant_after
-- The next tenant that has events. One seek in the primary key.
SELECT tenant FROM event_key WHERE tenant > :after ORDER BY tenant LIMIT 1;

-- name: events_needed [sqlite]
-- Which of these events have a delivery that is pending or finished at or after a time.
SELECT :event_id WHERE EXISTS (
    SELECT 1 FROM pending WHERE id > :event_id AND id <= :last_id AND event_id = :event_id
) OR EXISTS (
    SELECT 1 FROM history
    WHERE id > :event_id AND id <= :last_id AND event_id = :event_id AND finished_at >= :before
) OR EXISTS (
    SELECT 1 FROM replay_link r JOIN pending p ON p.id = r.delivery_id WHERE r.event_id = :event_id
) OR EXISTS (
    SELECT 1 FROM replay_link r JOIN history h ON h.id = r.delivery_id
    WHERE r.event_id = :event_id AND h.finished_at >= :before
);

-- name: events_needed [postgres]
SELECT it.event_id
FROM unnest(:event_id::bigint[], :last_id::bigint[], :before::bigint[]) AS it (event_id, last_id, before)
WHERE EXISTS (
    SELECT 1 FROM pending p WHERE p.id > it.event_id AND p.id <= it.last_id AND p.event_id = it.event_id
) OR EXISTS (
    SELECT 1 FROM history h WHERE h.id > it.event_id AND h.id <= it.last_id
    AND h.event_id = it.event_id AND h.finished_at >= it.before
) OR EXISTS (
    SELECT 1 FROM replay_link r JOIN pending p ON p.id = r.delivery_id WHERE r.event_id = it.event_id
) OR EXISTS (
    SELECT 1 FROM replay_link r JOIN history h ON h.id = r.delivery_id
    WHERE r.event_id = it.event_id AND h.finished_at >= it.before
);
