-- Notices to people: targets, one record per change and target, and counts beyond the limit.

CREATE TABLE notice_target (
    id           INTEGER PRIMARY KEY,
    tenant       TEXT NOT NULL,      -- '': the operator
    kind         TEXT NOT NULL,      -- 'email', 'slack', 'teams', 'webhook'
    name         TEXT NOT NULL,
    address      TEXT NOT NULL,      -- encrypted; '' once deleted
    address_hash BLOB NOT NULL,
    secret       TEXT NOT NULL,      -- encrypted
    secret_hash  BLOB NOT NULL,      -- finds the target that a link confirms
    kinds        TEXT NOT NULL,      -- JSON list; []: all
    quiet_hours  TEXT NOT NULL,
    time_zone    TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    confirmed_at INTEGER,            -- NULL: nothing but the confirmation is sent to it
    deleted_at   INTEGER,
    message_id   INTEGER NOT NULL,   -- of the message that is being sent; 0: none
    due_at       INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    error        TEXT NOT NULL,
    sent_at      INTEGER
);
CREATE INDEX notice_target_tenant ON notice_target (tenant, id) WHERE deleted_at IS NULL;
CREATE INDEX notice_target_created ON notice_target (tenant, created_at);
CREATE INDEX notice_target_address ON notice_target (address_hash, created_at);
CREATE INDEX notice_target_secret ON notice_target (secret_hash) WHERE confirmed_at IS NULL;
CREATE INDEX notice_target_confirming ON notice_target (id)
    WHERE confirmed_at IS NULL AND deleted_at IS NULL AND message_id <> 0;
CREATE INDEX notice_target_deleted ON notice_target (deleted_at) WHERE deleted_at IS NOT NULL;

CREATE TABLE notice (                -- a record: one change for one target
    target_id   INTEGER NOT NULL,
    id          INTEGER NOT NULL,    -- of the change
    owner       TEXT NOT NULL,       -- the tenant of the target
    kind        TEXT NOT NULL,
    at          INTEGER NOT NULL,
    tenant      TEXT NOT NULL,       -- of the endpoint
    endpoint_id INTEGER NOT NULL,
    url         TEXT NOT NULL,
    facts       TEXT NOT NULL,       -- JSON object
    status      TEXT NOT NULL,       -- 'waiting', 'sent', 'skipped'
    reason      TEXT NOT NULL,
    message_id  INTEGER NOT NULL,    -- 0: no message carries it yet
    sent_at     INTEGER,
    PRIMARY KEY (target_id, id)
) WITHOUT ROWID;
CREATE INDEX notice_waiting ON notice (target_id, id) WHERE status = 'waiting';
CREATE INDEX notice_owner ON notice (owner, id);
CREATE INDEX notice_id ON notice (id);

CREATE TABLE notice_overflow (       -- changes that are only counted: too many records wait
    target_id  INTEGER NOT NULL,
    node       INTEGER NOT NULL,     -- each process its own row: none waits for another
    kind       TEXT NOT NULL,
    message_id INTEGER NOT NULL,     -- 0: no message carries the count yet
    count      INTEGER NOT NULL,
    PRIMARY KEY (target_id, message_id, kind, node)
) WITHOUT ROWID;

CREATE TABLE notice_reminder (       -- the transitions for which reminders have been written
    days    INTEGER PRIMARY KEY,
    upto_id INTEGER NOT NULL         -- the last transition that was looked at
);
