-- The audit log: entries that are only added, and the segments in which they are hashed.

CREATE TABLE audit_entry (
    id         bigint PRIMARY KEY,
    at         bigint NOT NULL,
    tenant     text,                 -- of the object; NULL: of the installation
    key_id     bigint,              -- NULL: the admin key of the settings, or no key
    who        text NOT NULL,        -- the name of the key
    who_tenant text,                 -- of the key; NULL: a caller of all tenants
    address    text NOT NULL,
    person     text NOT NULL,        -- as an authenticating proxy named the person
    action     text NOT NULL,        -- the use case
    object     text NOT NULL,
    before     text NOT NULL,        -- JSON without secrets; '': there was no object
    after      text NOT NULL,
    refused    text NOT NULL,        -- why; '': the change was made
    count      bigint NOT NULL,     -- of refusals in the same minute
    digest     bytea NOT NULL,
    segment    bigint NOT NULL      -- 0: in none yet
);
CREATE INDEX audit_entry_tenant ON audit_entry (tenant, id);
CREATE INDEX audit_entry_object ON audit_entry (object, id);
CREATE INDEX audit_entry_segment ON audit_entry (segment, id);

CREATE TABLE audit_segment (
    number   bigint PRIMARY KEY,
    entries  bigint NOT NULL,
    first_at bigint NOT NULL,
    last_at  bigint NOT NULL,
    hash     bytea NOT NULL           -- covers the entries and the segment before
);

CREATE TABLE audit_head (            -- one row
    id              bigint PRIMARY KEY CHECK (id = 1),
    log_key         text,            -- of the digests, encrypted; NULL: not made yet
    last            bigint NOT NULL,
    last_hash       bytea NOT NULL,
    removed         bigint NOT NULL, -- the newest segment that retention removed: the checkpoint
    removed_hash    bytea NOT NULL,
    removed_entries bigint NOT NULL,
    mac             bytea NOT NULL
);
INSERT INTO audit_head VALUES (1, NULL, 0, '', 0, '', 0, '');
