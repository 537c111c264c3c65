-- Notices to people: targets, records, messages. A transaction that creates or deletes a target raises
-- the version of the catalog, by which every process knows whether there are targets.

-- name: notice_targets_exist
SELECT id FROM notice_target WHERE deleted_at IS NULL AND tenant >= '' LIMIT 1;

-- name: notice_known
-- All records of a change are written together.
SELECT id FROM notice WHERE id = :id LIMIT 1;

-- name: notice_targets_for [sqlite]
-- The targets of these tenants that get notices, and how many records wait for each.
SELECT t.id, t.tenant, t.address_hash, t.kinds, (
    SELECT count(*) FROM (
        SELECT 1 FROM notice n WHERE n.target_id = t.id AND n.status = 'waiting' LIMIT :limit
    )
)
FROM notice_target t
WHERE t.tenant IN (SELECT value FROM json_each(:tenants))
AND t.confirmed_at IS NOT NULL AND t.deleted_at IS NULL
ORDER BY t.id;

-- name: notice_targets_for [postgres]
SELECT t.id, t.tenant, t.address_hash, t.kinds, (
    SELECT count(*) FROM (
        SELECT 1 FROM notice n WHERE n.target_id = t.id AND n.status = 'waiting' LIMIT :limit
    ) AS waiting
)
FROM notice_target t
WHERE t.tenant = ANY(:tenants::text[])
AND t.confirmed_at IS NOT NULL AND t.deleted_at IS NULL
ORDER BY t.id;

-- name: notice_overflow_add
INSERT INTO notice_overflow (target_id, node, kind, message_id, count)
VALUES (:target_id, :node, :kind, 0, :count)
ON CONFLICT (target_id, message_id, kind, node)
DO UPDATE SET count = notice_overflow.count + excluded.count;

-- name: notice_target_by_id
SELECT {notice_target} FROM notice_target WHERE id = :id AND deleted_at IS NULL;

-- name: notice_targets_page
SELECT {notice_target} FROM notice_target
WHERE deleted_at IS NULL AND id < :before_id ORDER BY id DESC LIMIT :limit;

-- name: notice_targets_page_of
SELECT {notice_target} FROM notice_target
WHERE tenant = :tenant AND deleted_at IS NULL AND id < :before_id ORDER BY id DESC LIMIT :limit;

-- name: notice_targets_all
-- For a new encryption key: deleted ones have no secrets any more.
SELECT {notice_target} FROM notice_target
WHERE id > :after_id AND deleted_at IS NULL ORDER BY id LIMIT :limit;

-- name: notice_targets_count
SELECT count(*) FROM notice_target WHERE tenant = :tenant AND deleted_at IS NULL;

-- name: notice_targets_created
SELECT count(*) FROM (
    SELECT 1 FROM notice_target WHERE tenant = :tenant AND created_at >= :since LIMIT :limit
) AS created;

-- name: notice_targets_with_address
SELECT count(*) FROM (
    SELECT 1 FROM notice_target
    WHERE address_hash = :address_hash AND tenant = :tenant AND created_at >= :since LIMIT :limit
) AS created;

-- name: notice_link_latest
SELECT max(created_at) FROM notice_target WHERE address_hash = :address_hash AND tenant = :tenant;

-- name: notice_link_again
UPDATE notice_target SET message_id = :message_id, due_at = 0, attempts = 0, error = ''
WHERE id = :id AND confirmed_at IS NULL AND deleted_at IS NULL RETURNING {notice_target};

-- name: notice_target_secret
UPDATE notice_target SET secret = :secret, secret_hash = :secret_hash
WHERE id = :id AND deleted_at IS NULL RETURNING id;

-- name: notice_target_change
UPDATE notice_target SET
    name = :name, kinds = :kinds, quiet_hours = :quiet_hours, time_zone = :time_zone,
    language = :language
WHERE id = :id AND deleted_at IS NULL RETURNING {notice_target};

-- name: notice_target_delete
-- The address and the secret are removed at once; the row stays for the limits of a day.
UPDATE notice_target SET deleted_at = :now, address = '', secret = '', message_id = 0
WHERE id = :id AND deleted_at IS NULL RETURNING id;

-- name: notice_target_confirm
UPDATE notice_target SET confirmed_at = :now, message_id = 0, due_at = 0, attempts = 0, error = ''
WHERE secret_hash = :secret_hash AND confirmed_at IS NULL AND deleted_at IS NULL
RETURNING {notice_target};

-- name: notice_target_reencrypt
-- Not if its secret was rotated meanwhile.
UPDATE notice_target SET address = :address, secret = :secret
WHERE id = :id AND secret = :old_secret AND deleted_at IS NULL;

-- name: notices_skip
-- The records of a deleted target.
UPDATE notice SET status = 'skipped', reason = :reason
WHERE target_id = :target_id AND status = 'waiting';

-- name: notice_overflow_remove
DELETE FROM notice_overflow WHERE target_id = :target_id;

-- name: notice_overflow_sent
DELETE FROM notice_overflow WHERE target_id = :target_id AND message_id = :message_id;

