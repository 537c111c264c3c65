-- Order by key. Every statement is a seek per key in the index pending_order.

-- name: order_hold [sqlite]
-- There is one writer.
SELECT value FROM json_each(:classes) LIMIT 0;

-- name: order_hold [postgres]
-- In order, so that two transactions cannot deadlock.
SELECT pg_advisory_xact_lock(723914055, it) FROM (
    SELECT it FROM unnest(:classes::integer[]) AS it ORDER BY it
) AS sorted;

-- name: order_last [sqlite]
-- The last place of each key, 0 if none of its deliveries is blocked, NULL if it has none; and whether
-- it waits for one that was cancelled.
SELECT :subscription_id, :order_key,
    (SELECT max(order_seq) FROM pending WHERE subscription_id = :subscription_id AND order_key = :order_key),
    (SELECT 1 FROM key_release WHERE subscription_id = :subscription_id AND order_key = :order_key LIMIT 1);

-- name: order_last [postgres]
SELECT it.subscription_id, it.order_key,
    (SELECT max(p.order_seq) FROM pending p
     WHERE p.subscription_id = it.subscription_id AND p.order_key = it.order_key),
    (SELECT 1 FROM key_release r
     WHERE r.subscription_id = it.subscription_id AND r.order_key = it.order_key LIMIT 1)
FROM unnest(:subscription_id::bigint[], :order_key::text[]) AS it (subscription_id, order_key);

-- name: order_next [sqlite]
-- The blocked delivery with the lowest place of each key that has no other unfinished one.
SELECT {pending:p}, e.state FROM pending p LEFT JOIN endpoint e ON e.id = p.endpoint_id
WHERE p.subscription_id = :subscription_id AND p.order_key = :order_key AND p.order_seq > 0
AND NOT EXISTS (
    SELECT 1 FROM pending q
    WHERE q.subscription_id = :subscription_id AND q.order_key = :order_key AND q.order_seq = 0)
AND NOT EXISTS (
    SELECT 1 FROM key_release r WHERE r.subscription_id = :subscription_id AND r.order_key = :order_key)
ORDER BY p.order_seq LIMIT 1;

-- name: order_next [postgres]
SELECT {pending:p}, e.state
FROM unnest(:subscription_id::bigint[], :order_key::text[]) AS it (subscription_id, order_key)
CROSS JOIN LATERAL (
    SELECT * FROM pending q
    WHERE q.subscription_id = it.subscription_id AND q.order_key = it.order_key AND q.order_seq > 0
    ORDER BY q.order_seq LIMIT 1
) AS p
LEFT JOIN endpoint e ON e.id = p.endpoint_id
WHERE NOT EXISTS (
    SELECT 1 FROM pending q
    WHERE q.subscription_id = it.subscription_id AND q.order_key = it.order_key AND q.order_seq = 0)
AND NOT EXISTS (
    SELECT 1 FROM key_release r
    WHERE r.subscription_id = it.subscription_id AND r.order_key = it.order_key);

-- name: order_unblock [sqlite]
-- Only these columns: a cleanup job may have moved the delivery to a new endpoint. It stands in the order
-- of acceptance as if it were accepted now, or where the one stood that it replaces (turn).
UPDATE pending SET
    part = :part, due_at = :due_at, expires_at = :expires_at, unblocked_at = :unblocked_at, order_seq = 0,
    unblocked_position = CASE WHEN :unblocked_at = 0 THEN 0 WHEN :turn > 0 THEN :turn
        ELSE (SELECT number + 1 FROM acceptance) END
WHERE id = :id AND order_seq > 0
RETURNING id, bucket, endpoint_id;

-- name: order_unblock [postgres]
UPDATE pending SET
    part = it.part, due_at = it.due_at, expires_at = it.expires_at, unblocked_at = it.unblocked_at,
    order_seq = 0,
    unblocked_position = CASE WHEN it.unblocked_at = 0 THEN 0 WHEN it.turn > 0 THEN it.turn
        ELSE nextval('acceptance') END
FROM unnest(
    :part::smallint[], :due_at::bigint[], :expires_at::bigint[], :unblocked_at::bigint[],
    :turn::bigint[], :id::bigint[]
) AS it (part, due_at, expires_at, unblocked_at, turn, id)
WHERE pending.id = it.id AND pending.order_seq > 0
RETURNING pending.id, pending.bucket, pending.endpoint_id;

-- name: order_blocked [sqlite]
SELECT {pending:p}, e.state FROM pending p LEFT JOIN endpoint e ON e.id = p.endpoint_id
WHERE p.id IN (SELECT value FROM json_each(:ids)) AND p.order_seq > 0;

