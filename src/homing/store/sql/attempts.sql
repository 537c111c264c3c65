-- The attempts of one endpoint (store/attempts.py).

-- name: attempts_indexed
-- Attempts that failed, retries, probes and tests. The condition is that of the index attempt_endpoint.
SELECT started_at, delivery_id, number, outcome, code, failure FROM attempt
WHERE endpoint_id = :endpoint_id AND (outcome <> 'delivered' OR number > 1 OR lane <> 'fresh')
AND started_at <= :started_at AND started_at >= :since
AND (started_at < :started_at OR delivery_id < :delivery_id
     OR (delivery_id = :delivery_id AND number < :number))
ORDER BY started_at DESC, delivery_id DESC, number DESC LIMIT :scan_limit;

-- name: attempts_first
-- First attempts that succeeded, through the history of the endpoint. A row of history whose attempts
-- are in the index above has NULL.
SELECT h.id, a.started_at, h.id, 1, 'delivered', a.code, NULL FROM (
    SELECT id FROM history WHERE endpoint_id = :endpoint_id AND id < :before_id
    ORDER BY id DESC LIMIT :scan_limit
) AS h LEFT JOIN attempt a ON a.delivery_id = h.id AND a.number = 1 AND a.outcome = 'delivered'
    AND a.lane = 'fresh' AND a.endpoint_id = :endpoint_id
ORDER BY h.id DESC;
