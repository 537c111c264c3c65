-- The Ed25519 keys of tenants whose requests are signed with them.

CREATE TABLE signing_keys (
    tenant  TEXT PRIMARY KEY,
    keys    TEXT NOT NULL,     -- JSON, the private keys encrypted; newest first
    version INTEGER NOT NULL   -- of the catalog, when they last changed
) WITHOUT ROWID;
