-- Notices to people: targets, one record per change and target, and counts beyond the limit.

CREATE TABLE notice_target (
    id           bigint PRIMARY KEY,
    tenant       text NOT NULL,      -- '': the operator
    kind         text NOT NULL,      -- 'email', 'slack', 'teams', 'webhook'
    name         text NOT NULL,
    address      text NOT NULL,      -- encrypted; '' once deleted
    address_hash bytea NOT NULL,
    secret       text NOT NULL,      -- encrypted
    secret_hash  bytea NOT NULL,      -- finds the target that a link confirms
    kinds        text NOT NULL,      -- JSON list; []: all
    quiet_hours  text NOT NULL,
    time_zone    text NOT NULL,
    created_at   bigint NOT NULL,
    confirmed_at bigint,            -- NULL: nothing but the confirmation is sent to it
    deleted_at   bigint,
    message_id   bigint NOT NULL,   -- of the message that is being sent; 0: none
    due_at       bigint NOT NULL,
    attempts     bigint NOT NULL,
    error        text NOT NULL,
    sent_at      bigint
);
CREATE INDEX notice_target_tenant ON notice_target (tenant, id) WHERE deleted_at IS NULL;
CREATE INDEX notice_target_created ON notice_target (tenant, created_at);
CREATE INDEX notice_target_address ON notice_target (address_hash, created_at);
CREATE INDEX notice_target_secret ON notice_target (secret_hash) WHERE confirmed_at IS NULL;
CREATE INDEX notice_target_confirming ON notice_target (id)
    WHERE confirmed_at IS NULL AND deleted_at IS NULL AND message_id <> 0;
CREATE INDEX notice_target_deleted ON notice_target (deleted_at) WHERE deleted_at IS NOT NULL;

CREATE TABLE notice (                -- a record: one change for one target
    target_id   bigint NOT NULL,
    id          bigint NOT NULL,    -- of the change
    owner       text NOT NULL,       -- the tenant of the target
    kind        text NOT NULL,
    at          bigint NOT NULL,
    tenant      text NOT NULL,       -- of the endpoint
    endpoint_id bigint NOT NULL,
    url         text NOT NULL,
    facts       text NOT NULL,       -- JSON object
    status      text NOT NULL,       -- 'waiting', 'sent', 'skipped'
    reason      text NOT NULL,
    message_id  bigint NOT NULL,    -- 0: no message carries it yet
    sent_at     bigint,
    PRIMARY KEY (target_id, id)
);
CREATE INDEX notice_waiting ON notice (target_id, id) WHERE status = 'waiting';
CREATE INDEX notice_owner ON notice (owner, id);
CREATE INDEX notice_id ON notice (id);

CREATE TABLE notice_overflow (       -- changes that are only counted: too many records wait
    target_id  bigint NOT NULL,
    node       bigint NOT NULL,     -- each process its own row: none waits for another
    kind       text NOT NULL,
    message_id bigint NOT NULL,     -- 0: no message carries the count yet
    count      bigint NOT NULL,
    PRIMARY KEY (target_id, message_id, kind, node)
);

CREATE TABLE notice_reminder (       -- the transitions for which reminders have been written
    days    bigint PRIMARY KEY,
    upto_id bigint NOT NULL         -- the last transition that was looked at
);
