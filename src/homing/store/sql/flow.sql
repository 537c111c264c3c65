-- The hot path. Every statement is a seek, or a seek per row of a batch, however much is pending.

-- name: last_id [sqlite]
-- New ids begin after the highest in use, so that a batch's number is never that of an earlier one;
-- each of these is one seek at the end of an index.
SELECT coalesce(max(id), 0) FROM (
    SELECT max(id) AS id FROM event
    UNION ALL SELECT max(id) FROM pending
    UNION ALL SELECT max(id) FROM history
    UNION ALL SELECT max(delivery_id) FROM attempt
    UNION ALL SELECT max(id) FROM transition
    UNION ALL SELECT max(id) FROM cause
    UNION ALL SELECT max(id) FROM subscription
    UNION ALL SELECT max(id) FROM endpoint
    UNION ALL SELECT max(id) FROM cleanup_job
    UNION ALL SELECT max(id) FROM replay_job
    UNION ALL SELECT max(id) FROM erasure
    UNION ALL SELECT max(id) FROM notice_target
    UNION ALL SELECT max(id) FROM notice
    UNION ALL SELECT max(number) FROM batch_mark
) AS highest;

-- name: last_id [postgres]
SELECT coalesce(max(id), 0) FROM (
    SELECT max(id) AS id FROM event
    UNION ALL SELECT max(id) FROM pending
    UNION ALL SELECT max(id) FROM history
    UNION ALL SELECT max(delivery_id) FROM attempt
    UNION ALL SELECT max(id) FROM transition
    UNION ALL SELECT max(id) FROM cause
    UNION ALL SELECT max(id) FROM subscription
    UNION ALL SELECT max(id) FROM endpoint
    UNION ALL SELECT max(id) FROM cleanup_job
    UNION ALL SELECT max(id) FROM replay_job
    UNION ALL SELECT max(id) FROM erasure
    UNION ALL SELECT max(id) FROM notice_target
    UNION ALL SELECT max(id) FROM notice
) AS highest;

-- name: keys_known [sqlite]
-- The events of a batch that are already stored: they get the same receipt again, or a conflict.
SELECT k.tenant, k.key, k.content_hash, coalesce(e.deliveries, 0)
FROM event_key k LEFT JOIN event e ON e.id = k.event_id
WHERE k.tenant = :tenant AND k.key = :key;

-- name: keys_known [postgres]
SELECT k.tenant, k.key, k.content_hash, coalesce(e.deliveries, 0)
FROM unnest(:tenant::text[], :key::text[]) AS asked (tenant, key)
JOIN event_key k ON k.tenant = asked.tenant AND k.key = asked.key
LEFT JOIN event e ON e.id = k.event_id;

-- name: ledger_add [sqlite]
-- Each process has its own rows: processes do not wait for each other.
INSERT INTO ledger (tenant, node, accepted, delivered, dropped, cancelled, superseded)
VALUES (:tenant, :node, :accepted, :delivered, :dropped, :cancelled, :superseded)
ON CONFLICT (tenant, node) DO UPDATE SET
    accepted = ledger.accepted + excluded.accepted,
    delivered = ledger.delivered + excluded.delivered,
    dropped = ledger.dropped + excluded.dropped,
    cancelled = ledger.cancelled + excluded.cancelled,
    superseded = ledger.superseded + excluded.superseded;

-- name: ledger_add [postgres]
INSERT INTO ledger (tenant, node, accepted, delivered, dropped, cancelled, superseded)
SELECT * FROM unnest(
    :tenant::text[], :node::integer[], :accepted::bigint[], :delivered::bigint[],
    :dropped::bigint[], :cancelled::bigint[], :superseded::bigint[]
)
ON CONFLICT (tenant, node) DO UPDATE SET
    accepted = ledger.accepted + excluded.accepted,
    delivered = ledger.delivered + excluded.delivered,
    dropped = ledger.dropped + excluded.dropped,
    cancelled = ledger.cancelled + excluded.cancelled,
    superseded = ledger.superseded + excluded.superseded;

