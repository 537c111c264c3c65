-- Lists and single objects, besides the lists of deliveries. Every list scans a bounded number of rows.

-- name: ping
SELECT 1;

-- name: view_events
-- Without the data, which is read only for the events that a page shows.
SELECT id, tenant, type, octet_length(data), position FROM event
WHERE id < :before_id
ORDER BY id DESC LIMIT :scan_limit;

-- name: view_events_whole [sqlite]
SELECT {event} FROM event WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id DESC;

-- name: view_events_whole [postgres]
SELECT {event} FROM event WHERE id = ANY(:ids::bigint[]) ORDER BY id DESC;

-- name: view_event
SELECT {event:e}, e.position FROM event_key k JOIN event e ON e.id = k.event_id
WHERE k.tenant = :tenant AND k.key = :key;

-- name: view_subscriptions
SELECT {subscription} FROM subscription
WHERE id < :before_id
ORDER BY id DESC LIMIT :scan_limit;

-- name: view_subscriptions_of_tenant
-- Uses the index subscription_tenant.
SELECT {subscription} FROM subscription
WHERE tenant = :tenant AND deleted_at IS NULL AND id < :before_id
ORDER BY id DESC LIMIT :scan_limit;

-- name: view_subscriptions_to
-- Uses the index subscription_living.
SELECT {subscription} FROM subscription
WHERE endpoint_id = :endpoint_id AND deleted_at IS NULL
ORDER BY id DESC LIMIT :limit;

-- name: view_endpoints
SELECT {endpoint} FROM endpoint
WHERE id < :before_id
ORDER BY id DESC LIMIT :scan_limit;

-- name: view_endpoints_held
-- Disabled or frozen endpoints. Uses the index endpoint_held.
SELECT {endpoint} FROM endpoint
WHERE state = :state AND state <> 'enabled' AND id < :before_id
ORDER BY id DESC LIMIT :scan_limit;

-- name: view_endpoints_of_tenant
-- For a tenant with few endpoints. "+" keeps the planner on the index by tenant.
SELECT {endpoint} FROM endpoint
WHERE tenant = :tenant AND +id < :before_id
ORDER BY +id DESC LIMIT :scan_limit;

-- name: view_endpoints_refused
-- Those that changed settings of the guard refuse. Uses the index endpoint_refused.
SELECT {endpoint} FROM endpoint
WHERE guard_refused_at > 0 AND guard_refused_at >= :since
ORDER BY guard_refused_at DESC LIMIT :limit;

-- name: view_endpoint_count
-- How many endpoints a tenant has, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM endpoint WHERE tenant = :tenant LIMIT :limit) AS counted;

-- name: view_endpoint
SELECT {endpoint} FROM endpoint WHERE id = :id;

-- name: view_waiting
SELECT count(*) FROM (
    SELECT 1 FROM pending WHERE endpoint_id = :endpoint_id LIMIT :limit
) AS counted;

-- name: view_transitions
SELECT {transition} FROM transition
WHERE endpoint_id = :endpoint_id AND id < :before_id
ORDER BY id DESC LIMIT :scan_limit;

-- name: view_attempts
SELECT {attempt} FROM attempt WHERE delivery_id = :delivery_id ORDER BY number LIMIT :limit;

-- name: view_last_failures [sqlite]
-- The last attempt of each of these deliveries, if it failed: one seek per delivery.
SELECT a.delivery_id, a.code, a.failure, a.detail
FROM json_each(:ids) i CROSS JOIN attempt a
WHERE a.delivery_id = i.value AND a.outcome <> 'delivered'
  AND a.number = (SELECT max(number) FROM attempt WHERE delivery_id = i.value);

-- name: view_last_failures [postgres]
SELECT i.id, a.code, a.failure, a.detail
FROM unnest(:ids::bigint[]) AS i (id) CROSS JOIN LATERAL (
    SELECT outcome, code, failure, detail FROM attempt
    WHERE delivery_id = i.id ORDER BY number DESC LIMIT 1
) AS a
WHERE a.outcome <> 'delivered';

-- name: view_ledger
-- Sums and pending rows of one snapshot. The last column says whether all pending rows were counted.
WITH waiting AS MATERIALIZED (SELECT tenant FROM pending LIMIT :limit)
SELECT l.tenant, CAST(sum(l.accepted) AS BIGINT), CAST(sum(l.delivered) AS BIGINT),
       CAST(sum(l.dropped) AS BIGINT), CAST(sum(l.cancelled) AS BIGINT), CAST(sum(l.superseded) AS BIGINT),
       coalesce(max(w.n), 0),
       (SELECT count(*) FROM waiting)
FROM ledger l
LEFT JOIN (SELECT tenant, count(*) AS n FROM waiting GROUP BY tenant) AS w ON w.tenant = l.tenant
GROUP BY l.tenant
ORDER BY l.tenant;

