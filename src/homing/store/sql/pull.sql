-- Subscriptions without a URL. A publish takes the next positions of a stream and holds the stream's row
-- until its commit: positions become readable in their order, which is the order of acceptance.

-- name: pull_advance [sqlite]
UPDATE pull_stream SET position = position + :count WHERE subscription_id = :subscription_id
RETURNING subscription_id, position;

-- name: pull_advance [postgres]
-- Two transactions lock the rows in the same order, so they cannot wait for each other.
WITH asked AS (
    SELECT it.count, s.subscription_id
    FROM pull_stream s
    JOIN unnest(:count::bigint[], :subscription_id::bigint[]) AS it (count, id) ON s.subscription_id = it.id
    ORDER BY s.subscription_id FOR UPDATE OF s
)
UPDATE pull_stream SET position = position + asked.count FROM asked
WHERE pull_stream.subscription_id = asked.subscription_id
RETURNING pull_stream.subscription_id, pull_stream.position;

-- name: pull_stream
SELECT position, removed FROM pull_stream WHERE subscription_id = :subscription_id;

-- name: pull_heads [sqlite]
-- Where streams that somebody waits for end.
SELECT subscription_id, position FROM pull_stream
WHERE subscription_id IN (SELECT value FROM json_each(:ids));

-- name: pull_heads [postgres]
SELECT subscription_id, position FROM pull_stream WHERE subscription_id = ANY(:ids::bigint[]);

-- name: pull_sizes
-- The entries of a range with the sizes of their events; a size of NULL: the event was erased, or removed.
-- Positions have no gaps, so a range is a page. With LIMIT, PostgreSQL may read all entries that follow and
-- sort them.
SELECT p.position, p.event_id, length(e.data)
FROM pull_entry p LEFT JOIN event e ON e.id = p.event_id
WHERE p.subscription_id = :subscription_id AND p.position > :after AND p.position <= :upto
ORDER BY p.position;

-- name: pull_events [sqlite]
SELECT {event} FROM event WHERE id IN (SELECT value FROM json_each(:ids));

-- name: pull_events [postgres]
SELECT {event} FROM event WHERE id = ANY(:ids::bigint[]);

-- name: pull_oldest
-- The first entry that retention keeps. Retention has removed most of those before it.
SELECT position FROM pull_entry
WHERE subscription_id = :subscription_id AND position > :removed AND event_id >= :bound_id
ORDER BY position LIMIT 1;

-- name: pull_readers
-- At most 16.
SELECT {pull_reader} FROM pull_reader WHERE subscription_id = :subscription_id ORDER BY name;

-- name: pull_reader_by_name
SELECT {pull_reader} FROM pull_reader WHERE subscription_id = :subscription_id AND name = :name;

-- name: pull_stream_lock [sqlite]
SELECT position, removed FROM pull_stream WHERE subscription_id = :subscription_id;

-- name: pull_stream_lock [postgres]
-- Readers are added one after the other, so that there are never too many.
SELECT position, removed FROM pull_stream WHERE subscription_id = :subscription_id FOR UPDATE;

-- name: pull_ack
-- A cursor never moves backward.
UPDATE pull_reader SET
    position = CASE WHEN position < :position THEN :position ELSE position END, acked_at = :now
WHERE subscription_id = :subscription_id AND name = :name
RETURNING {pull_reader};

-- name: pull_reader_remove
DELETE FROM pull_reader WHERE subscription_id = :subscription_id AND name = :name RETURNING {pull_reader};

-- name: pull_walk
-- The next streams, with the time at which their subscription was deleted; NULL: it exists.
SELECT s.subscription_id, s.removed, s.position,
    CASE WHEN sub.id IS NULL THEN 0 ELSE sub.deleted_at END
FROM pull_stream s LEFT JOIN subscription sub ON sub.id = s.subscription_id
WHERE s.subscription_id > :after_id ORDER BY s.subscription_id LIMIT :limit;

-- name: pull_old
-- The oldest entries of a stream.
SELECT position, event_id FROM pull_entry
WHERE subscription_id = :subscription_id AND position > :removed ORDER BY position LIMIT :limit;

-- name: pull_trim
DELETE FROM pull_entry WHERE subscription_id = :subscription_id AND position <= :upto RETURNING position;

-- name: pull_trimmed
UPDATE pull_stream SET removed = :upto WHERE subscription_id = :subscription_id AND removed < :upto;

-- name: pull_stream_remove
DELETE FROM pull_stream WHERE subscription_id = :subscription_id;

-- name: pull_readers_remove
DELETE FROM pull_reader WHERE subscription_id = :subscription_id;

-- name: pull_subscription_remove
DELETE FROM subscription WHERE id = :subscription_id;

-- name: pull_streams_of
-- Uses the index pull_stream_tenant.
SELECT subscription_id FROM pull_stream WHERE tenant = :tenant ORDER BY subscription_id LIMIT :limit;

-- name: pull_erase
DELETE FROM pull_entry WHERE subscription_id = :subscription_id AND position IN (
    SELECT position FROM pull_entry WHERE subscription_id = :subscription_id ORDER BY position LIMIT :limit
) RETURNING position;

-- name: pull_stream_tenant
-- While the rows of a tenant arrive, the subscription may be there before its stream.
SELECT tenant FROM pull_stream WHERE subscription_id = :subscription_id
UNION ALL SELECT tenant FROM subscription WHERE id = :subscription_id LIMIT 1;
