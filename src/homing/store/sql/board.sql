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

-- name: board_unfinished
-- How many deliveries are pending, from the sums of the ledger: a few rows per tenant.
SELECT CAST(coalesce(sum(accepted - delivered - dropped - cancelled), 0) AS BIGINT) FROM ledger;

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
-- The newest few thousand that match, in the requested order. By attention: frozen, disabled, failing,
-- the others; within each, those with the most failures in a row.
SELECT {endpoint} FROM (
    SELECT * FROM endpoint
    WHERE (CAST(:tenant AS text) IS NULL OR tenant = :tenant) AND (:state IS NULL OR state = :state)
    AND (:text = '' OR instr(lower(url), :text) > 0)
    ORDER BY id DESC LIMIT :scan_limit
)
ORDER BY
    CASE WHEN :sort = 'attention' THEN
        CASE WHEN state = 'frozen' THEN 0 WHEN state = 'disabled' THEN 1
            WHEN consecutive_failures > 0 THEN 2 ELSE 3 END ELSE 0 END,
    CASE :sort WHEN 'failing' THEN -consecutive_failures WHEN 'attention' THEN -consecutive_failures
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
    CASE WHEN :sort::text = 'attention' THEN
        CASE WHEN state = 'frozen' THEN 0 WHEN state = 'disabled' THEN 1
            WHEN consecutive_failures > 0 THEN 2 ELSE 3 END ELSE 0 END,
    CASE :sort::text WHEN 'failing' THEN -consecutive_failures WHEN 'attention' THEN -consecutive_failures
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

-- name: board_first_expiry [sqlite]
-- The oldest pending delivery of each endpoint. Uses the index pending_endpoint.
SELECT e.value, (
    SELECT expires_at FROM pending WHERE endpoint_id = e.value ORDER BY id LIMIT 1
) FROM json_each(:ids) e;

-- name: board_first_expiry [postgres]
SELECT e.id, (
    SELECT expires_at FROM pending WHERE endpoint_id = e.id ORDER BY id LIMIT 1
) FROM unnest(:ids::bigint[]) AS e (id);

-- name: board_endpoints_by_id [sqlite]
SELECT {endpoint} FROM endpoint WHERE id IN (SELECT value FROM json_each(:ids));

-- name: board_endpoints_by_id [postgres]
SELECT {endpoint} FROM endpoint WHERE id = ANY(:ids::bigint[]);

-- name: board_failing
-- Open causes of enabled endpoints, among the newest few thousand. Uses the index cause_open.
SELECT {cause:c}, e.url, e.state FROM (
    SELECT * FROM cause WHERE closed_at IS NULL ORDER BY id DESC LIMIT :scan_limit
) AS c JOIN endpoint e ON e.id = c.endpoint_id
WHERE e.state = 'enabled' ORDER BY c.id DESC LIMIT :limit;

-- name: board_failing_of_tenant
-- Uses the index cause_open_tenant.
SELECT {cause:c}, e.url, e.state FROM (
    SELECT * FROM cause WHERE tenant = :tenant AND closed_at IS NULL ORDER BY id DESC LIMIT :scan_limit
) AS c JOIN endpoint e ON e.id = c.endpoint_id
WHERE e.state = 'enabled' ORDER BY c.id DESC LIMIT :limit;

-- name: board_ended
-- The causes that were closed last. Uses the index cause_closed.
SELECT {cause:c}, coalesce(e.url, ''), coalesce(e.state, 'enabled') FROM (
    SELECT * FROM cause WHERE closed_at >= :since ORDER BY closed_at DESC LIMIT :limit
) AS c LEFT JOIN endpoint e ON e.id = c.endpoint_id ORDER BY c.closed_at DESC, c.id DESC;

-- name: board_ended_of_tenant
-- Uses the index cause_closed_tenant.
SELECT {cause:c}, coalesce(e.url, ''), coalesce(e.state, 'enabled') FROM (
    SELECT * FROM cause WHERE tenant = :tenant AND closed_at >= :since
    ORDER BY closed_at DESC LIMIT :limit
) AS c LEFT JOIN endpoint e ON e.id = c.endpoint_id ORDER BY c.closed_at DESC, c.id DESC;

-- name: store_bytes [sqlite]
SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size();

-- name: store_bytes [postgres]
SELECT pg_database_size(current_database());
