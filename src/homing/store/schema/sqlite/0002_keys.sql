-- The keys of the API: their hashes, never the keys.

CREATE TABLE key_version (        -- raised by every key that is made or revoked
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL
);
INSERT INTO key_version (one, version) VALUES (1, 0);

CREATE TABLE api_key (
    id           INTEGER PRIMARY KEY,
    prefix       TEXT NOT NULL UNIQUE, -- public: how a key is found
    hash         BLOB NOT NULL,        -- SHA-256 of its secret
    name         TEXT NOT NULL,
    role         TEXT NOT NULL,
    tenant       TEXT,                 -- NULL: all of them
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER,
    revoked_at   INTEGER
);
CREATE INDEX api_key_live ON api_key (id) WHERE revoked_at IS NULL;
