-- Lists of deliveries: pending and history in one statement, newest first, by id.
--
-- A delivery keeps its id when it moves from pending to history, and a statement sees one snapshot.
-- So a page shows every delivery of its range of ids once, and the next page begins below it.
--
-- The statement has several index scans (walks), each on its own index. The caller uses those that
-- fit its conditions and gives the others LIMIT 0. A walk that stopped at its scan limit has not seen
-- the rows below its last one. "low" is the highest of those last ids: the page shows nothing below
-- it, and the next page begins there.

-- name: deliveries
-- The first column is "low", or NULL if the walks reached their ends. If nothing matched, there is
-- one row with NULL in all other columns.
WITH p AS MATERIALIZED (
    SELECT * FROM (
        SELECT 1 AS walk, {pending} FROM pending
        WHERE id >= :from_id AND id < :until_id
        ORDER BY id DESC LIMIT :pending_by_id
    ) AS by_id
    UNION ALL
    SELECT * FROM (
        SELECT 2 AS walk, {pending} FROM pending
        WHERE endpoint_id = :endpoint_id AND id >= :from_id AND id < :until_id
        ORDER BY id DESC LIMIT :pending_by_endpoint
    ) AS by_endpoint
), h AS MATERIALIZED (
    SELECT * FROM (
        SELECT 3 AS walk, {history} FROM history
        WHERE id >= :from_id AND id < :until_id
        ORDER BY id DESC LIMIT :history_by_id
    ) AS by_id
    UNION ALL
    SELECT * FROM (
        SELECT 4 AS walk, {history} FROM history
        WHERE endpoint_id = :endpoint_id AND id >= :from_id AND id < :until_id
        ORDER BY id DESC LIMIT :history_by_endpoint
    ) AS by_endpoint
    UNION ALL
    SELECT * FROM (
        SELECT 5 AS walk, {history} FROM history
        WHERE status = :status AND status <> 'delivered' AND id >= :from_id AND id < :until_id
        ORDER BY id DESC LIMIT :history_by_status
    ) AS by_status
), r AS MATERIALIZED (
    SELECT 6 AS walk, delivery_id AS id FROM replay_link
    WHERE event_id = :event_id AND delivery_id >= :replays_from_id AND delivery_id < :before_id
    ORDER BY delivery_id DESC LIMIT :replays
), bound AS (
    SELECT max(low) AS low FROM (
        SELECT min(id) AS low FROM (
            SELECT walk, id FROM p UNION ALL SELECT walk, id FROM h UNION ALL SELECT walk, id FROM r
        ) AS scanned GROUP BY walk HAVING count(*) = :scan_limit
    ) AS stopped
), page AS (
    SELECT {history:d} FROM (
        SELECT {pending_as_history}
        FROM (SELECT {pending} FROM p
              UNION ALL
              SELECT {pending:q} FROM r CROSS JOIN pending q WHERE q.id = r.id) AS waiting
        UNION ALL
        SELECT {history} FROM h
        UNION ALL
        SELECT {history:q} FROM r CROSS JOIN history q WHERE q.id = r.id
    ) AS d
    WHERE d.id >= coalesce((SELECT low FROM bound), 0)
      AND {selected:d}
    ORDER BY d.id DESC LIMIT :limit
)
SELECT bound.low, {history:page}, coalesce(e.key, ''), coalesce(e.type, ''), coalesce(n.url, ''),
    coalesce(e.order_key, '')
FROM bound LEFT JOIN page ON TRUE
LEFT JOIN event e ON e.id = page.event_id
LEFT JOIN endpoint n ON n.id = page.endpoint_id
ORDER BY page.id DESC;

-- name: deliveries_of_event
-- All deliveries of one event, oldest first. Its own range of ids, then its replays.
SELECT {history:d}, coalesce(e.key, ''), coalesce(e.type, ''), coalesce(n.url, ''),
    coalesce(e.order_key, '')
FROM (
    SELECT {pending_as_history}
    FROM (
        SELECT * FROM (
            SELECT {pending} FROM pending
            WHERE id > :event_id AND id <= :last_id AND event_id = :event_id
            ORDER BY id LIMIT :limit
        ) AS own
        UNION ALL
        SELECT * FROM (
            SELECT {pending:q} FROM replay_link r JOIN pending q ON q.id = r.delivery_id
            WHERE r.event_id = :event_id AND r.delivery_id > :last_id
            ORDER BY r.delivery_id LIMIT :limit
        ) AS replays
    ) AS waiting
    UNION ALL
    SELECT * FROM (
        SELECT {history} FROM history
        WHERE id > :event_id AND id <= :last_id AND event_id = :event_id
        ORDER BY id LIMIT :limit
    ) AS own
    UNION ALL
    SELECT * FROM (
        SELECT {history:q} FROM replay_link r JOIN history q ON q.id = r.delivery_id
        WHERE r.event_id = :event_id AND r.delivery_id > :last_id
        ORDER BY r.delivery_id LIMIT :limit
    ) AS replays
) AS d
LEFT JOIN event e ON e.id = d.event_id
LEFT JOIN endpoint n ON n.id = d.endpoint_id
ORDER BY d.id LIMIT :limit;

