-- Erasures. Events are found by seeks: by their id, by the hash of a payload field, or by tenant. All
-- rows of an event are removed in one transaction, or in several if it has very many deliveries.

-- name: erasure_by_id
SELECT {erasure} FROM erasure WHERE id = :id;

-- name: erasures_page
SELECT {erasure} FROM erasure WHERE id < :before_id ORDER BY id DESC LIMIT :limit;

-- name: erasures_page_of
-- Uses the index erasure_tenant.
SELECT {erasure} FROM erasure WHERE tenant = :tenant AND id < :before_id ORDER BY id DESC LIMIT :limit;

-- name: erasures_running
-- Uses the index erasure_running.
SELECT {erasure} FROM erasure WHERE finished_at IS NULL ORDER BY id LIMIT :limit;

-- name: erasures_running_of
-- Few. Uses the index erasure_running_tenant.
SELECT {erasure} FROM erasure WHERE finished_at IS NULL AND tenant = :tenant ORDER BY id LIMIT :limit;

-- name: erasure_of_key
-- The erasure that has erased the event with this id.
SELECT {erasure:e} FROM erased_key k JOIN erasure e ON e.id = k.erasure_id WHERE k.hash = :hash;

-- name: tenants_erased_since
-- Of a tenant the last row counts. Uses the index erasure_version; GROUP BY would take another one.
SELECT tenant, version FROM erasure WHERE version > :version ORDER BY version;

-- name: tenants_being_erased
-- All their objects are hidden, and their events up to this position. Uses the index
-- erasure_whole_running.
SELECT tenant, upto_position FROM erasure WHERE kind = 'tenant' AND finished_at IS NULL
ORDER BY tenant, upto_position;

-- name: whole_tenants_erased_since
-- Uses the index erasure_whole.
SELECT tenant, max(version) FROM erasure WHERE kind = 'tenant' AND version > :version GROUP BY tenant;

-- name: erased_keys_exist
-- Or may exist soon: then publishes look for them.
SELECT 1 WHERE EXISTS (SELECT 1 FROM erased_key) OR EXISTS (SELECT 1 FROM erasure WHERE finished_at IS NULL);

-- name: erased_keys_known [sqlite]
SELECT hash, content, deliveries FROM erased_key WHERE hash = :hash;

-- name: erased_keys_known [postgres]
SELECT hash, content, deliveries FROM erased_key WHERE hash = ANY(:hash::bytea[]);

-- name: erased_keys_add [sqlite]
INSERT INTO erased_key (hash, content, deliveries, erasure_id, accepted_at)
VALUES (:hash, :content, :deliveries, :erasure_id, :accepted_at)
ON CONFLICT (hash) DO NOTHING;

-- name: erased_keys_add [postgres]
INSERT INTO erased_key (hash, content, deliveries, erasure_id, accepted_at)
SELECT * FROM unnest(
    :hash::bytea[], :content::bytea[], :deliveries::bigint[], :erasure_id::bigint[], :accepted_at::bigint[]
)
ON CONFLICT (hash) DO NOTHING;

-- name: erased_keys_remove
-- Past retention the event would not be known any more, either.
DELETE FROM erased_key WHERE hash IN (
    SELECT hash FROM erased_key WHERE accepted_at < :before ORDER BY accepted_at LIMIT :limit
) RETURNING hash;

-- name: erased_keys_after
-- Ids of erased events by time, with their tenants.
SELECT k.hash, k.accepted_at, e.tenant FROM erased_key k LEFT JOIN erasure e ON e.id = k.erasure_id
WHERE (k.accepted_at, k.hash) > (:accepted_at, :hash) AND k.accepted_at < :before
ORDER BY k.accepted_at, k.hash LIMIT :limit;

-- name: erased_key_remove [sqlite]
DELETE FROM erased_key WHERE hash = :hash;

-- name: erased_key_remove [postgres]
DELETE FROM erased_key WHERE hash = ANY(:hash::bytea[]);

-- name: erasures_after
SELECT id, tenant, finished_at FROM erasure
WHERE id > :after_id AND id < :bound_id ORDER BY id LIMIT :limit;

-- name: erasure_remove [sqlite]
DELETE FROM erasure WHERE id = :id;

