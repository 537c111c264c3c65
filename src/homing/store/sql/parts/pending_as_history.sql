-- The columns of pending in the order of history's, with those that only history has. A pending
-- delivery has not arrived: the column says instead how much the pauses have moved its times.
id, bucket, tenant, endpoint_id, subscription_id, event_id, root_id, accepted_at,
due_at, expires_at, t0, retry, attempts, sender_errors, replay,
'pending' AS status, NULL AS reason, NULL AS finished_at, paused_ms AS arrived, cause_id,
NULL AS superseded_by