-- name: notice_targets_waiting
-- Targets with waiting records, found by seeks in the index: one for each target.
WITH RECURSIVE waiting (target_id) AS (
    SELECT min(target_id) FROM notice WHERE status = 'waiting' AND target_id > :after_id
    UNION ALL
    SELECT (
        SELECT min(n.target_id) FROM notice n
        WHERE n.status = 'waiting' AND n.target_id > waiting.target_id
    )
    FROM waiting WHERE waiting.target_id IS NOT NULL
)
SELECT {notice_target} FROM notice_target
WHERE id IN (SELECT target_id FROM waiting WHERE target_id IS NOT NULL LIMIT :limit)
AND deleted_at IS NULL
AND NOT EXISTS (SELECT 1 FROM tenant_move m WHERE m.tenant = notice_target.tenant AND m.step <> 'arrived')
ORDER BY id;

-- name: notice_targets_confirming
-- New e-mail targets that have not got their confirmation.
SELECT {notice_target} FROM notice_target
WHERE confirmed_at IS NULL AND deleted_at IS NULL AND message_id <> 0 AND id > :after_id
AND NOT EXISTS (SELECT 1 FROM tenant_move m WHERE m.tenant = notice_target.tenant AND m.step <> 'arrived')
ORDER BY id LIMIT :limit;

-- name: notice_target_tenant
SELECT tenant FROM notice_target WHERE id = :id;

-- name: notice_target_hold [sqlite]
SELECT message_id FROM notice_target WHERE id = :id AND deleted_at IS NULL;

-- name: notice_target_hold [postgres]
SELECT message_id FROM notice_target WHERE id = :id AND deleted_at IS NULL FOR UPDATE;

-- name: message_begin
UPDATE notice_target SET message_id = :message_id WHERE id = :id;

-- name: message_claim
-- The records that wait now belong to this message, for good.
UPDATE notice SET message_id = :message_id
WHERE target_id = :target_id AND id IN (
    SELECT id FROM notice WHERE target_id = :target_id AND status = 'waiting' ORDER BY id LIMIT :limit
);

-- name: message_claim_overflow
UPDATE notice_overflow SET message_id = :message_id
WHERE target_id = :target_id AND message_id = 0;

-- name: message_notices
SELECT {notice} FROM notice
WHERE target_id = :target_id AND status = 'waiting' AND message_id = :message_id ORDER BY id;

-- name: message_overflow
SELECT kind, sum(count) FROM notice_overflow
WHERE target_id = :target_id AND message_id = :message_id GROUP BY kind;

-- name: message_sent
UPDATE notice SET status = 'sent', sent_at = :now
WHERE target_id = :target_id AND message_id = :message_id AND status = 'waiting';

-- name: message_end
-- The message that was being sent has arrived.
UPDATE notice_target SET
    message_id = 0, due_at = :due_at, attempts = 0, error = '', sent_at = :now
WHERE id = :id AND message_id = :message_id;

-- name: message_failed
UPDATE notice_target SET attempts = attempts + 1, error = :error, due_at = :due_at
WHERE id = :id AND message_id = :message_id;

-- name: notices_page
SELECT {notice} FROM notice
WHERE id < :before_id ORDER BY id DESC, target_id DESC LIMIT :limit;

-- name: notices_page_of_owner
SELECT {notice} FROM notice
WHERE owner = :owner AND id < :before_id ORDER BY id DESC, target_id DESC LIMIT :limit;

-- name: notices_page_of_target
SELECT {notice} FROM notice
WHERE target_id = :target_id AND id < :before_id ORDER BY id DESC LIMIT :limit;

-- name: reminders_begin
-- Nothing that happened before the first target is reminded of.
INSERT INTO notice_reminder (days, upto_id) VALUES (:days, :upto_id)
ON CONFLICT (days) DO UPDATE SET upto_id = excluded.upto_id
WHERE notice_reminder.upto_id < excluded.upto_id;

-- name: reminders_upto [sqlite]
SELECT upto_id FROM notice_reminder WHERE days = :days;

-- name: reminders_upto [postgres]
SELECT upto_id FROM notice_reminder WHERE days = :days FOR UPDATE;

-- name: reminders_move
UPDATE notice_reminder SET upto_id = :upto_id WHERE days = :days;

-- name: reminders_scan
-- Transitions that happened so long ago, with the present state of their endpoint. Another
-- transition after it means that its state has ended.
SELECT t.id, t.after, t.at, e.id, e.tenant, e.url, EXISTS (
    SELECT 1 FROM transition later WHERE later.endpoint_id = t.endpoint_id AND later.id > t.id
)
FROM transition t LEFT JOIN endpoint e ON e.id = t.endpoint_id
WHERE t.id > :after_id AND t.id < :bound_id ORDER BY t.id LIMIT :limit;

-- name: notices_remove
-- Records past retention, sent or not.
DELETE FROM notice WHERE id < :bound_id AND (target_id, id) IN (
    SELECT target_id, id FROM notice WHERE id < :bound_id ORDER BY id LIMIT :limit
) RETURNING id;

-- name: notice_targets_remove
DELETE FROM notice_target WHERE id IN (
    SELECT id FROM notice_target WHERE deleted_at < :before ORDER BY deleted_at LIMIT :limit
) RETURNING id;