-- name: endpoint_walk
-- The next endpoints with pending deliveries. One seek each, whatever their backlogs.
WITH RECURSIVE walk (id) AS (
    SELECT min(endpoint_id) FROM pending WHERE endpoint_id > :after_id
    UNION ALL
    SELECT (SELECT min(p.endpoint_id) FROM pending p WHERE p.endpoint_id > walk.id)
    FROM walk WHERE walk.id IS NOT NULL
)
SELECT id FROM walk WHERE id IS NOT NULL LIMIT :limit;

-- name: endpoint_start [sqlite]
-- An endpoint, and one seek for each kind of pending work.
SELECT {endpoint:e},
    coalesce(
        (SELECT 1 FROM pending p WHERE p.bucket = e.bucket AND p.endpoint_id = e.id AND p.part = 0 LIMIT 1),
        (SELECT 1 FROM pending p WHERE p.bucket = e.bucket AND p.endpoint_id = e.id AND p.part >= 16 LIMIT 1)),
    (SELECT min(p.turn) FROM pending p WHERE p.bucket = e.bucket AND p.endpoint_id = e.id AND p.part = 1),
    (SELECT min(p.turn) FROM pending p WHERE p.bucket = e.bucket AND p.endpoint_id = e.id AND p.part = 2),
    (SELECT min(p.id) FROM pending p WHERE p.bucket = e.bucket AND p.endpoint_id = e.id)
FROM endpoint e WHERE e.id = :id;

-- name: endpoint_start [postgres]
SELECT {endpoint:e},
    coalesce(
        (SELECT 1 FROM pending p WHERE p.bucket = e.bucket AND p.endpoint_id = e.id AND p.part = 0 LIMIT 1),
        (SELECT 1 FROM pending p WHERE p.bucket = e.bucket AND p.endpoint_id = e.id AND p.part >= 16 LIMIT 1)),
    (SELECT min(p.turn) FROM pending p WHERE p.bucket = e.bucket AND p.endpoint_id = e.id AND p.part = 1),
    (SELECT min(p.turn) FROM pending p WHERE p.bucket = e.bucket AND p.endpoint_id = e.id AND p.part = 2),
    (SELECT min(p.id) FROM pending p WHERE p.bucket = e.bucket AND p.endpoint_id = e.id)
FROM unnest(:id::bigint[]) AS asked (id) JOIN endpoint e ON e.id = asked.id;

-- name: due_heads [sqlite]
-- The next rows of an endpoint's lanes, from the index alone. Rows that are not due yet show the next
-- due time. First attempts that were held back (3) stand in the order of acceptance. The last row (2)
-- shows whether there are fair groups, which are read by fair_heads, and from which position on
-- first attempts are fresh.
SELECT * FROM (
    SELECT :ask, 0, turn, turn, id FROM pending
    WHERE bucket = :bucket AND endpoint_id = :endpoint_id AND part = 0
    AND turn >= (SELECT enabled_from FROM endpoint WHERE id = :endpoint_id)
    ORDER BY turn, id LIMIT :fresh)
UNION ALL SELECT * FROM (
    SELECT :ask, 3, turn, due_at, id FROM pending
    WHERE bucket = :bucket AND endpoint_id = :endpoint_id AND part = 0
    AND turn < (SELECT enabled_from FROM endpoint WHERE id = :endpoint_id)
    ORDER BY turn, id LIMIT :retry)
UNION ALL SELECT * FROM (
    SELECT :ask, 1, turn, turn, id FROM pending
    WHERE bucket = :bucket AND endpoint_id = :endpoint_id AND part = 1
    ORDER BY turn, id LIMIT :retry)
UNION ALL SELECT * FROM (
    SELECT :ask, 1, turn, turn, id FROM pending
    WHERE bucket = :bucket AND endpoint_id = :endpoint_id AND part = 2
    ORDER BY turn, id LIMIT :retry)
UNION ALL SELECT * FROM (
    SELECT :ask, 2, (SELECT enabled_from FROM endpoint WHERE id = :endpoint_id), 0, id FROM pending
    WHERE bucket = :bucket AND endpoint_id = :endpoint_id AND part >= 16
    ORDER BY part LIMIT 1);