-- name: view_ledger_of_tenant [sqlite]
-- The same for one tenant, whose pending rows are found through its endpoints.
WITH waiting AS (
    SELECT count(*) AS n FROM (
        SELECT 1 FROM endpoint e CROSS JOIN pending p
        WHERE e.tenant = :tenant AND p.endpoint_id = e.id
        LIMIT :limit
    ) AS counted
)
SELECT l.tenant, sum(l.accepted), sum(l.delivered), sum(l.dropped), sum(l.cancelled),
       sum(l.superseded), max(w.n), max(w.n)
FROM ledger l CROSS JOIN waiting w
WHERE l.tenant = :tenant
GROUP BY l.tenant;

-- name: view_ledger_of_tenant [postgres]
-- "OFFSET 0" keeps the planner on one seek per endpoint.
WITH waiting AS (
    SELECT count(*) AS n FROM (
        SELECT 1 FROM endpoint e
        CROSS JOIN LATERAL (SELECT 1 FROM pending WHERE endpoint_id = e.id OFFSET 0) AS p
        WHERE e.tenant = :tenant
        LIMIT :limit
    ) AS counted
)
SELECT l.tenant, sum(l.accepted)::bigint, sum(l.delivered)::bigint, sum(l.dropped)::bigint,
       sum(l.cancelled)::bigint, sum(l.superseded)::bigint, max(w.n), max(w.n)
FROM ledger l CROSS JOIN waiting w
WHERE l.tenant = :tenant
GROUP BY l.tenant;

-- name: view_pending_of_tenant
-- One row per process that ever wrote for the tenant. Publishing reads this if there is a quota.
SELECT CAST(coalesce(sum(accepted - delivered - dropped - cancelled - superseded), 0) AS BIGINT)
FROM ledger WHERE tenant = :tenant;

-- name: view_subscription_count
-- Without those that send an old version of another one for five minutes.
SELECT count(*) FROM (
    SELECT 1 FROM subscription WHERE tenant = :tenant AND deleted_at IS NULL
    AND (workfront IS NULL OR workfront LIKE '%"twin_of":null%') LIMIT :limit
) AS counted;

-- name: view_causes
SELECT {cause:c}, coalesce(e.url, ''), coalesce(e.state, 'enabled') FROM (
    SELECT * FROM cause WHERE id < :before_id ORDER BY id DESC LIMIT :scan_limit
) AS c LEFT JOIN endpoint e ON e.id = c.endpoint_id ORDER BY c.id DESC;

-- name: view_causes_open
-- Uses the index cause_open.
SELECT {cause:c}, coalesce(e.url, ''), coalesce(e.state, 'enabled') FROM (
    SELECT * FROM cause WHERE closed_at IS NULL AND id < :before_id ORDER BY id DESC LIMIT :scan_limit
) AS c LEFT JOIN endpoint e ON e.id = c.endpoint_id ORDER BY c.id DESC;

-- name: view_causes_open_of_tenant
-- Uses the index cause_open_tenant.
SELECT {cause:c}, coalesce(e.url, ''), coalesce(e.state, 'enabled') FROM (
    SELECT * FROM cause WHERE tenant = :tenant AND closed_at IS NULL AND id < :before_id
    ORDER BY id DESC LIMIT :scan_limit
) AS c LEFT JOIN endpoint e ON e.id = c.endpoint_id ORDER BY c.id DESC;

-- name: view_causes_of_endpoint
-- Uses the index cause_endpoint.
SELECT {cause:c}, coalesce(e.url, ''), coalesce(e.state, 'enabled') FROM (
    SELECT * FROM cause WHERE endpoint_id = :endpoint_id AND id < :before_id
    ORDER BY id DESC LIMIT :scan_limit
) AS c LEFT JOIN endpoint e ON e.id = c.endpoint_id ORDER BY c.id DESC;

-- name: view_open_causes [sqlite]
-- A bounded number of each endpoint. Uses the index cause_recent.
SELECT {cause:c} FROM json_each(:endpoint_ids) e CROSS JOIN cause c
WHERE c.endpoint_id = e.value AND c.closed_at IS NULL
ORDER BY c.last_seen DESC, c.id DESC;

-- name: view_open_causes [postgres]
SELECT {cause} FROM cause WHERE endpoint_id = ANY(:endpoint_ids::bigint[]) AND closed_at IS NULL
ORDER BY last_seen DESC, id DESC;

-- name: view_attempts_by_number [sqlite]
SELECT {attempt} FROM attempt WHERE delivery_id = :delivery_id AND number = :number;

-- name: view_attempts_by_number [postgres]
SELECT {attempt:a} FROM unnest(:delivery_id::bigint[], :number::integer[]) AS asked (delivery_id, number)
JOIN attempt a ON a.delivery_id = asked.delivery_id AND a.number = asked.number;
