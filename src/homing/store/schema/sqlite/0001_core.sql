-- The core tables. Pending is small, history is append-only; times are milliseconds UTC.

CREATE TABLE catalog (            -- the version that every change of a subscription raises
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL
);
INSERT INTO catalog (one, version) VALUES (1, 0);

CREATE TABLE batch_mark (         -- the last batch committed: recognises a commit whose reply was lost
    node   INTEGER NOT NULL,
    kind   TEXT NOT NULL,         -- 'publish' or 'settle'
    number INTEGER NOT NULL,
    PRIMARY KEY (node, kind)
) WITHOUT ROWID;

CREATE TABLE subscription (
    id          INTEGER PRIMARY KEY,
    tenant      TEXT NOT NULL,
    endpoint_id INTEGER NOT NULL,
    url         TEXT NOT NULL,
    types       TEXT NOT NULL,    -- JSON array
    format      TEXT NOT NULL,
    secrets     TEXT NOT NULL,    -- JSON array of {value, until}
    token       TEXT,
    headers     TEXT NOT NULL,    -- JSON array of [name, value]
    policy      TEXT,
    deadline_ms INTEGER,
    active      INTEGER NOT NULL,
    description TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    deleted_at  INTEGER,
    version     INTEGER NOT NULL
);
CREATE INDEX subscription_version ON subscription (version);
CREATE INDEX subscription_tenant ON subscription (tenant, id) WHERE deleted_at IS NULL;
CREATE INDEX subscription_endpoint ON subscription (endpoint_id);
CREATE INDEX subscription_deleted ON subscription (deleted_at) WHERE deleted_at IS NOT NULL;

CREATE TABLE endpoint (
    id                   INTEGER PRIMARY KEY,
    bucket               INTEGER NOT NULL,
    tenant               TEXT NOT NULL,
    url                  TEXT NOT NULL,
    created_at           INTEGER NOT NULL,
    generation           INTEGER NOT NULL,
    state                TEXT NOT NULL,
    since                INTEGER NOT NULL,
    enabled_since        INTEGER NOT NULL,
    attempts             INTEGER NOT NULL,
    failures             INTEGER NOT NULL,
    consecutive_failures INTEGER NOT NULL,
    first_attempt_at     INTEGER,
    last_success_at      INTEGER,
    manual_enable_at     INTEGER,
    warned               INTEGER NOT NULL,
    next_probe_at        INTEGER,
    probe_after_id       INTEGER NOT NULL,
    hold_until           INTEGER NOT NULL,
    dropped_unreported   INTEGER NOT NULL,
    dropped_reported_at  INTEGER NOT NULL,
    rule                 TEXT NOT NULL,
    UNIQUE (tenant, url)
);
CREATE INDEX endpoint_held ON endpoint (state, id) WHERE state <> 'enabled';