-- name: due_heads [postgres]
SELECT asked.ask, head.lane, head.turn, head.due_at, head.id
FROM unnest(
    :ask::integer[], :bucket::smallint[], :endpoint_id::bigint[], :fresh::integer[], :retry::integer[]
) AS asked (ask, bucket, endpoint_id, fresh, retry)
JOIN endpoint e ON e.id = asked.endpoint_id
CROSS JOIN LATERAL (
    (SELECT 0 AS lane, turn, turn AS due_at, id FROM pending
     WHERE bucket = asked.bucket AND endpoint_id = asked.endpoint_id AND part = 0 AND turn >= e.enabled_from
     ORDER BY turn, id LIMIT asked.fresh)
    UNION ALL
    (SELECT 3, turn, due_at, id FROM pending
     WHERE bucket = asked.bucket AND endpoint_id = asked.endpoint_id AND part = 0 AND turn < e.enabled_from
     ORDER BY turn, id LIMIT asked.retry)
    UNION ALL
    (SELECT 1, turn, turn, id FROM pending
     WHERE bucket = asked.bucket AND endpoint_id = asked.endpoint_id AND part = 1
     ORDER BY turn, id LIMIT asked.retry)
    UNION ALL
    (SELECT 1, turn, turn, id FROM pending
     WHERE bucket = asked.bucket AND endpoint_id = asked.endpoint_id AND part = 2
     ORDER BY turn, id LIMIT asked.retry)
    UNION ALL
    (SELECT 2, e.enabled_from, 0, id FROM pending
     WHERE bucket = asked.bucket AND endpoint_id = asked.endpoint_id AND part >= 16
     ORDER BY part LIMIT 1)
) AS head;

-- name: fair_groups [sqlite]
-- The fair groups of an endpoint that wait, with their first and last places: a few seeks each.
WITH RECURSIVE walk (part) AS (
    SELECT min(part) FROM pending WHERE bucket = :bucket AND endpoint_id = :endpoint_id AND part >= 16
    UNION ALL
    SELECT (
        SELECT min(p.part) FROM pending p
        WHERE p.bucket = :bucket AND p.endpoint_id = :endpoint_id AND p.part > walk.part)
    FROM walk WHERE walk.part IS NOT NULL
)
SELECT :ask, part,
    (SELECT min(p.turn) FROM pending p
     WHERE p.bucket = :bucket AND p.endpoint_id = :endpoint_id AND p.part = walk.part),
    (SELECT max(p.turn) FROM pending p
     WHERE p.bucket = :bucket AND p.endpoint_id = :endpoint_id AND p.part = walk.part)
FROM walk WHERE part IS NOT NULL;

-- name: fair_groups [postgres]
SELECT asked.ask, found.part, found.first_turn, found.last_turn
FROM unnest(:bucket::smallint[], :endpoint_id::bigint[], :ask::integer[]) AS asked (bucket, endpoint_id, ask)
CROSS JOIN LATERAL (
    WITH RECURSIVE walk (part) AS (
        SELECT min(part) FROM pending
        WHERE bucket = asked.bucket AND endpoint_id = asked.endpoint_id AND part >= 16
        UNION ALL
        SELECT (
            SELECT min(p.part) FROM pending p
            WHERE p.bucket = asked.bucket AND p.endpoint_id = asked.endpoint_id AND p.part > walk.part)
        FROM walk WHERE walk.part IS NOT NULL
    )
    SELECT part,
        (SELECT min(p.turn) FROM pending p
         WHERE p.bucket = asked.bucket AND p.endpoint_id = asked.endpoint_id AND p.part = walk.part) AS first_turn,
        (SELECT max(p.turn) FROM pending p
         WHERE p.bucket = asked.bucket AND p.endpoint_id = asked.endpoint_id AND p.part = walk.part) AS last_turn
    FROM walk WHERE part IS NOT NULL
) AS found;

