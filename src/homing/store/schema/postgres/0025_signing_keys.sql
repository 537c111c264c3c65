-- The Ed25519 keys of tenants whose requests are signed with them.

CREATE TABLE signing_keys (
    tenant  text PRIMARY KEY,
    keys    text NOT NULL,     -- JSON, the private keys encrypted; newest first
    version bigint NOT NULL    -- of the catalog, when they last changed
);
