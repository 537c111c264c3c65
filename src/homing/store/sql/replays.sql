-- Replays: one by one, and the stored jobs that walk history in order of id.

-- name: replay_events [sqlite]
SELECT id FROM event WHERE id IN (SELECT value FROM json_each(:ids));

-- name: replay_events [postgres]
SELECT id FROM event WHERE id = ANY(:ids::bigint[]);

-- name: replay_targets [sqlite]
-- Where deliveries of these subscriptions go now; a deleted one has no place.
SELECT s.id, e.id, e.bucket
FROM subscription s JOIN endpoint e ON e.id = s.endpoint_id
WHERE s.id IN (SELECT value FROM json_each(:ids)) AND s.deleted_at IS NULL;

-- name: replay_targets [postgres]
SELECT s.id, e.id, e.bucket
FROM subscription s JOIN endpoint e ON e.id = s.endpoint_id
WHERE s.id = ANY(:ids::bigint[]) AND s.deleted_at IS NULL;

-- name: replay_job_by_id
SELECT {replay_job} FROM replay_job WHERE id = :id;

-- name: replay_job_hold [sqlite]
SELECT {replay_job} FROM replay_job WHERE id = :id;

-- name: replay_job_hold [postgres]
-- Two processes never take the same step.
SELECT {replay_job} FROM replay_job WHERE id = :id FOR UPDATE;

-- name: replay_jobs_running
SELECT {replay_job} FROM replay_job WHERE state = 'running' ORDER BY id;

-- name: replay_job_cancel
UPDATE replay_job SET state = 'cancelled' WHERE id = :id AND state = 'running';

-- name: replay_job_progress
UPDATE replay_job SET
    state = :state, after_id = :after_id, looked_at = :looked_at, replayed = :replayed,
    skipped = :skipped
WHERE id = :id;

-- name: replay_found
-- What a job takes of the next rows of history. Of the three walks one is open, the shortest for
-- its conditions; the others have LIMIT 0. The first two columns say how many rows were looked at
-- and up to which id; where none matched there is one row with NULL in all the others.
WITH looked AS MATERIALIZED (
    SELECT * FROM (
        SELECT {history} FROM history
        WHERE id > :after_id AND id <= :upto_id
        ORDER BY id LIMIT :by_id
    ) AS by_id
    UNION ALL
    SELECT * FROM (
        SELECT {history} FROM history
        WHERE endpoint_id = :endpoint_id AND id > :after_id AND id <= :upto_id
        ORDER BY id LIMIT :by_endpoint
    ) AS by_endpoint
    UNION ALL
    SELECT * FROM (
        SELECT {history} FROM history
        WHERE status = :status AND status <> 'delivered' AND id > :after_id AND id <= :upto_id
        ORDER BY id LIMIT :by_status
    ) AS by_status
), reach AS (
    SELECT count(*) AS n, max(id) AS top FROM looked
)
SELECT reach.n, reach.top, {history:h}
FROM reach LEFT JOIN looked h ON
  (CAST(:tenant AS TEXT) IS NULL OR h.tenant = :tenant)
  AND (CAST(:status AS TEXT) IS NULL OR h.status = :status)
  AND (CAST(:reason AS TEXT) IS NULL OR h.reason = :reason)
  AND (CAST(:endpoint_id AS BIGINT) IS NULL OR h.endpoint_id = :endpoint_id)
  AND (CAST(:subscription_id AS BIGINT) IS NULL OR h.subscription_id = :subscription_id)
  AND (CAST(:since AS BIGINT) IS NULL OR h.finished_at >= :since)
  AND (CAST(:until AS BIGINT) IS NULL OR h.finished_at < :until)
  AND (CAST(:type AS TEXT) IS NULL OR EXISTS (
        SELECT 1 FROM event e WHERE e.id = h.event_id AND (
            e.type = :type
            OR (length(e.type) > length(CAST(:prefix AS TEXT))
                AND substr(e.type, 1, length(CAST(:prefix AS TEXT))) = :prefix))))
ORDER BY h.id;

-- name: replay_count
-- How many rows were looked at, and how many of them match; the same walks and conditions.
SELECT count(*), count(CASE WHEN
  (CAST(:tenant AS TEXT) IS NULL OR h.tenant = :tenant)
  AND (CAST(:status AS TEXT) IS NULL OR h.status = :status)
  AND (CAST(:reason AS TEXT) IS NULL OR h.reason = :reason)
  AND (CAST(:endpoint_id AS BIGINT) IS NULL OR h.endpoint_id = :endpoint_id)
  AND (CAST(:subscription_id AS BIGINT) IS NULL OR h.subscription_id = :subscription_id)
  AND (CAST(:since AS BIGINT) IS NULL OR h.finished_at >= :since)
  AND (CAST(:until AS BIGINT) IS NULL OR h.finished_at < :until)
  AND (CAST(:type AS TEXT) IS NULL OR EXISTS (
        SELECT 1 FROM event e WHERE e.id = h.event_id AND (
            e.type = :type
            OR (length(e.type) > length(CAST(:prefix AS TEXT))
                AND substr(e.type, 1, length(CAST(:prefix AS TEXT))) = :prefix))))
  THEN 1 END)
FROM (
    SELECT * FROM (
        SELECT id, tenant, endpoint_id, subscription_id, event_id, status, reason, finished_at FROM history
        WHERE id > :after_id AND id <= :upto_id
        ORDER BY id LIMIT :by_id
    ) AS by_id
    UNION ALL
    SELECT * FROM (
        SELECT id, tenant, endpoint_id, subscription_id, event_id, status, reason, finished_at FROM history
        WHERE endpoint_id = :endpoint_id AND id > :after_id AND id <= :upto_id
        ORDER BY id LIMIT :by_endpoint
    ) AS by_endpoint
    UNION ALL
    SELECT * FROM (
        SELECT id, tenant, endpoint_id, subscription_id, event_id, status, reason, finished_at FROM history
        WHERE status = :status AND status <> 'delivered' AND id > :after_id AND id <= :upto_id
        ORDER BY id LIMIT :by_status
    ) AS by_status
) AS h;