-- name: fair_heads [sqlite]
-- The next rows of a fair group, by lane.
SELECT * FROM (
    SELECT :ask, 0, :part, turn, turn, id FROM pending
    WHERE bucket = :bucket AND endpoint_id = :endpoint_id AND part = :part AND turn >= :since
    ORDER BY turn, id LIMIT :fresh)
UNION ALL SELECT * FROM (
    SELECT :ask, 1, :part, turn, due_at, id FROM pending
    WHERE bucket = :bucket AND endpoint_id = :endpoint_id AND part = :part AND turn < :since
    ORDER BY turn, id LIMIT :retry);

-- name: fair_heads [postgres]
SELECT asked.ask, head.lane, asked.part, head.turn, head.due_at, head.id
FROM unnest(
    :ask::integer[], :part::smallint[], :bucket::smallint[], :endpoint_id::bigint[], :since::bigint[],
    :fresh::integer[], :retry::integer[]
) AS asked (ask, part, bucket, endpoint_id, since, fresh, retry)
CROSS JOIN LATERAL (
    (SELECT 0 AS lane, turn, turn AS due_at, id FROM pending
     WHERE bucket = asked.bucket AND endpoint_id = asked.endpoint_id AND part = asked.part
     AND turn >= asked.since
     ORDER BY turn, id LIMIT asked.fresh)
    UNION ALL
    (SELECT 1, turn, due_at, id FROM pending
     WHERE bucket = asked.bucket AND endpoint_id = asked.endpoint_id AND part = asked.part
     AND turn < asked.since
     ORDER BY turn, id LIMIT asked.retry)
) AS head;

-- name: parts_waiting
-- The parts of an endpoint that have pending rows, without those of blocked rows. One seek each.
WITH RECURSIVE walk (part) AS (
    SELECT min(part) FROM pending WHERE bucket = :bucket AND endpoint_id = :endpoint_id AND part >= 0
    UNION ALL
    SELECT (
        SELECT min(p.part) FROM pending p
        WHERE p.bucket = :bucket AND p.endpoint_id = :endpoint_id AND p.part > walk.part)
    FROM walk WHERE walk.part IS NOT NULL
)
SELECT part FROM walk WHERE part IS NOT NULL;

-- name: rows_after
-- The next rows of a part after a place, with what is needed to leave out those of paused subscriptions.
SELECT turn, id, due_at, subscription_id, expires_at, position FROM pending
WHERE bucket = :bucket AND endpoint_id = :endpoint_id AND part = :part
AND (turn, id) > (:after_turn, :after_id) AND turn < :until
ORDER BY turn, id LIMIT :limit;

-- name: enabled_from
-- From which position on the first attempts of an endpoint are fresh.
SELECT enabled_from FROM endpoint WHERE id = :id;

-- name: first_due_after
-- When the next row of a part is due that is not due yet: no first attempts, whose places are no times.
SELECT min(turn) FROM pending
WHERE bucket = :bucket AND endpoint_id = :endpoint_id AND part = :part AND turn > :now;

-- name: rows_by_id
-- The next rows of an endpoint by id, for a probe.
SELECT id, subscription_id, expires_at, order_seq FROM pending
WHERE bucket = :bucket AND endpoint_id = :endpoint_id AND id > :after_id ORDER BY id LIMIT :limit;

-- name: pending_older
-- The rows of an endpoint that are older than an id.
SELECT {pending} FROM pending
WHERE bucket = :bucket AND endpoint_id = :endpoint_id AND id > :after_id AND id < :before_id
ORDER BY id LIMIT :limit;

-- name: works [sqlite]
-- Deliveries with their events.
SELECT {pending:p}, {event:e}
FROM pending p JOIN event e ON e.id = p.event_id WHERE p.id = :id AND p.bucket = :bucket;

-- name: works [postgres]
SELECT {pending:p}, {event:e}
FROM unnest(:id::bigint[], :bucket::smallint[]) AS asked (id, bucket)
JOIN pending p ON p.id = asked.id AND p.bucket = asked.bucket JOIN event e ON e.id = p.event_id;

