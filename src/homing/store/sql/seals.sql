-- Which keys seal what is secret: their names, never the keys.

-- name: seals
SELECT name, done FROM seal ORDER BY name;

-- name: seal_add
INSERT INTO seal (name, done) VALUES (:name, 0);

-- name: seal_done
UPDATE seal SET done = 1 WHERE name = :name;

-- name: seal_only
DELETE FROM seal WHERE name <> :name;

-- name: seal_page
SELECT {subscription} FROM subscription WHERE id > :after_id ORDER BY id LIMIT :limit;

-- name: seal_again
-- The plain text stays as it was, so the version does, too: nobody has to read it again.
UPDATE subscription SET
    secrets = :secrets, token = :token, headers = :headers, settings = :settings
WHERE id = :id AND version = :version;

-- name: removal
SELECT id FROM plaintext_removal;

-- name: removal_due
INSERT INTO plaintext_removal (id) VALUES (1) ON CONFLICT (id) DO NOTHING;
