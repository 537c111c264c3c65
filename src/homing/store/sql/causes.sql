-- Causes: settle reads the recent ones of the endpoints that fail, and writes what has changed.

-- name: causes_recent [sqlite]
-- The causes of these endpoints that are open, or were closed since: a bounded number of each.
SELECT {cause:c} FROM json_each(:endpoint_ids) e CROSS JOIN cause c
WHERE c.endpoint_id = e.value AND c.closed_at IS NULL
UNION ALL
SELECT {cause:c} FROM json_each(:endpoint_ids) e CROSS JOIN cause c
WHERE c.endpoint_id = e.value AND c.closed_at >= :since;

-- name: causes_recent [postgres]
SELECT {cause} FROM cause WHERE endpoint_id = ANY(:endpoint_ids::bigint[]) AND closed_at IS NULL
UNION ALL
SELECT {cause} FROM cause WHERE endpoint_id = ANY(:endpoint_ids::bigint[]) AND closed_at >= :since;

-- name: causes_write [sqlite]
INSERT INTO cause ({cause}) VALUES (
    :id, :tenant, :endpoint_id, :failure, :reason, :code, :first_seen, :last_seen, :attempts, :deliveries,
    :example_id, :example_number, :closed_at
)
ON CONFLICT (id) DO UPDATE SET
    last_seen = excluded.last_seen, attempts = excluded.attempts, deliveries = excluded.deliveries,
    example_id = excluded.example_id, example_number = excluded.example_number,
    closed_at = excluded.closed_at;

-- name: causes_write [postgres]
INSERT INTO cause ({cause}) SELECT * FROM unnest(
    :id::bigint[], :tenant::text[], :endpoint_id::bigint[], :failure::text[], :reason::text[],
    :code::integer[], :first_seen::bigint[], :last_seen::bigint[], :attempts::bigint[],
    :deliveries::bigint[], :example_id::bigint[], :example_number::integer[], :closed_at::bigint[]
)
ON CONFLICT (id) DO UPDATE SET
    last_seen = excluded.last_seen, attempts = excluded.attempts, deliveries = excluded.deliveries,
    example_id = excluded.example_id, example_number = excluded.example_number,
    closed_at = excluded.closed_at;

-- name: causes_count [sqlite]
-- The columns that change while a cause is open: none of them is in an index.
UPDATE cause SET
    last_seen = :last_seen, attempts = :attempts, deliveries = :deliveries,
    example_id = :example_id, example_number = :example_number
WHERE id = :id;

-- name: causes_count [postgres]
UPDATE cause SET
    last_seen = it.last_seen, attempts = it.attempts, deliveries = it.deliveries,
    example_id = it.example_id, example_number = it.example_number
FROM unnest(
    :last_seen::bigint[], :attempts::bigint[], :deliveries::bigint[], :example_id::bigint[],
    :example_number::integer[], :id::bigint[]
) AS it (last_seen, attempts, deliveries, example_id, example_number, id)
WHERE cause.id = it.id;

-- name: endpoints_unused [sqlite]
-- Which of these endpoints no subscription uses any more.
SELECT e.value FROM json_each(:endpoint_ids) e WHERE NOT EXISTS (
    SELECT 1 FROM subscription s WHERE s.endpoint_id = e.value AND s.deleted_at IS NULL
);

-- name: endpoints_unused [postgres]
SELECT e.id FROM unnest(:endpoint_ids::bigint[]) AS e (id) WHERE NOT EXISTS (
    SELECT 1 FROM subscription s WHERE s.endpoint_id = e.id AND s.deleted_at IS NULL
);

-- name: endpoint_lock [sqlite]
SELECT id FROM endpoint WHERE id = :endpoint_id;

-- name: endpoint_lock [postgres]
-- A settle has this lock, too, when it writes causes: one of the two sees what the other wrote.
SELECT id FROM endpoint WHERE id = :endpoint_id FOR UPDATE;

-- name: causes_close_unused
-- A subscription has left this endpoint: it gets no attempt any more if it was the last one.
UPDATE cause SET closed_at = CASE WHEN last_seen > :now THEN last_seen ELSE :now END
WHERE endpoint_id = :endpoint_id AND closed_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM subscription s WHERE s.endpoint_id = :endpoint_id AND s.deleted_at IS NULL
);

-- name: causes_remove
-- Causes that were closed before the retention time.
DELETE FROM cause WHERE id IN (
    SELECT id FROM cause WHERE closed_at < :before ORDER BY closed_at LIMIT :limit
) RETURNING id;

-- name: causes_of_removed [sqlite]
-- The causes of endpoints that were removed.
DELETE FROM cause WHERE endpoint_id IN (SELECT value FROM json_each(:endpoint_ids));

-- name: causes_of_removed [postgres]
DELETE FROM cause WHERE endpoint_id = ANY(:endpoint_ids::bigint[]);
