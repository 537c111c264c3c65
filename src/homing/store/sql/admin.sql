-- Commands of people. A transaction that changes subscriptions locks their rows first and the catalog's
-- row last. One that writes deliveries of a subscription shares the lock of its row.

-- name: commit_loss_add
INSERT INTO commit_loss (id, noticed_at, process, kind, from_at, upto_at)
VALUES (:id, :noticed_at, :process, :kind, :from_at, :upto_at) ON CONFLICT (id) DO NOTHING;

-- name: commit_losses
SELECT id, noticed_at, process, kind, from_at, upto_at, confirmed_at FROM commit_loss
WHERE confirmed_at IS NULL ORDER BY id DESC LIMIT :limit;

-- name: commit_losses_confirm
UPDATE commit_loss SET confirmed_at = :now WHERE confirmed_at IS NULL
RETURNING id, noticed_at, process, kind, from_at, upto_at, confirmed_at;

-- name: catalog_version
SELECT version FROM catalog WHERE id = 1;

-- name: catalog_raise [sqlite]
-- The lock of this row puts changes of subscriptions in one order. The first change of another
-- server makes a step that is larger than all that may be lost, and hardly ever that of a third one.
UPDATE catalog SET
    version = version + CASE server WHEN 0 THEN 1 ELSE :gap * (1 + server % 65536) END,
    base = CASE server WHEN 0 THEN base ELSE version END,
    server = 0
WHERE id = 1 RETURNING version;

-- name: catalog_raise [postgres]
UPDATE catalog SET
    version = version + CASE server WHEN server_started() THEN 1
        ELSE :gap::bigint * (1 + server_started() % 65536) END,
    base = CASE server WHEN server_started() THEN base ELSE version END,
    server = server_started()
WHERE id = 1 RETURNING version;

-- name: catalog_base
SELECT base FROM catalog WHERE id = 1;

-- name: catalog_lock [sqlite]
-- There is one writer.
SELECT 1;

-- name: catalog_lock [postgres]
-- Before the version is raised: a publish of an older release holds it.
SELECT pg_advisory_xact_lock(7239140553);

-- name: subscriptions_share [sqlite]
-- There is one writer.
SELECT id FROM subscription WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id;

-- name: subscriptions_share [postgres]
-- Until the commit these subscriptions do not change.
SELECT id FROM subscription WHERE id = ANY(:ids::bigint[]) ORDER BY id FOR SHARE;

-- name: name_lock [sqlite]
-- There is one writer.
SELECT :name LIMIT 0;

-- name: name_lock [postgres]
-- Until the commit: what exists under this name is counted and added by one transaction at a time.
SELECT pg_advisory_xact_lock(723914058, hashtext(:name));

-- name: subscription_changed_since
-- Uses the index on versions.
SELECT version FROM subscription WHERE version > :version AND tenant = :tenant AND deleted_at IS NULL
ORDER BY version LIMIT 1;

-- name: subscriptions_since
-- Uses the index on versions.
SELECT {subscription} FROM subscription WHERE (version, id) > (:version, :after_id)
ORDER BY version, id LIMIT :limit;

-- name: subscription_by_id
SELECT {subscription} FROM subscription WHERE id = :id;

-- name: subscription_hold [sqlite]
SELECT {subscription} FROM subscription WHERE id = :id;

-- name: subscription_hold [postgres]
-- Waits for steps that write deliveries of the subscription, and for other changes of it.
SELECT {subscription} FROM subscription WHERE id = :id FOR UPDATE;

-- name: subscriptions_raise [sqlite]
UPDATE subscription SET version = :version WHERE id IN (SELECT value FROM json_each(:ids));

-- name: subscriptions_raise [postgres]
-- The change that has just been given this version has locked them.
UPDATE subscription SET version = :version WHERE id = ANY(:ids::bigint[]);

-- name: subscription_replace
UPDATE subscription SET {subscription=} WHERE id = :id;

-- name: signing_keys_since
SELECT {signing_keys} FROM signing_keys WHERE version > :version;

-- name: signing_keys_of
SELECT {signing_keys} FROM signing_keys WHERE tenant = :tenant;

-- name: signing_keys_set
INSERT INTO signing_keys ({signing_keys}) VALUES (:tenant, :keys, :version)
ON CONFLICT (tenant) DO UPDATE SET keys = excluded.keys, version = excluded.version;