-- name: probe_first
-- The oldest delivery of a part that is still within its window, among a bounded number of rows.
SELECT position, id FROM (
    SELECT turn, id, position, expires_at FROM pending
    WHERE bucket = :bucket AND endpoint_id = :endpoint_id AND part = :part
    ORDER BY turn, id LIMIT :scan_limit
) AS oldest
WHERE expires_at > :alive_at ORDER BY turn, id LIMIT 1;

-- name: probe_fair
-- As probe_first, for fair groups: the oldest of the first rows of all groups.
WITH RECURSIVE walk (part) AS (
    SELECT min(part) FROM pending WHERE bucket = :bucket AND endpoint_id = :endpoint_id AND part >= 16
    UNION ALL
    SELECT (
        SELECT min(p.part) FROM pending p
        WHERE p.bucket = :bucket AND p.endpoint_id = :endpoint_id AND p.part > walk.part)
    FROM walk WHERE walk.part IS NOT NULL
)
SELECT p.position, p.id FROM (
    SELECT (
        SELECT oldest.id FROM (
            SELECT p.turn, p.id, p.expires_at FROM pending p
            WHERE p.bucket = :bucket AND p.endpoint_id = :endpoint_id AND p.part = walk.part
            ORDER BY p.turn, p.id LIMIT :scan_limit
        ) AS oldest
        WHERE oldest.expires_at > :alive_at ORDER BY oldest.turn, oldest.id LIMIT 1
    ) AS id
    FROM walk WHERE walk.part IS NOT NULL
) AS first JOIN pending p ON p.id = first.id ORDER BY p.position, p.id LIMIT 1;

-- name: probe_next
-- The next delivery after the last probed one that is within its window, among a bounded number.
SELECT id FROM (
    SELECT id, expires_at, order_seq FROM pending
    WHERE bucket = :bucket AND endpoint_id = :endpoint_id AND id > :after_id
    ORDER BY id LIMIT :scan_limit
) AS following
WHERE expires_at > :alive_at AND order_seq = 0 ORDER BY id LIMIT 1;

-- name: probe_tried
-- As probe_next, where blocked deliveries lie between the others: those that were attempted, of which
-- the one with the next id is chosen, else the one with the lowest.
SELECT id FROM (
    SELECT id, expires_at FROM pending
    WHERE bucket = :bucket AND endpoint_id = :endpoint_id AND part = 2
    ORDER BY turn, id LIMIT :scan_limit
) AS tried
WHERE expires_at > :alive_at
ORDER BY CASE WHEN id > :after_id THEN 0 ELSE 1 END, id LIMIT 1;

-- name: has_blocked
SELECT 1 FROM pending WHERE bucket = :bucket AND endpoint_id = :endpoint_id AND part < 0 LIMIT 1;

-- name: probe_take
-- The next probe time is on disk before the probe is sent: a crash never makes two.
UPDATE endpoint SET next_probe_at = :next_probe_at, probe_after_id = :probe_after_id
WHERE bucket = :bucket AND id = :id AND generation = :generation
RETURNING id;

-- name: expired_scan
-- The last row of a step, and the earliest end of a window in the future.
SELECT count(*), max(id), min(expires_at) FILTER (WHERE expires_at > :now) FROM (
    SELECT id, expires_at FROM pending
    WHERE bucket = :bucket AND endpoint_id = :endpoint_id AND id > :after_id
    ORDER BY id LIMIT :limit
) AS scanned;

-- name: expired_rows
-- The rows of that step whose window has ended.
SELECT {pending} FROM pending
WHERE bucket = :bucket AND endpoint_id = :endpoint_id AND id > :after_id AND id <= :upto_id AND expires_at <= :now
ORDER BY id;

