-- The keys of the API: their hashes, never the keys.

CREATE TABLE key_version (        -- raised by every key that is made or revoked
    one     smallint PRIMARY KEY CHECK (one = 1),
    version bigint NOT NULL
);
INSERT INTO key_version (one, version) VALUES (1, 0);

CREATE TABLE api_key (
    id           bigint PRIMARY KEY,
    prefix       text NOT NULL UNIQUE, -- public: how a key is found
    hash         bytea NOT NULL,        -- SHA-256 of its secret
    name         text NOT NULL,
    role         text NOT NULL,
    tenant       text,                 -- NULL: all of them
    created_at   bigint NOT NULL,
    expires_at   bigint,
    last_used_at bigint,
    revoked_at   bigint
);
CREATE INDEX api_key_live ON api_key (id) WHERE revoked_at IS NULL;