-- name: signing_keys_remove
DELETE FROM signing_keys WHERE tenant = :tenant;

-- name: event_types_changed
SELECT tenant, version, types FROM event_type_change WHERE version > :version;

-- name: event_type_of
SELECT {event_type} FROM event_type WHERE tenant = :tenant AND name = :name;

-- name: event_type_sizes
-- How many types a tenant has, and the size of their texts.
SELECT count(*), coalesce(sum(bytes), 0) FROM event_type WHERE tenant = :tenant;

-- name: event_type_replace
UPDATE event_type SET
    description = :description, schema = :schema, sample = :sample, checks = :checks, bytes = :bytes,
    updated_at = :updated_at, version = :version
WHERE tenant = :tenant AND name = :name;

-- name: event_type_raise
UPDATE event_type SET version = :version WHERE tenant = :tenant AND name = :name;

-- name: event_type_remove
DELETE FROM event_type WHERE tenant = :tenant AND name = :name;

-- name: event_type_changed
-- Processes that have read this version of the catalog read the types of this tenant again.
INSERT INTO event_type_change (tenant, version, types) VALUES (:tenant, :version, :types)
ON CONFLICT (tenant) DO UPDATE SET version = excluded.version, types = excluded.types;

-- name: event_types_erase
DELETE FROM event_type WHERE tenant = :tenant;

-- name: event_type_change_erase
DELETE FROM event_type_change WHERE tenant = :tenant;

-- name: event_types_page
-- Types of all tenants, by tenant and name, without their large texts.
SELECT tenant, name, description, checks, schema <> '', sample <> '', updated_at, version FROM event_type
WHERE (tenant, name) > (:after_tenant, :after_name) ORDER BY tenant, name LIMIT :limit;

-- name: event_types_page_of
SELECT tenant, name, description, checks, schema <> '', sample <> '', updated_at, version FROM event_type
WHERE tenant = :tenant AND name > :after_name ORDER BY tenant, name LIMIT :limit;

-- name: event_types_whole
-- All types of a tenant with their texts, whose size has a limit.
SELECT {event_type} FROM event_type WHERE tenant = :tenant ORDER BY name;

-- name: endpoint_of_url [sqlite]
SELECT id FROM endpoint WHERE tenant = :tenant AND url = :url;

-- name: endpoint_of_url [postgres]
-- Until the commit retention does not remove it.
SELECT id FROM endpoint WHERE tenant = :tenant AND url = :url FOR KEY SHARE;

-- name: endpoint_made [sqlite]
-- What is accepted later is fresh; what a changed URL brings is not.
UPDATE endpoint SET enabled_from = (SELECT number + 1 FROM acceptance) WHERE id = :id;

-- name: endpoint_made [postgres]
UPDATE endpoint SET enabled_from = nextval('acceptance') WHERE id = :id;

-- name: endpoint_replace [sqlite]
-- The owner finds the newer generation at its next settle, reads again and decides again.
UPDATE endpoint SET
    generation = generation + 1, state = :state, since = :since, enabled_since = :enabled_since,
    attempts = :attempts, failures = :failures, consecutive_failures = :consecutive_failures,
    first_attempt_at = :first_attempt_at, last_success_at = :last_success_at,
    manual_enable_at = :manual_enable_at, warned = :warned, next_probe_at = :next_probe_at,
    probe_after_id = :probe_after_id, hold_until = :hold_until,
    dropped_unreported = :dropped_unreported, dropped_reported_at = :dropped_reported_at,
    rule = :rule,
    enabled_from = CASE WHEN enabled_since = :enabled_since THEN enabled_from
        ELSE (SELECT number + 1 FROM acceptance) END
WHERE id = :id AND generation = :generation AND state = :seen_state AND attempts = :seen_attempts
AND failures = :seen_failures AND consecutive_failures = :seen_consecutive
AND coalesce(last_success_at, 0) = :seen_success AND dropped_unreported = :seen_dropped
AND probe_after_id = :seen_probed AND hold_until = :seen_hold
RETURNING generation;

-- name: endpoint_replace [postgres]
UPDATE endpoint SET
    generation = generation + 1, state = :state, since = :since, enabled_since = :enabled_since,
    attempts = :attempts, failures = :failures, consecutive_failures = :consecutive_failures,
    first_attempt_at = :first_attempt_at, last_success_at = :last_success_at,
    manual_enable_at = :manual_enable_at, warned = :warned, next_probe_at = :next_probe_at,
    probe_after_id = :probe_after_id, hold_until = :hold_until,
    dropped_unreported = :dropped_unreported, dropped_reported_at = :dropped_reported_at,
    rule = :rule,
    enabled_from = CASE WHEN enabled_since = :enabled_since THEN enabled_from ELSE nextval('acceptance') END
