-- The clock mark, and the move of stored times after the clock was set.

-- name: clock_mark
SELECT steady_ms, clock_ms, wall_ms, boot_id, boot_ms, synchronised, apart, since_ms,
    moving, move_by_ms, move_from_ms, moved_upto
FROM clock_mark;

-- name: clock_mark_hold [sqlite]
-- Two processes that move times do so one after the other.
SELECT steady_ms, clock_ms, wall_ms, boot_id, boot_ms, synchronised, apart, since_ms,
    moving, move_by_ms, move_from_ms, moved_upto
FROM clock_mark;

-- name: clock_mark_hold [postgres]
SELECT steady_ms, clock_ms, wall_ms, boot_id, boot_ms, synchronised, apart, since_ms,
    moving, move_by_ms, move_from_ms, moved_upto
FROM clock_mark
FOR UPDATE;

-- name: clock_mark_set
UPDATE clock_mark SET steady_ms = :steady_ms, clock_ms = :clock_ms, wall_ms = :wall_ms,
    boot_id = :boot_id, boot_ms = :boot_ms, synchronised = :synchronised, apart = :apart;

-- name: clock_mark_begin
UPDATE clock_mark SET steady_ms = :steady_ms, clock_ms = :clock_ms, wall_ms = :wall_ms,
    boot_id = :boot_id, boot_ms = :boot_ms, synchronised = :synchronised, apart = :apart,
    since_ms = :since_ms, moving = :moving, move_by_ms = :move_by_ms, move_from_ms = :move_from_ms, moved_upto = 0;

-- name: clock_move_on
UPDATE clock_mark SET moving = :moving, moved_upto = :moved_upto;

-- name: newest_acceptance
-- When the newest event was accepted. Steady time was at least that.
SELECT accepted_at FROM event ORDER BY id DESC LIMIT 1;

-- name: move_endpoint_step
-- The last row of one step.
SELECT count(*), coalesce(max(id), 0) FROM (
    SELECT id FROM endpoint WHERE id > :after_id ORDER BY id LIMIT :limit
) AS step;

-- name: move_endpoint
UPDATE endpoint SET
    since = since + CASE WHEN since >= :from_ms THEN :by_ms ELSE 0 END,
    enabled_since = enabled_since + CASE WHEN enabled_since >= :from_ms THEN :by_ms ELSE 0 END,
    first_attempt_at = first_attempt_at
        + CASE WHEN first_attempt_at >= :from_ms THEN :by_ms ELSE 0 END,
    last_success_at = last_success_at
        + CASE WHEN last_success_at >= :from_ms THEN :by_ms ELSE 0 END,
    manual_enable_at = manual_enable_at
        + CASE WHEN manual_enable_at >= :from_ms THEN :by_ms ELSE 0 END,
    next_probe_at = next_probe_at + CASE WHEN next_probe_at >= :from_ms THEN :by_ms ELSE 0 END,
    hold_until = hold_until + CASE WHEN hold_until >= :from_ms THEN :by_ms ELSE 0 END,
    dropped_reported_at = dropped_reported_at
        + CASE WHEN dropped_reported_at >= :from_ms THEN :by_ms ELSE 0 END
WHERE id > :after_id AND id <= :upto_id;

-- name: move_pending_step
SELECT count(*), coalesce(max(id), 0) FROM (
    SELECT id FROM pending WHERE id > :after_id ORDER BY id LIMIT :limit
) AS step;

-- name: move_pending
-- The window is counted from t0, or if nothing has failed yet from acceptance, or from when it was
-- unblocked (below 0: after a drop). A due time is counted from there, too, but it may also have been
-- moved since.
UPDATE pending SET
    accepted_at = accepted_at + CASE WHEN accepted_at >= :from_ms THEN :by_ms ELSE 0 END,
    due_at = due_at + CASE WHEN coalesce(t0, due_at) >= :from_ms THEN :by_ms ELSE 0 END,
    expires_at = expires_at
        + CASE WHEN coalesce(t0, nullif(abs(unblocked_at), 0), accepted_at) >= :from_ms
            THEN :by_ms ELSE 0 END,
    t0 = t0 + CASE WHEN t0 >= :from_ms THEN :by_ms ELSE 0 END,
    unblocked_at = unblocked_at + CASE
        WHEN unblocked_at >= :from_ms THEN :by_ms WHEN -unblocked_at >= :from_ms THEN - :by_ms ELSE 0 END
WHERE id > :after_id AND id <= :upto_id
AND (accepted_at >= :from_ms OR due_at >= :from_ms OR t0 >= :from_ms OR abs(unblocked_at) >= :from_ms);

-- name: move_subscription_step
-- Only subscriptions that are or were paused have a time that moves.
SELECT count(*), coalesce(max(id), 0) FROM (
    SELECT id FROM subscription WHERE id > :after_id AND settings LIKE '%"pauses":%' ORDER BY id LIMIT :limit
) AS step;

-- name: paused_settings
SELECT id, settings FROM subscription
WHERE id > :after_id AND id <= :upto_id AND settings LIKE '%"pauses":%' ORDER BY id;

-- name: move_subscription
UPDATE subscription SET settings = :settings WHERE id = :id;
