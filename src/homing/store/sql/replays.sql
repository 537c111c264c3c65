-- Replays: one by one, and the stored jobs that walk history in order of id.

-- name: replay_events [sqlite]
SELECT id, order_key FROM event WHERE id IN (SELECT value FROM json_each(:ids));

-- name: replay_events [postgres]
-- Locked: an erasure comes before or after the replay.
SELECT id, order_key FROM event WHERE id = ANY(:ids::bigint[]) ORDER BY id FOR KEY SHARE;

-- name: replay_targets [sqlite]
-- The present endpoints of these subscriptions, without deleted ones.
SELECT s.id, e.id, e.bucket, s.settings
FROM subscription s JOIN endpoint e ON e.id = s.endpoint_id
WHERE s.id IN (SELECT value FROM json_each(:ids)) AND s.deleted_at IS NULL;

-- name: replay_targets [postgres]
SELECT s.id, e.id, e.bucket, s.settings
FROM subscription s JOIN endpoint e ON e.id = s.endpoint_id
WHERE s.id = ANY(:ids::bigint[]) AND s.deleted_at IS NULL;

-- name: replay_job_bound
UPDATE replay_job SET upto_position = :upto_position WHERE id = :id AND upto_position = :not_bound;

-- name: replay_job_by_id
SELECT {replay_job} FROM replay_job WHERE id = :id;

-- name: replay_job_hold [sqlite]
SELECT {replay_job} FROM replay_job WHERE id = :id;

-- name: replay_job_hold [postgres]
-- Two processes never take the same step.
SELECT {replay_job} FROM replay_job WHERE id = :id FOR UPDATE;

-- name: replay_jobs_running
-- Uses the index replay_job_running.
SELECT {replay_job} FROM replay_job WHERE state = 'running' ORDER BY id;

-- name: replay_jobs_since
-- The jobs that were made since a time, newest first.
SELECT {replay_job} FROM replay_job WHERE id >= :from_id ORDER BY id DESC LIMIT :limit;

-- name: replay_job_cancel
UPDATE replay_job SET state = 'cancelled' WHERE id = :id AND state = 'running' RETURNING id;

-- name: replay_job_progress
UPDATE replay_job SET
    state = :state, after_id = :after_id, after_position = :after_position, made_at = :made_at,
    scanned = :scanned, replayed = :replayed, skipped = :skipped
WHERE id = :id;

-- name: replay_found
-- The deliveries that a job takes of the next rows of history. The first two columns are the number of
-- scanned rows and the last scanned id. If none is taken, there is one row with NULL in all others.
WITH scanned AS MATERIALIZED (
    {walked}
), reach AS (
    SELECT count(*) AS n, max(id) AS top FROM scanned
)
SELECT reach.n, reach.top, {history:h}
FROM reach LEFT JOIN scanned h ON {selected:h}
ORDER BY h.id;

-- name: replay_groups
-- How many rows were scanned, how many of them a job takes, and these by status, tenant and cause.
WITH k AS (
    SELECT CASE WHEN {selected:h} THEN 1 ELSE 0 END AS hit, h.status, h.tenant, h.cause_id,
        count(*) AS n
    FROM (
        {walked}
    ) AS h
    GROUP BY 1, 2, 3, 4
)
SELECT (SELECT CAST(coalesce(sum(n), 0) AS BIGINT) FROM k),
    (SELECT CAST(coalesce(sum(n), 0) AS BIGINT) FROM k WHERE hit = 1),
    k.status, k.tenant, c.failure, c.reason, c.code, CAST(coalesce(sum(k.n), 0) AS BIGINT) AS there
FROM (SELECT 1 AS one) AS always
LEFT JOIN k ON k.hit = 1
LEFT JOIN cause c ON c.id = k.cause_id
GROUP BY k.status, k.tenant, c.failure, c.reason, c.code
ORDER BY there DESC LIMIT :groups;

-- name: pending_groups
-- The same of pending deliveries, by one of two walks.
WITH k AS (
    SELECT CASE WHEN {selected:d} THEN 1 ELSE 0 END AS hit, d.tenant, d.cause_id, count(*) AS n
    FROM (
        SELECT {pending_as_history} FROM (
            SELECT * FROM (
                SELECT {pending} FROM pending
                WHERE id >= :from_id AND id < :until_id
                ORDER BY id LIMIT :by_id
            ) AS by_id
            UNION ALL
            SELECT * FROM (
                SELECT {pending} FROM pending
                WHERE endpoint_id = :endpoint_id AND id >= :from_id AND id < :until_id
                ORDER BY id LIMIT :by_endpoint
            ) AS by_endpoint
        ) AS waiting
        UNION ALL
        SELECT {history} FROM history WHERE FALSE  -- It gives the columns their types.
    ) AS d
    GROUP BY 1, 2, 3
)
SELECT (SELECT CAST(coalesce(sum(n), 0) AS BIGINT) FROM k),
    (SELECT CAST(coalesce(sum(n), 0) AS BIGINT) FROM k WHERE hit = 1),
    'pending', k.tenant, c.failure, c.reason, c.code, CAST(coalesce(sum(k.n), 0) AS BIGINT) AS there
