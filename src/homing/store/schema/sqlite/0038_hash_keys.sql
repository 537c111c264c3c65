-- Keys of keyed hashes, encrypted: of this installation, and of those that tenants have come from.

CREATE TABLE hash_key (
    number INTEGER PRIMARY KEY,  -- new hashes are made with the lowest one
    name   TEXT NOT NULL UNIQUE,
    value  TEXT NOT NULL      -- encrypted; encrypted again when the encryption key is replaced
);
