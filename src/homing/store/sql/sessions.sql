-- Sessions of the dashboard. A transaction that ends one early raises their version first.

-- name: session_there
SELECT 1 FROM key_session WHERE id = :id;

-- name: link_use
-- A sign-in link works once: its row is kept like that of a session. No row: it was used before.
INSERT INTO key_session (id, holder, since) VALUES (:id, :holder, :since)
ON CONFLICT (id) DO NOTHING RETURNING 1;

-- name: sessions_raise [sqlite]
UPDATE key_version SET sessions = sessions + 1 WHERE id = 1;

-- name: sessions_raise [postgres]
-- As the version of keys: one that a failover has lost is not given again.
UPDATE key_version
SET sessions = greatest(sessions + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
WHERE id = 1;

-- name: session_end
DELETE FROM key_session WHERE id = :id;

-- name: sessions_past
-- A bounded number of sessions that are too old to be used.
DELETE FROM key_session WHERE id IN (
    SELECT id FROM key_session WHERE since < :before ORDER BY since LIMIT :limit);

-- name: sessions_beyond
-- All sessions of a key except the newest ones.
SELECT id FROM key_session WHERE holder = :holder ORDER BY since DESC, id
LIMIT :limit OFFSET :max_sessions;

-- name: session_count
SELECT count(*) FROM key_session;