FROM (SELECT 1 AS one) AS always
LEFT JOIN k ON k.hit = 1
LEFT JOIN cause c ON c.id = k.cause_id
GROUP BY k.tenant, c.failure, c.reason, c.code
ORDER BY there DESC LIMIT :groups;

-- name: replay_count
-- How many rows were scanned, and how many of them a job takes.
SELECT count(*), count(CASE WHEN {selected:h} THEN 1 END)
FROM (
    {walked}
) AS h;

-- name: past_events
-- The next events that a backfill looks at, of all tenants, in the order of acceptance.
SELECT id, tenant, type, accepted_at, length(data), last_id, order_key, position FROM event
WHERE (position, id) > (:after_position, :after_id) AND position <= :upto_position
ORDER BY position, id LIMIT :limit;

-- name: position_from
-- The first event from a position on, and when it was accepted.
SELECT position, accepted_at FROM event WHERE position >= :position ORDER BY position, id LIMIT 1;

-- name: newer_of_key [sqlite]
-- For each of these keys: its newest events that are newer than one event and older than another.
SELECT id, type, length(data), last_id, order_key, position FROM event
WHERE tenant = :tenant AND order_key = :order_key AND order_key <> ''
AND (position, id) > (:after_position, :after_id) AND (position, id) < (:before_position, :before_id)
ORDER BY position DESC, id DESC LIMIT :limit;

-- name: newer_of_key [postgres]
SELECT e.id, e.type, length(e.data), e.last_id, it.order_key, e.position
FROM unnest(
    :tenant::text[], :order_key::text[], :after_position::bigint[], :after_id::bigint[],
    :before_position::bigint[], :before_id::bigint[], :limit::bigint[]
) AS it (tenant, order_key, after_position, after_id, before_position, before_id, size)
CROSS JOIN LATERAL (
    SELECT * FROM event
    WHERE tenant = it.tenant AND order_key = it.order_key AND order_key <> ''
    AND (position, id) > (it.after_position, it.after_id)
    AND (position, id) < (it.before_position, it.before_id)
    ORDER BY position DESC, id DESC LIMIT it.size
) AS e
ORDER BY it.order_key, e.position DESC, e.id DESC;

-- name: had_by [sqlite]
-- Which of these events a subscription has a delivery of: pending or in history, replays included.
SELECT :event_id WHERE EXISTS (
    SELECT 1 FROM pending
    WHERE id > :event_id AND id <= :last_id AND event_id = :event_id AND subscription_id = :subscription_id
) OR EXISTS (
    SELECT 1 FROM history
    WHERE id > :event_id AND id <= :last_id AND event_id = :event_id AND subscription_id = :subscription_id
) OR EXISTS (
    SELECT 1 FROM replay_link r JOIN pending p ON p.id = r.delivery_id
    WHERE r.event_id = :event_id AND p.subscription_id = :subscription_id
) OR EXISTS (
    SELECT 1 FROM replay_link r JOIN history h ON h.id = r.delivery_id
    WHERE r.event_id = :event_id AND h.subscription_id = :subscription_id
);

-- name: had_by [postgres]
SELECT it.event_id
FROM unnest(:event_id::bigint[], :last_id::bigint[], :subscription_id::bigint[])
    AS it (event_id, last_id, subscription_id)
WHERE EXISTS (
    SELECT 1 FROM pending p WHERE p.id > it.event_id AND p.id <= it.last_id
    AND p.event_id = it.event_id AND p.subscription_id = it.subscription_id
) OR EXISTS (
    SELECT 1 FROM history h WHERE h.id > it.event_id AND h.id <= it.last_id
    AND h.event_id = it.event_id AND h.subscription_id = it.subscription_id
) OR EXISTS (
    SELECT 1 FROM replay_link r JOIN pending p ON p.id = r.delivery_id
    WHERE r.event_id = it.event_id AND p.subscription_id = it.subscription_id
) OR EXISTS (
    SELECT 1 FROM replay_link r JOIN history h ON h.id = r.delivery_id
    WHERE r.event_id = it.event_id AND h.subscription_id = it.subscription_id
);

-- name: events_whole [sqlite]
SELECT {event} FROM event WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id;

-- name: events_whole [postgres]
SELECT {event} FROM event WHERE id = ANY(:ids::bigint[]) ORDER BY id;

-- name: event_ranges [sqlite]
SELECT id, last_id FROM event WHERE id IN (SELECT value FROM json_each(:ids));

-- name: event_ranges [postgres]
SELECT id, last_id FROM event WHERE id = ANY(:ids::bigint[]);
