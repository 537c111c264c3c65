-- The conditions of deliveries. Lists, counts and replay jobs all use this text, so that a job takes
-- the deliveries that a list with the same conditions shows. Times of acceptance are ranges of ids,
-- which limit the walks (store/selection). What finished later than now finished under a clock that
-- was ahead, so before the list was shown.
(CAST(:tenant AS TEXT) IS NULL OR {it}.tenant = :tenant)
AND (CAST(:status AS TEXT) IS NULL OR {it}.status = :status)
AND (CAST(:reason AS TEXT) IS NULL OR {it}.reason = :reason)
AND (CAST(:endpoint_id AS BIGINT) IS NULL OR {it}.endpoint_id = :endpoint_id)
AND (CAST(:subscription_id AS BIGINT) IS NULL OR {it}.subscription_id = :subscription_id)
AND (CAST(:event_id AS BIGINT) IS NULL OR {it}.event_id = :event_id)
AND (CAST(:expires_before AS BIGINT) IS NULL
     OR ({it}.status = 'pending' AND {it}.expires_at < :expires_before))
AND (CAST(:finished_since AS BIGINT) IS NULL OR {it}.finished_at >= :finished_since)
AND (CAST(:as_of AS BIGINT) IS NULL OR {it}.finished_at <= :as_of OR {it}.finished_at > :now)
AND (CAST(:type AS TEXT) IS NULL OR EXISTS (
      SELECT 1 FROM event e WHERE e.id = {it}.event_id AND (
          e.type = :type
          OR (length(e.type) > length(CAST(:prefix AS TEXT))
              AND substr(e.type, 1, length(CAST(:prefix AS TEXT))) = :prefix))))
AND (CAST(:event_key AS TEXT) IS NULL OR EXISTS (
      SELECT 1 FROM event e WHERE e.id = {it}.event_id AND e.key = :event_key))
AND (CAST(:failure AS TEXT) IS NULL OR EXISTS (
      SELECT 1 FROM cause c WHERE c.id = {it}.cause_id AND c.failure = :failure))
AND (CAST(:code AS INTEGER) IS NULL OR EXISTS (
      SELECT 1 FROM cause c WHERE c.id = {it}.cause_id AND c.code = :code))
AND (CAST(:url AS TEXT) IS NULL OR EXISTS (
      SELECT 1 FROM endpoint u WHERE u.id = {it}.endpoint_id
      AND replace(lower(u.url), CAST(:url AS TEXT), '') <> lower(u.url)))