-- name: endpoint_settle [sqlite]
-- Replaces an endpoint with the values of the settling process, unless its generation has changed. If it
-- was enabled, what is accepted later is fresh.
UPDATE endpoint SET
    state = :state, since = :since, enabled_since = :enabled_since, attempts = :attempts,
    failures = :failures, consecutive_failures = :consecutive_failures,
    first_attempt_at = :first_attempt_at, last_success_at = :last_success_at,
    manual_enable_at = :manual_enable_at, warned = :warned, next_probe_at = :next_probe_at,
    probe_after_id = :probe_after_id, hold_until = :hold_until,
    dropped_unreported = :dropped_unreported, dropped_reported_at = :dropped_reported_at,
    rule = :rule, failing = :failing,
    enabled_from = CASE WHEN enabled_since = :enabled_since THEN enabled_from
        ELSE (SELECT number + 1 FROM acceptance) END
WHERE id = :id AND generation = :generation AND bucket = :bucket
RETURNING id;

-- name: endpoint_settle [postgres]
UPDATE endpoint SET
    enabled_from = CASE WHEN endpoint.enabled_since = it.enabled_since THEN endpoint.enabled_from
        ELSE nextval('acceptance') END,
    state = it.state, since = it.since, enabled_since = it.enabled_since, attempts = it.attempts,
    failures = it.failures, consecutive_failures = it.consecutive_failures,
    first_attempt_at = it.first_attempt_at, last_success_at = it.last_success_at,
    manual_enable_at = it.manual_enable_at, warned = it.warned, next_probe_at = it.next_probe_at,
    probe_after_id = it.probe_after_id, hold_until = it.hold_until,
    dropped_unreported = it.dropped_unreported, dropped_reported_at = it.dropped_reported_at,
    rule = it.rule, failing = it.failing
FROM unnest(
    :state::text[], :since::bigint[], :enabled_since::bigint[], :attempts::bigint[],
    :failures::bigint[], :consecutive_failures::bigint[], :first_attempt_at::bigint[],
    :last_success_at::bigint[], :manual_enable_at::bigint[], :warned::integer[],
    :next_probe_at::bigint[], :probe_after_id::bigint[], :hold_until::bigint[],
    :dropped_unreported::bigint[], :dropped_reported_at::bigint[], :rule::text[], :failing::smallint[],
    :id::bigint[], :generation::bigint[], :bucket::smallint[]
) AS it (
    state, since, enabled_since, attempts, failures, consecutive_failures, first_attempt_at,
    last_success_at, manual_enable_at, warned, next_probe_at, probe_after_id, hold_until,
    dropped_unreported, dropped_reported_at, rule, failing, id, generation, bucket
)
WHERE endpoint.id = it.id AND endpoint.generation = it.generation
AND endpoint.bucket = it.bucket
RETURNING endpoint.id;

-- name: endpoint_guarded [sqlite]
-- Only for endpoints that passed the guard under other settings last, or are refused by new ones.
UPDATE endpoint SET guard_passed = :guard_passed, guard_refused_at = :guard_refused_at WHERE id = :id;

-- name: endpoint_guarded [postgres]
UPDATE endpoint SET guard_passed = it.guard_passed, guard_refused_at = it.guard_refused_at
FROM unnest(:guard_passed::bigint[], :guard_refused_at::bigint[], :id::bigint[])
    AS it (guard_passed, guard_refused_at, id)
WHERE endpoint.id = it.id;

-- name: pending_finish [sqlite]
-- Deletes finished rows. One that is not returned had been cancelled meanwhile.
DELETE FROM pending WHERE id IN (SELECT value FROM json_each(:ids))
AND bucket IN (SELECT value FROM json_each(:buckets)) RETURNING id;

-- name: pending_finish [postgres]
DELETE FROM pending WHERE id = ANY(:ids::bigint[])
AND bucket = ANY(:buckets::smallint[]) RETURNING id;

-- name: pending_wait [sqlite]
-- Replaces waiting rows. One that is not returned had been cancelled meanwhile, or had moved to a
-- bucket of another process and was attempted there, which makes the values here outdated.
UPDATE pending SET
    bucket = :bucket, tenant = :tenant, endpoint_id = :endpoint_id,
    subscription_id = :subscription_id, event_id = :event_id, root_id = :root_id,
    accepted_at = :accepted_at, part = :part, due_at = :due_at, expires_at = :expires_at, t0 = :t0,
    retry = :retry, attempts = :attempts, sender_errors = :sender_errors, replay = :replay,
    cause_id = :cause_id, paused_ms = :paused_ms, order_key = :order_key, order_seq = :order_seq,
    unblocked_at = :unblocked_at
