-- The next rows of history for a replay job, in order of id. Of the four index scans (walks) one is
-- used, the shortest for the job's conditions. The others have LIMIT 0.
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
UNION ALL
SELECT * FROM (
    SELECT * FROM (
        SELECT {history} FROM history
        WHERE id > :after_id AND id <= :upto_id AND id > :event_id
          AND id <= (SELECT last_id FROM event WHERE id = :event_id)
        ORDER BY id LIMIT :by_event
    ) AS own
    UNION ALL
    SELECT * FROM (
        SELECT {history:q} FROM replay_link r JOIN history q ON q.id = r.delivery_id
        WHERE r.event_id = :event_id AND r.delivery_id > :after_id AND r.delivery_id <= :upto_id
        ORDER BY r.delivery_id LIMIT :by_event
    ) AS replays
    ORDER BY id LIMIT :by_event
) AS by_event
