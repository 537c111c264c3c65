-- The API keys. A transaction that creates or revokes a key raises the version first, which puts
-- these transactions in one order.

-- name: key_version
SELECT version, sessions FROM key_version WHERE id = 1;

-- name: keys_raise [sqlite]
UPDATE key_version SET version = version + 1 WHERE id = 1;

-- name: keys_raise [postgres]
-- At least the time, in microseconds: a version that a failover has lost is not given again.
UPDATE key_version
SET version = greatest(version + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
WHERE id = 1;

-- name: keys_live
SELECT {api_key} FROM api_key WHERE revoked_at IS NULL ORDER BY id;

-- name: keys_count
SELECT count(*) FROM api_key WHERE revoked_at IS NULL;

-- name: key_revoke
UPDATE api_key SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL RETURNING {api_key};

-- name: keys_revoke_of
-- Uses the index api_key_tenant.
UPDATE api_key SET revoked_at = :now WHERE tenant = :tenant AND revoked_at IS NULL;

-- name: keys_page
SELECT {api_key} FROM api_key WHERE id < :before_id ORDER BY id DESC LIMIT :limit;

-- name: keys_page_of
-- Uses the index api_key_tenant.
SELECT {api_key} FROM api_key WHERE tenant = :tenant AND id < :before_id ORDER BY id DESC LIMIT :limit;

-- name: key_used
-- The latest use is kept, from whichever process.
UPDATE api_key SET last_used_at = :at
WHERE id = :id AND (last_used_at IS NULL OR last_used_at < :at)
AND NOT EXISTS (SELECT 1 FROM tenant_move m WHERE m.tenant = api_key.tenant AND m.step <> 'arrived');
