-- Counts per minute and hour: written by settle, folded by maintenance, read for charts.

-- name: rollup_add [sqlite]
-- One row for each endpoint and tenant of a batch.
INSERT INTO rollup ({rollup}) VALUES ({rollup_values})
ON CONFLICT (at, endpoint_id, tenant, node) DO UPDATE SET {rollup_sums:rollup};

-- name: rollup_add [postgres]
INSERT INTO rollup ({rollup}) SELECT * FROM unnest({rollup_arrays})
ON CONFLICT (at, endpoint_id, tenant, node) DO UPDATE SET {rollup_sums:rollup};

-- name: rollup_read [sqlite]
-- A seek for each time and endpoint.
SELECT {rollup:r} FROM json_each(:ats) a CROSS JOIN json_each(:ids) e CROSS JOIN rollup r
WHERE r.at = a.value AND r.endpoint_id = e.value AND r.tenant = :tenant;

-- name: rollup_read [postgres]
SELECT {rollup:r} FROM rollup r
WHERE r.at = ANY(:ats::bigint[]) AND r.endpoint_id = ANY(:ids::bigint[]) AND r.tenant = :tenant;

-- name: rollup_hour_add [sqlite]
-- Adds folded minutes to their hours.
INSERT INTO rollup_hour ({rollup_hour}) VALUES ({rollup_values})
ON CONFLICT (at, endpoint_id, tenant, node) DO UPDATE SET {rollup_sums:rollup_hour};

-- name: rollup_hour_add [postgres]
INSERT INTO rollup_hour ({rollup_hour}) SELECT * FROM unnest({rollup_arrays})
ON CONFLICT (at, endpoint_id, tenant, node) DO UPDATE SET {rollup_sums:rollup_hour};

-- name: rollup_hour_read [sqlite]
-- A seek for each time and endpoint.
SELECT {rollup_hour:r} FROM json_each(:ats) a CROSS JOIN json_each(:ids) e CROSS JOIN rollup_hour r
WHERE r.at = a.value AND r.endpoint_id = e.value AND r.tenant = :tenant;

-- name: rollup_hour_read [postgres]
SELECT {rollup_hour:r} FROM rollup_hour r
WHERE r.at = ANY(:ats::bigint[]) AND r.endpoint_id = ANY(:ids::bigint[]) AND r.tenant = :tenant;

-- name: rollup_fold [sqlite]
-- Deletes the oldest minutes and returns them, to be added to their hours.
DELETE FROM rollup WHERE (at, endpoint_id, tenant, node) IN (
    SELECT at, endpoint_id, tenant, node FROM rollup WHERE at < :before
    ORDER BY at, endpoint_id, tenant, node LIMIT :limit
) RETURNING {rollup};

-- name: rollup_fold [postgres]
-- Two processes that fold at the same time take different rows.
DELETE FROM rollup WHERE (at, endpoint_id, tenant, node) IN (
    SELECT at, endpoint_id, tenant, node FROM rollup WHERE at < :before
    ORDER BY at, endpoint_id, tenant, node LIMIT :limit FOR UPDATE SKIP LOCKED
) RETURNING {rollup};

-- name: rollup_hours_remove
DELETE FROM rollup_hour WHERE (at, endpoint_id, tenant, node) IN (
    SELECT at, endpoint_id, tenant, node FROM rollup_hour WHERE at < :before
    ORDER BY at, endpoint_id, tenant, node LIMIT :limit
) RETURNING at;