WHERE id = :id AND generation = :generation AND state = :seen_state AND attempts = :seen_attempts
AND failures = :seen_failures AND consecutive_failures = :seen_consecutive
AND coalesce(last_success_at, 0) = :seen_success AND dropped_unreported = :seen_dropped
AND probe_after_id = :seen_probed AND hold_until = :seen_hold
RETURNING generation;

-- name: pending_by_id
SELECT {pending} FROM pending WHERE id = :id;

-- name: history_by_id
SELECT {history} FROM history WHERE id = :id;

-- name: cancel_one
DELETE FROM pending WHERE id = :id RETURNING {pending};

-- name: due_now
-- A person has a pending delivery tried now; one that is due already stays as it is.
UPDATE pending SET due_at = :due_at WHERE id = :id AND due_at > :due_at RETURNING {pending};

-- name: cleanup_jobs
-- With the bucket of the deliveries: its owner runs the job.
-- Those of a tenant that moves to another installation wait.
SELECT {cleanup_job:c}, coalesce(e.bucket, 0)
FROM cleanup_job c LEFT JOIN endpoint e ON e.id = c.endpoint_id
WHERE NOT EXISTS (SELECT 1 FROM tenant_move m WHERE m.tenant = e.tenant AND m.step <> 'arrived')
ORDER BY c.id;

-- name: endpoint_tenant
SELECT tenant FROM endpoint WHERE id = :id;

-- name: cleanup_job_hold [sqlite]
SELECT {cleanup_job} FROM cleanup_job WHERE id = :id;

-- name: cleanup_job_hold [postgres]
-- Two processes never run the same step.
SELECT {cleanup_job} FROM cleanup_job WHERE id = :id FOR UPDATE;

-- name: cleanup_job_moves_cancel
-- A subscription was deleted while its deliveries were being moved, or cancelled after a 410.
UPDATE cleanup_job SET kind = 'cancel' WHERE subscription_id = :subscription_id AND kind <> 'cancel';

-- name: cleanup_job_moves_gone
-- The receiver of a subscription responded with 410 while its deliveries were being moved.
UPDATE cleanup_job SET kind = 'gone', after_id = 0 WHERE subscription_id = :subscription_id AND kind = 'move';

-- name: cleanup_job_gone_moves
-- A person has activated it, or changed its URL: deliveries that are left belong to its endpoint.
UPDATE cleanup_job SET kind = 'move', after_id = 0 WHERE subscription_id = :subscription_id AND kind = 'gone';

-- name: cleanup_job_scan
SELECT id, subscription_id, position FROM pending
WHERE endpoint_id = :endpoint_id AND id > :after_id
ORDER BY id LIMIT :limit;

-- name: cleanup_job_move [sqlite]
UPDATE pending SET endpoint_id = :target_id, bucket = :bucket
WHERE id IN (SELECT value FROM json_each(:ids)) AND endpoint_id = :endpoint_id
RETURNING id;

-- name: cleanup_job_move [postgres]
UPDATE pending SET endpoint_id = :target_id, bucket = :bucket
WHERE id = ANY(:ids::bigint[]) AND endpoint_id = :endpoint_id
RETURNING id;

-- name: cleanup_job_cancel [sqlite]
DELETE FROM pending
WHERE id IN (SELECT value FROM json_each(:ids)) AND endpoint_id = :endpoint_id
RETURNING {pending};

-- name: cleanup_job_cancel [postgres]
DELETE FROM pending
WHERE id = ANY(:ids::bigint[]) AND endpoint_id = :endpoint_id
RETURNING {pending};

-- name: cleanup_job_progress
UPDATE cleanup_job SET after_id = :after_id WHERE id = :id;

-- name: cleanup_job_done
DELETE FROM cleanup_job WHERE id = :id;

-- name: policies
SELECT name, schedule FROM policy ORDER BY name;

-- name: policy_set
INSERT INTO policy (name, schedule) VALUES (:name, :schedule)
ON CONFLICT (name) DO UPDATE SET schedule = excluded.schedule;