-- name: erasure_remove [postgres]
DELETE FROM erasure WHERE id = ANY(:id::bigint[]);

-- name: erasures_remove
-- An erasure ends after its id was made.
DELETE FROM erasure WHERE id IN (
    SELECT id FROM erasure WHERE id < :bound_id AND finished_at < :before ORDER BY id LIMIT :limit
) RETURNING id;

-- name: erasure_hold [sqlite]
SELECT id FROM erasure WHERE id = :id;

-- name: erasure_hold [postgres]
SELECT id FROM erasure WHERE id = :id FOR UPDATE;

-- name: erasure_bound
UPDATE erasure SET upto_position = :upto_position WHERE id = :id AND upto_position = :not_bound;

-- name: erasure_hide
-- Processes that have read this version of the catalog hold nothing of it in memory.
UPDATE erasure SET version = :version, more = :more WHERE id = :id AND version = 0;

-- name: erasure_progress
UPDATE erasure SET events = events + :events, deliveries = deliveries + :deliveries,
    cancelled = cancelled + :cancelled
WHERE id = :id;

-- name: erasure_finish
-- Not if it was asked for again meanwhile: then it covers more than was removed.
UPDATE erasure SET finished_at = :now, version = coalesce(CAST(:version AS bigint), version)
WHERE id = :id AND finished_at IS NULL AND upto_position = :upto_position RETURNING id;

-- name: erasure_extend
-- A tenant that is being erased is to be erased again: what was accepted meanwhile is covered, too.
UPDATE erasure SET upto_position = :upto_position, version = :version WHERE id = :id;

-- name: erasable_by_key
SELECT e.id, e.tenant, e.key, e.last_id, e.deliveries, e.accepted_at, k.content_hash
FROM event_key k JOIN event e ON e.id = k.event_id
WHERE k.tenant = :tenant AND k.key = :key;

-- name: erasable_by_field
-- The oldest events with this value. Uses the index event_field_hash.
SELECT e.id, e.tenant, e.key, e.last_id, e.deliveries, e.accepted_at, k.content_hash
FROM (
    SELECT f.event_id FROM event_field f JOIN event p ON p.id = f.event_id
    WHERE f.hash = :hash AND f.tenant = :tenant AND p.position <= :upto_position
    ORDER BY f.event_id LIMIT :limit
) AS found JOIN event e ON e.id = found.event_id
JOIN event_key k ON k.tenant = e.tenant AND k.key = e.key
ORDER BY e.id;

-- name: keys_of_tenant
-- The keys of a tenant's events, from the primary key.
SELECT key, event_id FROM event_key WHERE tenant = :tenant AND key > :after_key ORDER BY key LIMIT :limit;

-- name: erasable_by_id [sqlite]
SELECT e.id, e.tenant, e.key, e.last_id, e.deliveries, e.accepted_at, k.content_hash
FROM event e JOIN event_key k ON k.tenant = e.tenant AND k.key = e.key
WHERE e.id IN (SELECT value FROM json_each(:ids)) AND e.position <= :upto_position ORDER BY e.id;

-- name: erasable_by_id [postgres]
SELECT e.id, e.tenant, e.key, e.last_id, e.deliveries, e.accepted_at, k.content_hash
FROM event e JOIN event_key k ON k.tenant = e.tenant AND k.key = e.key
WHERE e.id = ANY(:ids::bigint[]) AND e.position <= :upto_position ORDER BY e.id;

-- name: erase_hold [sqlite]
SELECT id FROM event WHERE id IN (SELECT value FROM json_each(:ids));

-- name: erase_hold [postgres]
-- A replay locks its event, too: it comes before the erasure, or finds no event.
SELECT id FROM event WHERE id = ANY(:ids::bigint[]) ORDER BY id FOR UPDATE;

-- name: erase_pending [sqlite]
-- Pending comes before history: a settle moves a row from the one to the other.
DELETE FROM pending WHERE id IN (
    SELECT id FROM pending WHERE id > :event_id AND id <= :last_id AND event_id = :event_id
    ORDER BY id LIMIT :limit
) RETURNING {pending};

