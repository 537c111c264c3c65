-- The audit log: entries that are only added, and the segments in which they are hashed.

CREATE TABLE audit_entry (
    id         INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,
    tenant     TEXT,                 -- of the object; NULL: of the installation
    key_id     INTEGER,              -- NULL: the admin key of the settings, or no key
    who        TEXT NOT NULL,        -- the name of the key
    who_tenant TEXT,                 -- of the key; NULL: a caller of all tenants
    address    TEXT NOT NULL,
    person     TEXT NOT NULL,        -- as an authenticating proxy named the person
    action     TEXT NOT NULL,        -- the use case
    object     TEXT NOT NULL,
    before     TEXT NOT NULL,        -- JSON without secrets; '': there was no object
    after      TEXT NOT NULL,
    refused    TEXT NOT NULL,        -- why; '': the change was made
    count      INTEGER NOT NULL,     -- of refusals in the same minute
    digest     BLOB NOT NULL,
    segment    INTEGER NOT NULL      -- 0: in none yet
);
CREATE INDEX audit_entry_tenant ON audit_entry (tenant, id);
CREATE INDEX audit_entry_object ON audit_entry (object, id);
CREATE INDEX audit_entry_segment ON audit_entry (segment, id);

CREATE TABLE audit_segment (
    number   INTEGER PRIMARY KEY,
    entries  INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    last_at  INTEGER NOT NULL,
    hash     BLOB NOT NULL           -- covers the entries and the segment before
);

CREATE TABLE audit_head (            -- one row
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    log_key         TEXT,            -- of the digests, encrypted; NULL: not made yet
    last            INTEGER NOT NULL,
    last_hash       BLOB NOT NULL,
    removed         INTEGER NOT NULL, -- the newest segment that retention removed: the checkpoint
    removed_hash    BLOB NOT NULL,
    removed_entries INTEGER NOT NULL,
    mac             BLOB NOT NULL
);
INSERT INTO audit_head VALUES (1, NULL, 0, x'', 0, x'', 0, x'');
