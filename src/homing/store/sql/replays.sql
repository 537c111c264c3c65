-- Replays: one by one, and the stored jobs that walk history in order of id.

-- name: replay_events [sqlite]
SELECT id FROM event WHERE id IN (SELECT value FROM json_each(:ids));

-- name: replay_events [postgres]
-- Locked: an erasure comes before or after the replay.
SELECT id FROM event WHERE id = ANY(:ids::bigint[]) ORDER BY id FOR KEY SHARE;

-- name: replay_targets [sqlite]
-- The present endpoints of these subscriptions, without deleted ones.
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
-- Uses the index replay_job_running.
SELECT {replay_job} FROM replay_job WHERE state = 'running' ORDER BY id;

-- name: replay_job_cancel
UPDATE replay_job SET state = 'cancelled' WHERE id = :id AND state = 'running' RETURNING id;

-- name: replay_job_progress
UPDATE replay_job SET
    state = :state, after_id = :after_id, scanned = :scanned, replayed = :replayed,
    skipped = :skipped
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

-- name: replay_count
-- How many rows were scanned, and how many of them a job takes.
SELECT count(*), count(CASE WHEN {selected:h} THEN 1 END)
FROM (
    {walked}
) AS h;