-- name: erase_pending [postgres]
DELETE FROM pending WHERE id IN (
    SELECT p.id FROM unnest(:event_id::bigint[], :last_id::bigint[], :limit::integer[]) AS it (event_id, last_id, n)
    CROSS JOIN LATERAL (
        SELECT id FROM pending WHERE id > it.event_id AND id <= it.last_id AND event_id = it.event_id
        ORDER BY id LIMIT it.n
    ) AS p
) RETURNING {pending};

-- name: erase_history [sqlite]
DELETE FROM history WHERE id IN (
    SELECT id FROM history WHERE id > :event_id AND id <= :last_id AND event_id = :event_id
    ORDER BY id LIMIT :limit
) RETURNING id, event_id;

-- name: erase_history [postgres]
DELETE FROM history WHERE id = ANY(ARRAY(
    SELECT h.id FROM unnest(:event_id::bigint[], :last_id::bigint[], :limit::integer[]) AS it (event_id, last_id, n)
    CROSS JOIN LATERAL (
        SELECT id FROM history WHERE id > it.event_id AND id <= it.last_id AND event_id = it.event_id
        ORDER BY id LIMIT it.n
    ) AS h
)) RETURNING id, event_id;

-- name: erase_links [sqlite]
-- The replays of these events.
DELETE FROM replay_link WHERE (event_id, delivery_id) IN (
    SELECT event_id, delivery_id FROM replay_link WHERE event_id = :event_id
    ORDER BY delivery_id LIMIT :limit
) RETURNING delivery_id, event_id;

-- name: erase_links [postgres]
DELETE FROM replay_link r USING (
    SELECT l.event_id, l.delivery_id FROM unnest(:event_id::bigint[], :limit::integer[]) AS it (event_id, n)
    CROSS JOIN LATERAL (
        SELECT event_id, delivery_id FROM replay_link WHERE event_id = it.event_id
        ORDER BY delivery_id LIMIT it.n
    ) AS l
) AS found
WHERE r.event_id = found.event_id AND r.delivery_id = found.delivery_id
RETURNING r.delivery_id, r.event_id;

-- name: erase_pending_by_id [sqlite]
DELETE FROM pending WHERE id = :id RETURNING {pending};

-- name: erase_pending_by_id [postgres]
DELETE FROM pending WHERE id = ANY(:id::bigint[]) RETURNING {pending};

-- name: erase_history_by_id [sqlite]
DELETE FROM history WHERE id = :id RETURNING id;

-- name: erase_history_by_id [postgres]
DELETE FROM history WHERE id = ANY(:id::bigint[]) RETURNING id;

-- name: erase_event [sqlite]
DELETE FROM event WHERE id = :id;

-- name: erase_event [postgres]
DELETE FROM event WHERE id = ANY(:id::bigint[]);

-- name: erase_jobs_of_event [sqlite]
-- Replay jobs name what they replay. Uses the index replay_job_event.
DELETE FROM replay_job WHERE json_extract(filter, '$.event_id') = :event_id;

-- name: erase_jobs_of_event [postgres]
DELETE FROM replay_job WHERE (filter::jsonb ->> 'event_id')::bigint = ANY(:event_id::bigint[])
AND filter::jsonb ->> 'event_id' IS NOT NULL;

-- name: erase_jobs_of_tenant [sqlite]
-- Uses the index replay_job_tenant.
DELETE FROM replay_job WHERE id IN (
    SELECT id FROM replay_job WHERE json_extract(filter, '$.tenant') = :tenant ORDER BY id LIMIT :limit
) RETURNING id;

-- name: erase_jobs_of_tenant [postgres]
DELETE FROM replay_job WHERE id IN (
    SELECT id FROM replay_job WHERE filter::jsonb ->> 'tenant' = :tenant ORDER BY id LIMIT :limit
) RETURNING id;

-- name: deliveries_known [sqlite]
-- Which of these deliveries exist.
SELECT id FROM pending WHERE id IN (SELECT value FROM json_each(:ids))
UNION ALL SELECT id FROM history WHERE id IN (SELECT value FROM json_each(:ids));

-- name: deliveries_known [postgres]
SELECT id FROM pending WHERE id = ANY(:ids::bigint[])
UNION ALL SELECT id FROM history WHERE id = ANY(:ids::bigint[]);

