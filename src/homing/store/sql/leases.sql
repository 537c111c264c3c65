-- Processes and leases. A lease ends with its owner's heartbeat: renewing 256 leases writes one row.

-- name: database_now [sqlite]
-- All processes judge leases by the database's clock. 1: that is not the clock of this machine.
SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER), 0;

-- name: database_now [postgres]
-- Through a Unix socket there are no addresses, and on one machine they are equal.
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
       coalesce((host(inet_server_addr()) <> host(inet_client_addr()))::int, 0);

-- name: join_hold [sqlite]
-- Processes join one after the other.
SELECT 1;

-- name: join_hold [postgres]
SELECT 1 FROM (SELECT pg_advisory_xact_lock(7239140554)) AS held;

-- name: processes
SELECT {process} FROM process ORDER BY id;

-- name: process_replace
-- A node number that has rested goes to a new process.
DELETE FROM process WHERE node = :node;

-- name: process_renew
-- A late heartbeat of a process that has left does not renew it.
UPDATE process SET delivers = :delivers, expires_at = :expires_at
WHERE id = :id AND delivers >= 0 RETURNING id, catalog_version;

-- name: processes_shorten
-- Shortens leases that end later than any heartbeat can have set. A live process renews its own.
UPDATE process SET expires_at = :until WHERE expires_at > :max_expires_at;

-- name: process_acts
-- From now on changes wait for this process. NULL: they do not.
UPDATE process SET catalog_version = 0
WHERE id = :id AND delivers >= 0 AND expires_at > :now RETURNING node;

-- name: process_knows
-- The process acts on this version. One that was fenced meanwhile stays fenced.
UPDATE process SET catalog_version = :version WHERE id = :id AND catalog_version < :version;

-- name: processes_acting
-- The processes that changes wait for, whether their heartbeat has stopped or not.
SELECT id, name, catalog_version, expires_at FROM process
WHERE catalog_version IS NOT NULL AND id <> :but ORDER BY id;

-- name: processes_ended [sqlite]
-- Those of them whose heartbeat has stopped, and this one.
SELECT id, node FROM process
WHERE catalog_version IS NOT NULL AND (expires_at <= :now OR id = :late) ORDER BY id;

-- name: processes_ended [postgres]
-- A heartbeat at this moment waits, and so does a process that begins to act again.
SELECT id, node FROM process
WHERE catalog_version IS NOT NULL AND (expires_at <= :now OR id = :late) ORDER BY id
FOR UPDATE SKIP LOCKED;

-- name: process_fenced
UPDATE process SET catalog_version = NULL WHERE id = :id;

-- name: process_leave
-- Below 0: it has left, and is not renewed.
UPDATE process SET delivers = -1, expires_at = :now, catalog_version = NULL
WHERE id = :id AND delivers >= 0 RETURNING node;

-- name: process_hold [sqlite]
-- Locks a process while it takes buckets. No row means that it has left and takes none.
SELECT id FROM process WHERE id = :id AND delivers >= 0;

-- name: process_hold [postgres]
SELECT id FROM process WHERE id = :id AND delivers >= 0 FOR SHARE;

-- name: leases
SELECT bucket, owner, epoch FROM lease ORDER BY bucket;

-- name: leases_hold [sqlite]
-- Locks leases while they get a new owner. One that a settle is using is skipped until the next time.
SELECT bucket, owner, epoch FROM lease WHERE bucket IN (SELECT value FROM json_each(:buckets))
ORDER BY bucket;

-- name: leases_hold [postgres]
SELECT bucket, owner, epoch FROM lease WHERE bucket = ANY(:buckets::smallint[])
ORDER BY bucket FOR UPDATE SKIP LOCKED;

-- name: owners_hold [sqlite]
-- Locks the owners. A heartbeat at this moment waits, and then sees what was taken.
SELECT id, expires_at FROM process WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id;

-- name: owners_hold [postgres]
SELECT id, expires_at FROM process WHERE id = ANY(:ids::bigint[])
ORDER BY id FOR UPDATE SKIP LOCKED;

-- name: owners_known [sqlite]
SELECT id FROM process WHERE id IN (SELECT value FROM json_each(:ids));

-- name: owners_known [postgres]
SELECT id FROM process WHERE id = ANY(:ids::bigint[]);

-- name: leases_take [sqlite]
-- An epoch is at least the time: one that a failover has lost is not given to another process.
UPDATE lease SET owner = :owner, epoch = max(epoch + 1, :now)
WHERE bucket IN (SELECT value FROM json_each(:buckets)) RETURNING bucket, epoch;

-- name: leases_take [postgres]
UPDATE lease SET owner = :owner, epoch = greatest(epoch + 1, :now::bigint)
WHERE bucket = ANY(:buckets::smallint[]) RETURNING bucket, epoch;

