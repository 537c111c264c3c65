-- The customer portal: links, their sessions, and how each tenant's portal looks.

-- name: portal_link_by_id
SELECT {portal_link} FROM portal_link WHERE id = :id;

-- name: portal_links_live
-- Counted up to a limit. Uses the index portal_link_live.
SELECT count(*) FROM (
    SELECT 1 FROM portal_link WHERE tenant = :tenant AND ends_at > :now LIMIT :limit
) AS live;

-- name: portal_links_past
-- A bounded number of links that ended long ago. Uses the index portal_link_ends.
DELETE FROM portal_link WHERE id IN (
    SELECT id FROM portal_link WHERE ends_at < :before ORDER BY ends_at LIMIT :limit);

-- name: portal_link_open
-- Once, and in time: of two that open a link at the same moment, one finds no row.
UPDATE portal_link SET opened_at = :now, session_hash = :session_hash,
    session_until = :now + session_ms, ends_at = :now + session_ms
WHERE id = :id AND hash = :given_hash AND opened_at IS NULL AND revoked_at IS NULL AND opens_until > :now
RETURNING {portal_link};

-- name: portal_link_revoke
UPDATE portal_link SET revoked_at = :now, ends_at = CASE WHEN ends_at < :now THEN ends_at ELSE :now END
WHERE id = :id AND revoked_at IS NULL RETURNING {portal_link};

-- name: portal_links_revoke_of
-- Uses the index portal_link_live.
UPDATE portal_link SET revoked_at = :now, ends_at = :now
WHERE tenant = :tenant AND ends_at > :now AND revoked_at IS NULL RETURNING id;

-- name: portal_links_page
SELECT {portal_link} FROM portal_link WHERE id < :before_id ORDER BY id DESC LIMIT :limit;

-- name: portal_links_page_of
-- Uses the index portal_link_tenant.
SELECT {portal_link} FROM portal_link WHERE tenant = :tenant AND id < :before_id ORDER BY id DESC LIMIT :limit;

-- name: portal_settings_of
SELECT {portal_settings} FROM portal_settings WHERE tenant = :tenant;

-- name: portal_logo_of
SELECT logo_type, logo FROM portal_settings WHERE tenant = :tenant AND logo IS NOT NULL;

-- name: portal_settings_set
INSERT INTO portal_settings ({portal_settings}, logo)
VALUES (:tenant, :name, :accent_color, :header_color, :theme, :frame_ancestors, :logo_type, :logo_digest,
    :logo_bytes, :updated_at, :logo)
ON CONFLICT (tenant) DO UPDATE SET name = excluded.name, accent_color = excluded.accent_color,
    header_color = excluded.header_color, theme = excluded.theme,
    frame_ancestors = excluded.frame_ancestors, logo_type = excluded.logo_type,
    logo_digest = excluded.logo_digest, logo_bytes = excluded.logo_bytes,
    updated_at = excluded.updated_at, logo = excluded.logo;

-- name: erase_portal_links_of
-- All of them are revoked when a tenant is erased. Uses the index portal_link_tenant.
DELETE FROM portal_link WHERE id IN (
    SELECT id FROM portal_link WHERE tenant = :tenant ORDER BY id LIMIT :limit
) RETURNING id;

-- name: erase_portal_settings_of
DELETE FROM portal_settings WHERE tenant = :tenant;
