-- The audit log. Entries are only added; retention removes whole segments. A list first reads a bounded
-- number of rows without their values, and then the whole rows that it shows.

-- name: audit_scan
SELECT id, at, tenant, key_id, who, person, action, object FROM audit_entry
WHERE id < :before_id AND id >= :from_id
ORDER BY id DESC LIMIT :scan_limit;

-- name: audit_scan_of_tenant
-- Uses the index audit_entry_tenant.
SELECT id, at, tenant, key_id, who, person, action, object FROM audit_entry
WHERE tenant = :tenant AND id < :before_id AND id >= :from_id
ORDER BY id DESC LIMIT :scan_limit;

-- name: audit_scan_of_object
-- Uses the index audit_entry_object.
SELECT id, at, tenant, key_id, who, person, action, object FROM audit_entry
WHERE object = :object AND id < :before_id AND id >= :from_id
ORDER BY id DESC LIMIT :scan_limit;

-- name: audit_entries [sqlite]
SELECT {audit_entry} FROM audit_entry
WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id DESC;

-- name: audit_entries [postgres]
SELECT {audit_entry} FROM audit_entry WHERE id = ANY(:ids::bigint[]) ORDER BY id DESC;

-- name: audit_last_id
SELECT coalesce(max(id), 0) FROM audit_entry;

-- name: audit_entries_of
-- Uses the index audit_entry_segment; segment 0 holds the entries that are in none yet.
SELECT {audit_entry} FROM audit_entry
WHERE segment = :segment AND id > :after_id ORDER BY id LIMIT :limit;

-- name: audit_head
SELECT last, last_hash, removed, removed_hash, removed_entries, mac, damaged
FROM audit_head WHERE id = 1;

-- name: audit_head_move
-- Only if no other process has moved it.
UPDATE audit_head SET last = :last, last_hash = :last_hash, removed = :removed,
    removed_hash = :removed_hash, removed_entries = :removed_entries, mac = :mac,
    damaged = :damaged
WHERE id = 1 AND last = :seen_last AND removed = :seen_removed
RETURNING last;

-- name: audit_log_key
SELECT log_key FROM audit_head WHERE id = 1;

-- name: audit_log_key_set [sqlite]
UPDATE audit_head SET log_key = :log_key WHERE id = 1 AND log_key IS :seen RETURNING id;

-- name: audit_log_key_set [postgres]
UPDATE audit_head SET log_key = :log_key
WHERE id = 1 AND log_key IS NOT DISTINCT FROM :seen::text RETURNING id;

-- name: audit_head_sign
-- The first head, if it has no signature.
UPDATE audit_head SET mac = :mac WHERE id = 1 AND length(mac) = 0;

-- name: audit_entries_join [sqlite]
-- Put entries into their segment; one that is in a segment already stays there.
UPDATE audit_entry SET segment = :segment
WHERE id IN (SELECT value FROM json_each(:ids)) AND segment = 0 RETURNING id;

-- name: audit_entries_join [postgres]
UPDATE audit_entry SET segment = :segment
WHERE id = ANY(:ids::bigint[]) AND segment = 0 RETURNING id;

-- name: audit_segments
SELECT {audit_segment} FROM audit_segment WHERE number > :after ORDER BY number LIMIT :limit;

-- name: audit_entries_remove
DELETE FROM audit_entry WHERE segment = :segment RETURNING id;

-- name: audit_segment_remove
DELETE FROM audit_segment WHERE number = :number;

-- name: audit_strays
-- Uses the index audit_entry_segment; one statement, so that a new segment is seen with its entries.
SELECT id FROM (
    SELECT id FROM audit_entry
    WHERE segment > (SELECT last FROM audit_head WHERE id = 1) LIMIT :limit
) AS beyond
UNION ALL
SELECT id FROM (SELECT id FROM audit_entry WHERE segment < 0 LIMIT :limit) AS below
UNION ALL
SELECT id FROM (
    SELECT id FROM audit_entry
    WHERE segment > 0 AND segment <= (SELECT removed FROM audit_head WHERE id = 1) LIMIT :limit
) AS removed;

-- name: form_use
-- A form that is used once: its first submit is kept. A submit at the same time waits for the commit.
INSERT INTO form_use (once, submit, used_at) VALUES (:once, :submit, :used_at)
ON CONFLICT (once) DO NOTHING;

-- name: form_submit
SELECT submit FROM form_use WHERE once = :once;

-- name: forms_past
-- A bounded number of forms that are too old to be sent again.
DELETE FROM form_use WHERE once IN (
    SELECT once FROM form_use WHERE used_at < :before ORDER BY used_at LIMIT :limit);
