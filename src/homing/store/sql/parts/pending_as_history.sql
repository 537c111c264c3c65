-- The columns of pending in the order of history's, with those that only history has.
id, bucket, tenant, endpoint_id, subscription_id, event_id, root_id, accepted_at,
due_at, expires_at, t0, retry, attempts, sender_errors, replay,
'pending' AS status, NULL AS reason, NULL AS finished_at, 0 AS arrived, cause_id