-- name: order_blocked [postgres]
SELECT {pending:p}, e.state FROM pending p LEFT JOIN endpoint e ON e.id = p.endpoint_id
WHERE p.id = ANY(:ids::bigint[]) AND p.order_seq > 0;

-- name: order_of
-- A pending delivery with a key, and the one for which it waits if it is blocked.
SELECT {pending:p}, (
    SELECT q.id FROM pending q
    WHERE q.subscription_id = p.subscription_id AND q.order_key = p.order_key
    AND q.order_seq < p.order_seq
    ORDER BY q.order_seq DESC LIMIT 1)
FROM pending p WHERE p.id = :id AND p.order_key IS NOT NULL;

-- name: order_retained
-- The next blocked deliveries of all tenants that may be past the retention, from the index
-- pending_blocked.
SELECT id, tenant FROM pending
WHERE order_seq > 0 AND id > :after_id AND id < :before_id
ORDER BY id LIMIT :limit;

-- name: order_retained_remove [sqlite]
DELETE FROM pending WHERE id IN (SELECT value FROM json_each(:ids)) AND order_seq > 0 RETURNING {pending};

-- name: order_retained_remove [postgres]
DELETE FROM pending WHERE id = ANY(:ids::bigint[]) AND order_seq > 0 RETURNING {pending};

-- name: key_releases
-- Few at any time: the owners of their buckets remove them within seconds.
-- Those of a tenant that moves to another installation wait.
SELECT {key_release:r} FROM key_release r
WHERE NOT EXISTS (
    SELECT 1 FROM endpoint e JOIN tenant_move m ON m.tenant = e.tenant AND m.step <> 'arrived'
    WHERE e.id = r.endpoint_id)
ORDER BY r.delivery_id LIMIT :limit;

-- name: key_release_remove [sqlite]
DELETE FROM key_release WHERE delivery_id IN (SELECT value FROM json_each(:ids))
RETURNING subscription_id, order_key;

-- name: key_release_remove [postgres]
DELETE FROM key_release WHERE delivery_id = ANY(:ids::bigint[])
RETURNING subscription_id, order_key;

-- name: latest_newest [sqlite]
-- The newest blocked delivery of the key of each of these that is no replay, with the time since
-- which its endpoint is enabled, NULL if it is not. None while the key has another that is not
-- blocked, from a time without an order: then the newest would go before it.
SELECT :id, CASE e.state WHEN 'enabled' THEN e.enabled_since END, {pending:p}
FROM pending p LEFT JOIN endpoint e ON e.id = p.endpoint_id
WHERE p.subscription_id = :subscription_id AND p.order_key = :order_key AND p.order_seq > 0
AND p.replay = 0
AND NOT EXISTS (
    SELECT 1 FROM pending q
    WHERE q.subscription_id = :subscription_id AND q.order_key = :order_key AND q.order_seq = 0
    AND q.id <> :id)
AND NOT EXISTS (
    SELECT 1 FROM key_release r WHERE r.subscription_id = :subscription_id AND r.order_key = :order_key)
ORDER BY p.order_seq DESC LIMIT 1;

-- name: latest_newest [postgres]
SELECT it.id, CASE e.state WHEN 'enabled' THEN e.enabled_since END, {pending:p}
FROM unnest(:id::bigint[], :subscription_id::bigint[], :order_key::text[])
    AS it (id, subscription_id, order_key)
CROSS JOIN LATERAL (
    SELECT * FROM pending q
    WHERE q.subscription_id = it.subscription_id AND q.order_key = it.order_key AND q.order_seq > 0
    AND q.replay = 0
    ORDER BY q.order_seq DESC LIMIT 1
) AS p
LEFT JOIN endpoint e ON e.id = p.endpoint_id
WHERE NOT EXISTS (
    SELECT 1 FROM pending q
    WHERE q.subscription_id = it.subscription_id AND q.order_key = it.order_key AND q.order_seq = 0
    AND q.id <> it.id)
AND NOT EXISTS (
    SELECT 1 FROM key_release r
    WHERE r.subscription_id = it.subscription_id AND r.order_key = it.order_key);

-- name: latest_remove [sqlite]
DELETE FROM pending WHERE id = :id RETURNING {pending}, turn;

-- name: latest_remove [postgres]
DELETE FROM pending WHERE id = ANY(:id::bigint[]) RETURNING {pending}, turn;

-- name: latest_supersede [sqlite]
-- The blocked deliveries of a key before a place, a bounded number; with "keep" not its first event.
DELETE FROM pending WHERE id IN (
    SELECT id FROM (
        SELECT id, order_seq, min(CASE WHEN replay = 0 THEN order_seq END) OVER () AS first FROM (
            SELECT id, order_seq, replay FROM pending
            WHERE subscription_id = :subscription_id AND order_key = :order_key
            AND order_seq > 0 AND order_seq < :order_seq
            ORDER BY order_seq LIMIT :limit))
    WHERE :keep = 0 OR order_seq <> coalesce(first, 0)
) RETURNING {pending};