CREATE TABLE event_key (          -- one id, one event, per tenant, while the event is kept
    tenant       TEXT NOT NULL,
    key          TEXT NOT NULL,
    event_id     INTEGER NOT NULL,
    content_hash BLOB NOT NULL,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;

CREATE TABLE event (
    id          INTEGER PRIMARY KEY,
    tenant      TEXT NOT NULL,
    key         TEXT NOT NULL,
    type        TEXT NOT NULL,
    time        TEXT NOT NULL,
    accepted_at INTEGER NOT NULL,
    data        BLOB NOT NULL,
    deliveries  INTEGER NOT NULL, -- made when it was published
    last_id     INTEGER NOT NULL  -- of those deliveries, whose ids lie in (id, last_id]
);

CREATE TABLE pending (
    id              INTEGER PRIMARY KEY,
    bucket          INTEGER NOT NULL,
    tenant          TEXT NOT NULL,
    endpoint_id     INTEGER NOT NULL,
    subscription_id INTEGER NOT NULL,
    event_id        INTEGER NOT NULL,
    root_id         INTEGER NOT NULL,
    accepted_at     INTEGER NOT NULL,
    part            INTEGER NOT NULL, -- 0 never attempted, 1 replay never attempted, 2 tried
    due_at          INTEGER NOT NULL,
    expires_at      INTEGER NOT NULL,
    t0              INTEGER,
    retry           INTEGER NOT NULL,
    attempts        INTEGER NOT NULL,
    ours            INTEGER NOT NULL,
    replay          INTEGER NOT NULL
);
CREATE INDEX pending_due ON pending (endpoint_id, part, due_at, id);   -- dispatch
CREATE INDEX pending_endpoint ON pending (endpoint_id, id);            -- probe, expire, list
CREATE INDEX pending_replay ON pending (event_id) WHERE replay = 1;    -- retention asks: is it still needed?

CREATE TABLE history (
    id              INTEGER PRIMARY KEY,
    bucket          INTEGER NOT NULL,
    tenant          TEXT NOT NULL,
    endpoint_id     INTEGER NOT NULL,
    subscription_id INTEGER NOT NULL,
    event_id        INTEGER NOT NULL,
    root_id         INTEGER NOT NULL,
    accepted_at     INTEGER NOT NULL,
    due_at          INTEGER NOT NULL,
    expires_at      INTEGER NOT NULL,
    t0              INTEGER,
    retry           INTEGER NOT NULL,
    attempts        INTEGER NOT NULL,
    ours            INTEGER NOT NULL,
    replay          INTEGER NOT NULL,
    status          TEXT NOT NULL,
    reason          TEXT,
    finished_at     INTEGER NOT NULL,
    arrived         INTEGER NOT NULL
);
CREATE INDEX history_endpoint ON history (endpoint_id, id);            -- an endpoint's list
CREATE INDEX history_undelivered ON history (status, id) WHERE status <> 'delivered';

CREATE TABLE attempt (
    delivery_id     INTEGER NOT NULL,
    number          INTEGER NOT NULL,
    endpoint_id     INTEGER NOT NULL,
    subscription_id INTEGER NOT NULL,
    lane            TEXT NOT NULL,
    started_at      INTEGER NOT NULL,
    finished_at     INTEGER NOT NULL,
    outcome         TEXT NOT NULL,
    code            INTEGER,
    failure         TEXT,
    detail          TEXT NOT NULL,
    address         TEXT,
    dns_us          INTEGER,
    connect_us      INTEGER,
    tls_us          INTEGER,
    first_byte_us   INTEGER,
    total_us        INTEGER NOT NULL,
    request_headers BLOB NOT NULL,
    answer_headers  BLOB NOT NULL,
    excerpt         BLOB NOT NULL,
    decided         TEXT NOT NULL,
    due_at          INTEGER,
    retry           INTEGER NOT NULL,
    PRIMARY KEY (delivery_id, number)
) WITHOUT ROWID;

CREATE TABLE transition (
    id          INTEGER PRIMARY KEY,
    endpoint_id INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    before      TEXT NOT NULL,
    after       TEXT NOT NULL,
    rule        TEXT NOT NULL,
    numbers     TEXT NOT NULL,    -- JSON object
    by          TEXT NOT NULL
);
CREATE INDEX transition_endpoint ON transition (endpoint_id, id);

CREATE TABLE replay_link (        -- the replays of an event, which lie outside its range of ids
    event_id    INTEGER NOT NULL,
    delivery_id INTEGER NOT NULL,
    PRIMARY KEY (event_id, delivery_id)
) WITHOUT ROWID;

CREATE TABLE replay_job (
    id         INTEGER PRIMARY KEY,
    filter     TEXT NOT NULL,     -- JSON object
    created_at INTEGER NOT NULL,
    state      TEXT NOT NULL,     -- 'running', 'done', 'cancelled'
    upto_id    INTEGER NOT NULL,
    after_id   INTEGER NOT NULL,
    looked_at  INTEGER NOT NULL,
    replayed   INTEGER NOT NULL,
    skipped    INTEGER NOT NULL
);

CREATE TABLE chore (              -- bulk work left by a change, done in bounded steps
    id              INTEGER PRIMARY KEY,
    kind            TEXT NOT NULL, -- 'move' or 'cancel'
    subscription_id INTEGER NOT NULL,
    endpoint_id     INTEGER NOT NULL,
    after_id        INTEGER NOT NULL
);

CREATE TABLE ledger (             -- accepted = delivered + pending + dropped + cancelled
    tenant    TEXT NOT NULL,
    node      INTEGER NOT NULL,   -- each process its own row: nobody fights for one
    accepted  INTEGER NOT NULL,
    delivered INTEGER NOT NULL,
    dropped   INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    PRIMARY KEY (tenant, node)
) WITHOUT ROWID;