WHERE id = :id AND attempts <= :attempts
RETURNING id;

-- name: pending_wait [postgres]
UPDATE pending SET
    bucket = it.bucket, tenant = it.tenant, endpoint_id = it.endpoint_id,
    subscription_id = it.subscription_id, event_id = it.event_id, root_id = it.root_id,
    accepted_at = it.accepted_at, part = it.part, due_at = it.due_at, expires_at = it.expires_at,
    t0 = it.t0, retry = it.retry, attempts = it.attempts, sender_errors = it.sender_errors,
    replay = it.replay, cause_id = it.cause_id, paused_ms = it.paused_ms, order_key = it.order_key,
    order_seq = it.order_seq, unblocked_at = it.unblocked_at
FROM unnest(
    :bucket::smallint[], :tenant::text[], :endpoint_id::bigint[], :subscription_id::bigint[],
    :event_id::bigint[], :root_id::bigint[], :accepted_at::bigint[], :part::smallint[],
    :due_at::bigint[], :expires_at::bigint[], :t0::bigint[], :retry::integer[],
    :attempts::integer[], :sender_errors::integer[], :replay::smallint[], :cause_id::bigint[],
    :paused_ms::bigint[], :order_key::text[], :order_seq::bigint[], :unblocked_at::bigint[], :id::bigint[]
) AS it (
    bucket, tenant, endpoint_id, subscription_id, event_id, root_id, accepted_at, part, due_at,
    expires_at, t0, retry, attempts, sender_errors, replay, cause_id, paused_ms, order_key,
    order_seq, unblocked_at, id
)
WHERE pending.id = it.id AND pending.attempts <= it.attempts
RETURNING pending.id;

-- name: history_arrived [sqlite]
-- A delivery that was cancelled while a successful attempt was in flight stays cancelled.
UPDATE history SET arrived = 1 WHERE id = :id AND status = 'cancelled';

-- name: history_arrived [postgres]
UPDATE history SET arrived = 1 WHERE id = ANY(:id::bigint[]) AND status = 'cancelled';

-- name: last_mark
-- The number of the last batch of a process; after a failover that lost commits, an earlier one.
SELECT number, fence FROM batch_mark WHERE node = :node AND kind = :kind;

-- name: mark_batch
INSERT INTO batch_mark (node, kind, number, fence) VALUES (:node, :kind, :number, :fence)
ON CONFLICT (node, kind) DO UPDATE SET number = excluded.number;

-- name: fence_raise [sqlite]
-- Waits for the batches of this node that are being written, and refuses those with an older number.
INSERT INTO batch_mark (node, kind, number, fence)
SELECT :node, kind, 0, (SELECT coalesce(max(fence), 0) + 1 FROM batch_mark WHERE node = :node)
FROM (SELECT 'publish' AS kind UNION ALL SELECT 'settle') WHERE true
ON CONFLICT (node, kind) DO UPDATE SET fence = excluded.fence RETURNING fence;

-- name: fence_raise [postgres]
INSERT INTO batch_mark (node, kind, number, fence)
SELECT :node::integer, kind, 0, (SELECT coalesce(max(fence), 0) + 1 FROM batch_mark WHERE node = :node::integer)
FROM unnest('{publish,settle}'::text[]) AS kind
ON CONFLICT (node, kind) DO UPDATE SET fence = excluded.fence RETURNING fence;

-- name: settled_already
-- Whether this batch was committed before, by a writer process that ended before it replied.
SELECT 1 FROM batch_mark WHERE node = :node AND kind = 'settle' AND number = :number;

-- name: settled_now
-- Stores the number of the batch in the same commit.
INSERT INTO batch_mark (node, kind, number) VALUES (:node, 'settle', :number)
ON CONFLICT (node, kind) DO UPDATE SET number = excluded.number;