-- name: deliveries_whole [sqlite]
-- These deliveries, pending or in history.
SELECT {history:d}, coalesce(e.key, ''), coalesce(e.type, ''), coalesce(n.url, ''),
    coalesce(e.order_key, '')
FROM (
    SELECT {pending_as_history}
    FROM pending WHERE id IN (SELECT value FROM json_each(:ids))
    UNION ALL
    SELECT {history} FROM history WHERE id IN (SELECT value FROM json_each(:ids))
) AS d
LEFT JOIN event e ON e.id = d.event_id
LEFT JOIN endpoint n ON n.id = d.endpoint_id
ORDER BY d.id DESC;

-- name: deliveries_whole [postgres]
SELECT {history:d}, coalesce(e.key, ''), coalesce(e.type, ''), coalesce(n.url, ''),
    coalesce(e.order_key, '')
FROM (
    SELECT {pending_as_history}
    FROM pending WHERE id = ANY(:ids::bigint[])
    UNION ALL
    SELECT {history} FROM history WHERE id = ANY(:ids::bigint[])
) AS d
LEFT JOIN event e ON e.id = d.event_id
LEFT JOIN endpoint n ON n.id = d.endpoint_id
ORDER BY d.id DESC;

-- name: deliveries_selected [sqlite]
-- Those of these deliveries that match the conditions, pending or in history.
SELECT {history:d}, coalesce(e.key, ''), coalesce(e.type, ''), coalesce(n.url, ''),
    coalesce(e.order_key, '')
FROM (
    SELECT {pending_as_history}
    FROM pending WHERE id IN (SELECT value FROM json_each(:ids))
    UNION ALL
    SELECT {history} FROM history WHERE id IN (SELECT value FROM json_each(:ids))
) AS d
LEFT JOIN event e ON e.id = d.event_id
LEFT JOIN endpoint n ON n.id = d.endpoint_id
WHERE {selected:d}
ORDER BY d.id DESC;

-- name: deliveries_selected [postgres]
SELECT {history:d}, coalesce(e.key, ''), coalesce(e.type, ''), coalesce(n.url, ''),
    coalesce(e.order_key, '')
FROM (
    SELECT {pending_as_history}
    FROM pending WHERE id = ANY(:ids::bigint[])
    UNION ALL
    SELECT {history} FROM history WHERE id = ANY(:ids::bigint[])
) AS d
LEFT JOIN event e ON e.id = d.event_id
LEFT JOIN endpoint n ON n.id = d.endpoint_id
WHERE {selected:d}
ORDER BY d.id DESC;

-- name: deliveries_of_tenant [sqlite]
-- For a tenant with few endpoints: the ids of the newest rows of each, pending (0) and history (1),
-- found by one seek per endpoint and side.
SELECT e.id, 0, p.id FROM endpoint e CROSS JOIN pending p
WHERE e.tenant = :tenant AND p.id IN (
    SELECT q.id FROM pending q
    WHERE q.endpoint_id = e.id AND q.id >= :from_id AND q.id < :before_id
    ORDER BY q.id DESC LIMIT :pending_scan_limit)
UNION ALL
SELECT e.id, 1, h.id FROM endpoint e CROSS JOIN history h
WHERE e.tenant = :tenant AND h.id IN (
    SELECT q.id FROM history q
    WHERE q.endpoint_id = e.id AND q.id >= :from_id AND q.id < :before_id
    ORDER BY q.id DESC LIMIT :history_scan_limit);

-- name: deliveries_of_tenant [postgres]
SELECT e.id, newest.side, newest.id FROM endpoint e CROSS JOIN LATERAL (
    (SELECT 0 AS side, q.id FROM pending q
     WHERE q.endpoint_id = e.id AND q.id >= :from_id AND q.id < :before_id
     ORDER BY q.id DESC LIMIT :pending_scan_limit)
    UNION ALL
    (SELECT 1, q.id FROM history q
     WHERE q.endpoint_id = e.id AND q.id >= :from_id AND q.id < :before_id
     ORDER BY q.id DESC LIMIT :history_scan_limit)
) AS newest
WHERE e.tenant = :tenant;

-- name: event_last_id
SELECT last_id FROM event WHERE id = :id;
