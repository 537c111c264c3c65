-- The search of people: seeks alone, except for a part of a URL, which scans a bounded number of
-- endpoints. A search over all tenants walks their names, one seek each, up to a limit.

-- name: search_event_tenants
-- The first tenants with events.
WITH RECURSIVE walk (tenant) AS (
    SELECT min(tenant) FROM event_key
    UNION ALL
    SELECT (SELECT min(k.tenant) FROM event_key k WHERE k.tenant > walk.tenant)
    FROM walk WHERE walk.tenant IS NOT NULL
)
SELECT tenant FROM walk WHERE tenant IS NOT NULL LIMIT :limit;

-- name: search_events [sqlite]
-- Events by their ids, without their data.
SELECT e.id, e.tenant, e.key, e.type, e.accepted_at, e.position
FROM event_key k JOIN event e ON e.id = k.event_id
WHERE k.tenant = :tenant AND k.key = :key;

-- name: search_events [postgres]
SELECT e.id, e.tenant, e.key, e.type, e.accepted_at, e.position
FROM unnest(:tenant::text[], :key::text[]) AS asked (tenant, key)
JOIN event_key k ON k.tenant = asked.tenant AND k.key = asked.key
JOIN event e ON e.id = k.event_id;

-- name: search_field_tenants
-- The first tenants with an event that has this value.
WITH RECURSIVE walk (tenant) AS (
    SELECT min(tenant) FROM event_field WHERE hash = :hash
    UNION ALL
    SELECT (SELECT min(f.tenant) FROM event_field f WHERE f.hash = :hash AND f.tenant > walk.tenant)
    FROM walk WHERE walk.tenant IS NOT NULL
)
SELECT tenant FROM walk WHERE tenant IS NOT NULL LIMIT :limit;

-- name: search_field_events
-- The newest events of a tenant that have this value.
SELECT e.id, e.tenant, e.key, e.type, e.accepted_at, e.position
FROM (
    SELECT event_id FROM event_field
    WHERE hash = :hash AND tenant = :tenant
    ORDER BY event_id DESC LIMIT :limit
) AS newest JOIN event e ON e.id = newest.event_id;

-- name: search_endpoint_tenants
-- The first tenants with endpoints.
WITH RECURSIVE walk (tenant) AS (
    SELECT min(tenant) FROM endpoint
    UNION ALL
    SELECT (SELECT min(e.tenant) FROM endpoint e WHERE e.tenant > walk.tenant)
    FROM walk WHERE walk.tenant IS NOT NULL
)
SELECT tenant FROM walk WHERE tenant IS NOT NULL LIMIT :limit;

-- name: search_urls [sqlite]
SELECT {endpoint} FROM endpoint WHERE tenant = :tenant AND url = :url;

-- name: search_urls [postgres]
SELECT {endpoint:e} FROM unnest(:tenant::text[], :url::text[]) AS asked (tenant, url)
JOIN endpoint e ON e.tenant = asked.tenant AND e.url = asked.url;

-- name: search_url_parts [sqlite]
-- Endpoints of all tenants with this text in their URL, among the newest few thousand.
SELECT {endpoint:e} FROM (
    SELECT id FROM (SELECT id, url FROM endpoint ORDER BY id DESC LIMIT :scan_limit)
    WHERE instr(lower(url), :text) > 0 LIMIT :limit
) AS found CROSS JOIN endpoint e ON e.id = found.id;

-- name: search_url_parts [postgres]
SELECT {endpoint:e} FROM (
    SELECT id FROM (SELECT id, url FROM endpoint ORDER BY id DESC LIMIT :scan_limit) AS scanned
    WHERE strpos(lower(url), :text) > 0 LIMIT :limit
) AS found JOIN endpoint e ON e.id = found.id;

-- name: search_url_parts_of_tenant [sqlite]
-- The same for one tenant, from the index by tenant and URL alone.
SELECT {endpoint:e} FROM (
    SELECT id FROM (SELECT id, url FROM endpoint WHERE tenant = :tenant LIMIT :scan_limit)
    WHERE instr(lower(url), :text) > 0 LIMIT :limit
) AS found CROSS JOIN endpoint e ON e.id = found.id;

-- name: search_url_parts_of_tenant [postgres]
SELECT {endpoint:e} FROM (
    SELECT id FROM (SELECT id, url FROM endpoint WHERE tenant = :tenant LIMIT :scan_limit) AS scanned
    WHERE strpos(lower(url), :text) > 0 LIMIT :limit
) AS found JOIN endpoint e ON e.id = found.id;

-- name: search_endpoint_count
SELECT count(*) FROM (SELECT 1 FROM endpoint LIMIT :limit) AS counted;
