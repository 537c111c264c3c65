-- Counts per minute and hour: written by settle, folded by the sweep, read for charts.

-- name: rollup_add [sqlite]
-- One row for each endpoint and tenant of a batch.
INSERT INTO rollup ({rollup}) VALUES (
    :at, :endpoint_id, :tenant, :node, :delivered, :failed, :ours, :dropped, :b0, :b1, :b2, :b3,
    :b4, :b5, :b6, :b7, :b8, :b9, :b10, :b11
)
ON CONFLICT (at, endpoint_id, tenant, node) DO UPDATE SET
    delivered = rollup.delivered + excluded.delivered,
    failed = rollup.failed + excluded.failed,
    ours = rollup.ours + excluded.ours,
    dropped = rollup.dropped + excluded.dropped,
    b0 = rollup.b0 + excluded.b0,
    b1 = rollup.b1 + excluded.b1,
    b2 = rollup.b2 + excluded.b2,
    b3 = rollup.b3 + excluded.b3,
    b4 = rollup.b4 + excluded.b4,
    b5 = rollup.b5 + excluded.b5,
    b6 = rollup.b6 + excluded.b6,
    b7 = rollup.b7 + excluded.b7,
    b8 = rollup.b8 + excluded.b8,
    b9 = rollup.b9 + excluded.b9,
    b10 = rollup.b10 + excluded.b10,
    b11 = rollup.b11 + excluded.b11;

-- name: rollup_add [postgres]
INSERT INTO rollup ({rollup}) SELECT * FROM unnest(
    :at::bigint[], :endpoint_id::bigint[], :tenant::text[], :node::integer[],
    :delivered::bigint[], :failed::bigint[], :ours::bigint[], :dropped::bigint[], :b0::bigint[],
    :b1::bigint[], :b2::bigint[], :b3::bigint[], :b4::bigint[], :b5::bigint[], :b6::bigint[],
    :b7::bigint[], :b8::bigint[], :b9::bigint[], :b10::bigint[], :b11::bigint[]
)
ON CONFLICT (at, endpoint_id, tenant, node) DO UPDATE SET
    delivered = rollup.delivered + excluded.delivered,
    failed = rollup.failed + excluded.failed,
    ours = rollup.ours + excluded.ours,
    dropped = rollup.dropped + excluded.dropped,
    b0 = rollup.b0 + excluded.b0,
    b1 = rollup.b1 + excluded.b1,
    b2 = rollup.b2 + excluded.b2,
    b3 = rollup.b3 + excluded.b3,
    b4 = rollup.b4 + excluded.b4,
    b5 = rollup.b5 + excluded.b5,
    b6 = rollup.b6 + excluded.b6,
    b7 = rollup.b7 + excluded.b7,
    b8 = rollup.b8 + excluded.b8,
    b9 = rollup.b9 + excluded.b9,
    b10 = rollup.b10 + excluded.b10,
    b11 = rollup.b11 + excluded.b11;

-- name: rollup_read [sqlite]
-- A seek for each time and endpoint.
SELECT {rollup:r} FROM json_each(:ats) a CROSS JOIN json_each(:ids) e CROSS JOIN rollup r
WHERE r.at = a.value AND r.endpoint_id = e.value AND r.tenant = :tenant;

-- name: rollup_read [postgres]
SELECT {rollup:r} FROM rollup r
WHERE r.at = ANY(:ats::bigint[]) AND r.endpoint_id = ANY(:ids::bigint[]) AND r.tenant = :tenant;