-- name: latest_supersede [postgres]
DELETE FROM pending WHERE id IN (
    SELECT found.id FROM unnest(
        :subscription_id::bigint[], :order_key::text[], :order_seq::bigint[], :limit::integer[],
        :keep::integer[]
    ) AS it (subscription_id, order_key, order_seq, n, keep)
    CROSS JOIN LATERAL (
        SELECT q.id, q.order_seq, min(q.order_seq) FILTER (WHERE q.replay = 0) OVER () AS first FROM (
            SELECT p.id, p.order_seq, p.replay FROM pending p
            WHERE p.subscription_id = it.subscription_id AND p.order_key = it.order_key
            AND p.order_seq > 0 AND p.order_seq < it.order_seq
            ORDER BY p.order_seq LIMIT it.n
        ) AS q
    ) AS found
    WHERE it.keep = 0 OR found.order_seq <> coalesce(found.first, 0)
) RETURNING {pending};

-- name: latest_quiet [sqlite]
-- A delivery that waits for quiet waits longer: a newer event of its key has come.
UPDATE pending SET due_at = max(due_at, min(:quiet_until, accepted_at + :max_wait_ms))
WHERE subscription_id = :subscription_id AND order_key = :order_key AND order_seq = 0
AND attempts = 0 AND replay = 0 AND due_at > :now
RETURNING id;

-- name: latest_quiet [postgres]
UPDATE pending SET due_at = greatest(due_at, least(it.quiet_until, accepted_at + it.max_wait_ms))
FROM unnest(
    :quiet_until::bigint[], :max_wait_ms::bigint[], :subscription_id::bigint[], :order_key::text[],
    :now::bigint[]
) AS it (quiet_until, max_wait_ms, subscription_id, order_key, now)
WHERE pending.subscription_id = it.subscription_id AND pending.order_key = it.order_key
AND pending.order_seq = 0 AND pending.attempts = 0 AND pending.replay = 0
AND pending.due_at > it.now
RETURNING pending.id;

-- name: latest_wait [sqlite]
-- One that was cancelled or attempted meanwhile is left as it is.
UPDATE pending SET part = :part, due_at = :due_at, expires_at = :expires_at, t0 = :t0, paused_ms = :paused_ms
WHERE id = :id AND attempts = :attempts AND order_seq = 0
RETURNING id;

-- name: latest_wait [postgres]
UPDATE pending SET
    part = it.part, due_at = it.due_at, expires_at = it.expires_at, t0 = it.t0, paused_ms = it.paused_ms
FROM unnest(
    :part::smallint[], :due_at::bigint[], :expires_at::bigint[], :t0::bigint[], :paused_ms::bigint[],
    :id::bigint[], :attempts::integer[]
) AS it (part, due_at, expires_at, t0, paused_ms, id, attempts)
WHERE pending.id = it.id AND pending.attempts = it.attempts AND pending.order_seq = 0
RETURNING pending.id;

-- name: latest_first [sqlite]
-- When the first event was accepted that is blocked behind an attempt of its key.
SELECT :subscription_id, :order_key, accepted_at FROM pending
WHERE subscription_id = :subscription_id AND order_key = :order_key AND order_seq > 0 AND replay = 0
ORDER BY order_seq LIMIT 1;

-- name: latest_first [postgres]
SELECT it.subscription_id, it.order_key, p.accepted_at
FROM unnest(:subscription_id::bigint[], :order_key::text[]) AS it (subscription_id, order_key)
CROSS JOIN LATERAL (
    SELECT accepted_at FROM pending q
    WHERE q.subscription_id = it.subscription_id AND q.order_key = it.order_key AND q.order_seq > 0
    AND q.replay = 0
    ORDER BY q.order_seq LIMIT 1
) AS p;

-- name: latest_free [sqlite]
SELECT {pending} FROM pending
WHERE id IN (SELECT value FROM json_each(:ids)) AND order_key IS NOT NULL
AND order_seq = 0 AND attempts = 0 AND replay = 0;

-- name: latest_free [postgres]
SELECT {pending} FROM pending
WHERE id = ANY(:ids::bigint[]) AND order_key IS NOT NULL
AND order_seq = 0 AND attempts = 0 AND replay = 0;

-- name: subscriptions_of [sqlite]
SELECT {subscription} FROM subscription WHERE id IN (SELECT value FROM json_each(:ids));

-- name: subscriptions_of [postgres]
SELECT {subscription} FROM subscription WHERE id = ANY(:ids::bigint[]);

-- name: event_key_of
SELECT key FROM event WHERE id = :id;
