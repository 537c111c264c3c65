-- Reads of the dashboard. Every statement scans a bounded number of rows.

-- name: board_enabled
SELECT count(*) FROM (
    SELECT 1 FROM endpoint
    WHERE state = 'enabled' AND (CAST(:tenant AS text) IS NULL OR tenant = :tenant) LIMIT :limit
) AS counted;

-- name: board_held
SELECT state, count(*) FROM (
    SELECT state FROM endpoint
    WHERE state <> 'enabled' AND (CAST(:tenant AS text) IS NULL OR tenant = :tenant) LIMIT :limit
) AS counted GROUP BY state;

-- name: board_pending
SELECT part, count(*) FROM (SELECT part FROM pending LIMIT :limit) AS counted GROUP BY part;

-- name: board_pending_of_tenant [sqlite]
SELECT part, count(*) FROM (
    SELECT p.part FROM endpoint e CROSS JOIN pending p
    WHERE e.tenant = :tenant AND p.endpoint_id = e.id LIMIT :limit
) AS counted GROUP BY part;

-- name: board_pending_of_tenant [postgres]
SELECT part, count(*) FROM (
    SELECT p.part FROM endpoint e
    CROSS JOIN LATERAL (SELECT part FROM pending WHERE endpoint_id = e.id OFFSET 0) AS p
    WHERE e.tenant = :tenant LIMIT :limit
) AS counted GROUP BY part;

-- name: board_expiring
-- The oldest pending deliveries are the next to expire.
SELECT p.endpoint_id, e.url, e.tenant, e.state, count(*), min(p.expires_at)
FROM (SELECT endpoint_id, expires_at FROM pending ORDER BY id LIMIT :limit) AS p
JOIN endpoint e ON e.id = p.endpoint_id
WHERE p.expires_at < :before AND (CAST(:tenant AS text) IS NULL OR e.tenant = :tenant)
GROUP BY p.endpoint_id, e.url, e.tenant, e.state
ORDER BY min(p.expires_at);

-- name: board_endpoints [sqlite]
-- The newest few thousand that match, in the requested order.
SELECT {endpoint} FROM (
    SELECT * FROM endpoint
    WHERE (CAST(:tenant AS text) IS NULL OR tenant = :tenant) AND (:state IS NULL OR state = :state)
    AND (:text = '' OR instr(lower(url), :text) > 0)
    ORDER BY id DESC LIMIT :scan_limit
)
ORDER BY
    CASE :sort WHEN 'failing' THEN -consecutive_failures
        WHEN 'rate' THEN -1000 * failures / max(attempts, 1)
        WHEN 'success' THEN coalesce(last_success_at, 0)
        WHEN 'newest' THEN -id ELSE 0 END,
    CASE WHEN :sort = 'url' THEN url ELSE '' END, id DESC
LIMIT :limit OFFSET :offset;

-- name: board_endpoints [postgres]
SELECT {endpoint} FROM (
    SELECT * FROM endpoint
    WHERE (:tenant::text IS NULL OR tenant = :tenant) AND (:state::text IS NULL OR state = :state)
    AND (:text::text = '' OR strpos(lower(url), :text) > 0)
    ORDER BY id DESC LIMIT :scan_limit
) AS scanned
ORDER BY
    CASE :sort::text WHEN 'failing' THEN -consecutive_failures
        WHEN 'rate' THEN -1000 * failures / greatest(attempts, 1)
        WHEN 'success' THEN coalesce(last_success_at, 0)
        WHEN 'newest' THEN -id ELSE 0 END,
    CASE WHEN :sort::text = 'url' THEN url ELSE '' END, id DESC
LIMIT :limit OFFSET :offset;

-- name: board_waiting [sqlite]
SELECT e.value, (SELECT count(*) FROM (
    SELECT 1 FROM pending WHERE endpoint_id = e.value LIMIT :limit
)) FROM json_each(:ids) e;

-- name: board_waiting [postgres]
SELECT e.id, (SELECT count(*) FROM (
    SELECT 1 FROM pending WHERE endpoint_id = e.id LIMIT :limit
) AS counted) FROM unnest(:ids::bigint[]) AS e (id);

-- name: store_bytes [sqlite]
SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size();

-- name: store_bytes [postgres]
SELECT pg_database_size(current_database());