-- name: rollup_hour_add [sqlite]
-- What was folded.
INSERT INTO rollup_hour ({rollup_hour}) VALUES (
    :at, :endpoint_id, :tenant, :node, :delivered, :failed, :ours, :dropped, :b0, :b1, :b2, :b3,
    :b4, :b5, :b6, :b7, :b8, :b9, :b10, :b11
)
ON CONFLICT (at, endpoint_id, tenant, node) DO UPDATE SET
    delivered = rollup_hour.delivered + excluded.delivered,
    failed = rollup_hour.failed + excluded.failed,
    ours = rollup_hour.ours + excluded.ours,
    dropped = rollup_hour.dropped + excluded.dropped,
    b0 = rollup_hour.b0 + excluded.b0,
    b1 = rollup_hour.b1 + excluded.b1,
    b2 = rollup_hour.b2 + excluded.b2,
    b3 = rollup_hour.b3 + excluded.b3,
    b4 = rollup_hour.b4 + excluded.b4,
    b5 = rollup_hour.b5 + excluded.b5,
    b6 = rollup_hour.b6 + excluded.b6,
    b7 = rollup_hour.b7 + excluded.b7,
    b8 = rollup_hour.b8 + excluded.b8,
    b9 = rollup_hour.b9 + excluded.b9,
    b10 = rollup_hour.b10 + excluded.b10,
    b11 = rollup_hour.b11 + excluded.b11;

-- name: rollup_hour_add [postgres]
INSERT INTO rollup_hour ({rollup_hour}) SELECT * FROM unnest(
    :at::bigint[], :endpoint_id::bigint[], :tenant::text[], :node::integer[],
    :delivered::bigint[], :failed::bigint[], :ours::bigint[], :dropped::bigint[], :b0::bigint[],
    :b1::bigint[], :b2::bigint[], :b3::bigint[], :b4::bigint[], :b5::bigint[], :b6::bigint[],
    :b7::bigint[], :b8::bigint[], :b9::bigint[], :b10::bigint[], :b11::bigint[]
)
ON CONFLICT (at, endpoint_id, tenant, node) DO UPDATE SET
    delivered = rollup_hour.delivered + excluded.delivered,
    failed = rollup_hour.failed + excluded.failed,
    ours = rollup_hour.ours + excluded.ours,
    dropped = rollup_hour.dropped + excluded.dropped,
    b0 = rollup_hour.b0 + excluded.b0,
    b1 = rollup_hour.b1 + excluded.b1,
    b2 = rollup_hour.b2 + excluded.b2,
    b3 = rollup_hour.b3 + excluded.b3,
    b4 = rollup_hour.b4 + excluded.b4,
    b5 = rollup_hour.b5 + excluded.b5,
    b6 = rollup_hour.b6 + excluded.b6,
    b7 = rollup_hour.b7 + excluded.b7,
    b8 = rollup_hour.b8 + excluded.b8,
    b9 = rollup_hour.b9 + excluded.b9,
    b10 = rollup_hour.b10 + excluded.b10,
    b11 = rollup_hour.b11 + excluded.b11;

-- name: rollup_hour_read [sqlite]
-- A seek for each time and endpoint.
SELECT {rollup_hour:r} FROM json_each(:ats) a CROSS JOIN json_each(:ids) e CROSS JOIN rollup_hour r
WHERE r.at = a.value AND r.endpoint_id = e.value AND r.tenant = :tenant;

-- name: rollup_hour_read [postgres]
SELECT {rollup_hour:r} FROM rollup_hour r
WHERE r.at = ANY(:ats::bigint[]) AND r.endpoint_id = ANY(:ids::bigint[]) AND r.tenant = :tenant;

-- name: rollup_fold [sqlite]
-- Takes the oldest minutes out, to be added to their hours.
DELETE FROM rollup WHERE (at, endpoint_id, tenant, node) IN (
    SELECT at, endpoint_id, tenant, node FROM rollup WHERE at < :before
    ORDER BY at, endpoint_id, tenant, node LIMIT :limit
) RETURNING {rollup};

-- name: rollup_fold [postgres]
-- Of two processes that fold at a time, each takes what the other does not.
DELETE FROM rollup WHERE (at, endpoint_id, tenant, node) IN (
    SELECT at, endpoint_id, tenant, node FROM rollup WHERE at < :before
    ORDER BY at, endpoint_id, tenant, node LIMIT :limit FOR UPDATE SKIP LOCKED
) RETURNING {rollup};

-- name: rollup_hours_remove
DELETE FROM rollup_hour WHERE (at, endpoint_id, tenant, node) IN (
    SELECT at, endpoint_id, tenant, node FROM rollup_hour WHERE at < :before
    ORDER BY at, endpoint_id, tenant, node LIMIT :limit
) RETURNING at;
