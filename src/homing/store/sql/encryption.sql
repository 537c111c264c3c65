-- Which keys encrypt secrets: their names, never the keys.

-- name: encryption_keys
SELECT name, encrypts_all FROM encryption_key ORDER BY name;

-- name: encryption_key_add
INSERT INTO encryption_key (name, encrypts_all) VALUES (:name, 0);

-- name: encryption_key_encrypts_all
UPDATE encryption_key SET encrypts_all = 1 WHERE name = :name;

-- name: encryption_keys_remove_others
DELETE FROM encryption_key WHERE name <> :name;

-- name: subscriptions_page
SELECT {subscription} FROM subscription WHERE id > :after_id ORDER BY id LIMIT :limit;

-- name: subscription_reencrypt
-- The plain text stays the same, and so does the version. No process has to read it again.
UPDATE subscription SET
    secrets = :secrets, token = :token, headers = :headers, settings = :settings
WHERE id = :id AND version = :version;

-- name: signing_keys_page
SELECT {signing_keys} FROM signing_keys WHERE tenant > :after ORDER BY tenant LIMIT :limit;

-- name: signing_keys_reencrypt
-- As with subscriptions, the version stays the same.
UPDATE signing_keys SET keys = :keys WHERE tenant = :tenant AND version = :version;

-- name: hash_keys
SELECT name, value FROM hash_key ORDER BY number;

-- name: hash_key_add
-- After all others. The caller holds the lock of the catalog.
INSERT INTO hash_key (number, name, value)
SELECT coalesce(max(number), 0) + 1, :name, :value FROM hash_key WHERE true
ON CONFLICT (name) DO NOTHING;

-- name: hash_key_reencrypt
UPDATE hash_key SET value = :value WHERE name = :name;

-- name: plaintext_removal
SELECT id FROM plaintext_removal;

-- name: plaintext_removal_due
INSERT INTO plaintext_removal (id) VALUES (1) ON CONFLICT (id) DO NOTHING;
