-- The order of acceptance (store/acceptance.py).

-- name: acceptance_take [sqlite]
UPDATE acceptance SET number = number + 1 RETURNING number;

-- name: acceptance_take [postgres]
SELECT nextval('acceptance');

-- name: acceptance_last [sqlite]
SELECT number FROM acceptance;

-- name: acceptance_last [postgres]
SELECT last_value FROM acceptance;

-- name: acceptance_hold [sqlite]
-- There is one writer.
SELECT 1;

-- name: acceptance_hold [postgres]
-- One at a time: a slower one would set the sequence back.
SELECT pg_advisory_xact_lock(7239140559);

-- name: acceptance_raise [sqlite]
UPDATE acceptance SET number = max(
    number + 1, :above, (SELECT coalesce(max(position), 0) FROM event),
    CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER))
RETURNING number;

-- name: acceptance_raise [postgres]
-- Publishes go on meanwhile: they take far fewer numbers than the million that is left out here.
SELECT setval('acceptance', greatest(
    nextval('acceptance') + 1000000, :above::bigint, (SELECT coalesce(max(position), 0) FROM event),
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint));