-- name: erase_endpoints_of
-- The next endpoints of a tenant. Uses the index by tenant and URL.
SELECT id FROM endpoint WHERE tenant = :tenant LIMIT :limit;

-- name: erase_endpoint_history
-- Deliveries whose event was past retention already. Uses the index history_endpoint.
DELETE FROM history WHERE id IN (
    SELECT id FROM history WHERE endpoint_id = :endpoint_id ORDER BY id LIMIT :limit
) RETURNING id;

-- name: erase_endpoint_attempts [sqlite]
-- Test sends, which belong to no delivery. The condition is that of the index attempt_endpoint.
DELETE FROM attempt WHERE (delivery_id, number) IN (
    SELECT delivery_id, number FROM attempt
    WHERE endpoint_id = :endpoint_id AND (outcome <> 'delivered' OR number > 1 OR lane <> 'fresh')
    LIMIT :limit
) RETURNING delivery_id;

-- name: erase_endpoint_attempts [postgres]
DELETE FROM attempt a USING (
    SELECT delivery_id, number FROM attempt
    WHERE endpoint_id = :endpoint_id AND (outcome <> 'delivered' OR number > 1 OR lane <> 'fresh')
    LIMIT :limit
) AS found
WHERE a.delivery_id = found.delivery_id AND a.number = found.number
RETURNING a.delivery_id;

-- name: erase_endpoint_transitions
DELETE FROM transition WHERE id IN (
    SELECT id FROM transition WHERE endpoint_id = :endpoint_id ORDER BY id LIMIT :limit
) RETURNING id;

-- name: erase_endpoint_causes
DELETE FROM cause WHERE id IN (
    SELECT id FROM cause WHERE endpoint_id = :endpoint_id ORDER BY id LIMIT :limit
) RETURNING id;

-- name: erase_endpoint_subscriptions
-- In any order: for the order of ids PostgreSQL would read all subscriptions. Uses subscription_endpoint.
DELETE FROM subscription WHERE id IN (
    SELECT id FROM subscription WHERE endpoint_id = :endpoint_id LIMIT :limit
) RETURNING id;

-- name: erase_endpoint_jobs
DELETE FROM cleanup_job WHERE id IN (
    SELECT id FROM cleanup_job WHERE endpoint_id = :endpoint_id ORDER BY id LIMIT :limit
) RETURNING id;

-- name: erase_endpoint_releases
-- Uses the index key_release_endpoint.
DELETE FROM key_release WHERE delivery_id IN (
    SELECT delivery_id FROM key_release WHERE endpoint_id = :endpoint_id ORDER BY delivery_id LIMIT :limit
) RETURNING delivery_id;

-- name: erase_endpoint
-- Only when nothing is pending there: a delivery of an event that is not erased keeps it.
DELETE FROM endpoint WHERE id = :endpoint_id
AND NOT EXISTS (SELECT 1 FROM pending p WHERE p.endpoint_id = :endpoint_id)
RETURNING id;

-- name: erase_targets_of
-- Uses the index notice_target_created.
DELETE FROM notice_target WHERE tenant = :tenant AND created_at >= 0;

-- name: erase_overflow_of
DELETE FROM notice_overflow WHERE target_id IN (
    SELECT id FROM notice_target WHERE tenant = :tenant AND created_at >= 0
);

-- name: erase_notices_of
-- Records about the endpoints of a tenant, also for the operator. Uses the index notice_tenant.
DELETE FROM notice WHERE (target_id, id) IN (
    SELECT target_id, id FROM notice WHERE tenant = :tenant ORDER BY id LIMIT :limit
) RETURNING id;

-- name: erase_notices_for
-- Records for the targets of a tenant. Uses the index notice_owner.
DELETE FROM notice WHERE (target_id, id) IN (
    SELECT target_id, id FROM notice WHERE owner = :tenant ORDER BY id LIMIT :limit
) RETURNING id;

-- name: erase_api_keys_of
-- All of them are revoked when a tenant is erased. Uses the index api_key_tenant.
DELETE FROM api_key WHERE id IN (
    SELECT id FROM api_key WHERE tenant = :tenant AND revoked_at IS NOT NULL ORDER BY id LIMIT :limit
) RETURNING id;