-- name: leases_give [sqlite]
UPDATE lease SET owner = NULL, epoch = epoch + 1
WHERE owner = :owner AND bucket IN (SELECT value FROM json_each(:buckets));

-- name: leases_give [postgres]
UPDATE lease SET owner = NULL, epoch = epoch + 1
WHERE owner = :owner AND bucket = ANY(:buckets::smallint[]);

-- name: leases_leave
UPDATE lease SET owner = NULL, epoch = epoch + 1 WHERE owner = :owner;

-- name: leases_heal [sqlite]
-- After a failover that lost commits: epochs that were given before must not be given again.
UPDATE lease SET owner = NULL, epoch = max(epoch, :epoch) + 1
WHERE bucket = :bucket AND (owner = :owner OR epoch < :epoch);

-- name: leases_heal [postgres]
UPDATE lease SET owner = NULL, epoch = greatest(lease.epoch, it.epoch) + 1
FROM unnest(:epoch::bigint[], :bucket::smallint[], :owner::bigint[]) AS it (epoch, bucket, owner)
WHERE lease.bucket = it.bucket AND (lease.owner = it.owner OR lease.epoch < it.epoch);

-- name: catalog_heal [sqlite]
-- Above every version that was seen, by so much that every process reads the whole catalog.
UPDATE catalog SET
    version = max(version, :seen) + :gap * (1 + server % 65536),
    base = version,
    server = 0
WHERE id = 1;

-- name: catalog_heal [postgres]
UPDATE catalog SET
    version = greatest(version, :seen) + :gap::bigint * (1 + server_started() % 65536),
    base = version,
    server = server_started()
WHERE id = 1;

-- name: lease_fence [sqlite]
-- Locks the leases of a write, so that no process takes these buckets before the commit.
SELECT bucket FROM lease WHERE bucket = :bucket AND epoch = :epoch;

-- name: lease_fence [postgres]
SELECT l.bucket FROM lease l
JOIN unnest(:bucket::smallint[], :epoch::bigint[]) AS it (bucket, epoch)
ON l.bucket = it.bucket AND l.epoch = it.epoch
FOR SHARE OF l;

-- name: bucket_walk [sqlite]
-- The next endpoints of a bucket, with or without pending deliveries.
SELECT bucket, id FROM endpoint WHERE bucket = :bucket AND id > :after_id
ORDER BY id LIMIT :limit;

-- name: bucket_walk [postgres]
SELECT it.bucket, e.id FROM unnest(:bucket::smallint[], :after_id::bigint[], :limit::integer[])
    AS it (bucket, after_id, row_limit)
CROSS JOIN LATERAL (
    SELECT id FROM endpoint WHERE bucket = it.bucket AND id > it.after_id
    ORDER BY id LIMIT it.row_limit
) AS e;

-- name: recent_work [sqlite]
-- Deliveries published a moment ago and not yet attempted: their notification may have been lost.
SELECT bucket, endpoint_id, min(position) FROM pending
WHERE id >= :from_id AND id < :upto_id AND part <> 2 AND part >= 0
AND bucket IN (SELECT value FROM json_each(:buckets))
GROUP BY bucket, endpoint_id;

-- name: recent_work [postgres]
SELECT bucket, endpoint_id, min(position) FROM pending
WHERE id >= :from_id AND id < :upto_id AND part <> 2 AND part >= 0 AND bucket = ANY(:buckets::smallint[])
GROUP BY bucket, endpoint_id;

-- name: oldest_snapshot [sqlite]
-- The age and the program of the oldest open transaction, which holds back vacuum.
SELECT 0, '';

-- name: oldest_snapshot [postgres]
SELECT coalesce(max((extract(epoch FROM clock_timestamp() - xact_start) * 1000)::bigint), 0),
    coalesce((array_agg(application_name ORDER BY xact_start))[1], '')
FROM pg_stat_activity
WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND xact_start IS NOT NULL;

-- name: topic_versions
-- How often each topic has changed; the row's lock puts the versions in the order of commits.
SELECT topic, version FROM topic_version UNION ALL SELECT 'catalog', version FROM catalog;

-- name: topic_raise
INSERT INTO topic_version (topic, version) VALUES (:topic, 1)
ON CONFLICT (topic) DO UPDATE SET version = topic_version.version + 1;

-- name: notify_all [sqlite]
-- Outside the transactions of publishers, because NOTIFY inside them would serialise all commits.
SELECT value FROM json_each(:texts);

-- name: notify_all [postgres]
SELECT pg_notify('homing.' || current_schema(), it) FROM unnest(:texts::text[]) AS it;
