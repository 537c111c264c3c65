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
-- First attempts that succeeded, through the history of the endpoint. They are in the row of history
-- itself, or, if an earlier version wrote them, in a row of their own. A row of history whose attempts
-- are in the index above has neither.
SELECT h.id, h.first_attempt, a.started_at, a.code FROM (
    SELECT id, first_attempt FROM history WHERE endpoint_id = :endpoint_id AND id < :before_id
    ORDER BY id DESC LIMIT :scan_limit
) AS h LEFT JOIN attempt a ON h.first_attempt IS NULL AND a.delivery_id = h.id AND a.number = 1
    AND a.outcome = 'delivered' AND a.lane = 'fresh' AND a.endpoint_id = :endpoint_id
ORDER BY h.id DESC;

-- name: attempts_at_once [sqlite]
-- The attempts of deliveries that succeeded at once.
SELECT id, endpoint_id, subscription_id, finished_at, retry, first_attempt FROM history
WHERE id = :id AND first_attempt IS NOT NULL;

-- name: attempts_at_once [postgres]
SELECT id, endpoint_id, subscription_id, finished_at, retry, first_attempt FROM history
WHERE id = ANY(:id::bigint[]) AND first_attempt IS NOT NULL;
