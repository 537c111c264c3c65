-- The core tables, as on SQLite. Pending is small, history is append-only; times are milliseconds
-- UTC; truth values are 0 and 1. Events, history and attempts are parted by day (an id carries its
-- time) and go by the day; what fits no day lies in the default part.

CREATE TABLE catalog (            -- the version that every change of a subscription raises
    one     smallint PRIMARY KEY CHECK (one = 1),
    version bigint NOT NULL
);
INSERT INTO catalog (one, version) VALUES (1, 0);
-- Publishers share a lock and changes take it alone. Unlike locks on the row it is fair: a change
-- waits for the publishers before it, never for those after it. The version is read under it.
CREATE FUNCTION hold_catalog() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(7239140553); RETURN (SELECT version FROM catalog); END
$$;

CREATE TABLE batch_mark (         -- the last batch committed: recognises a commit whose reply was lost
    node   integer NOT NULL,
    kind   text NOT NULL,         -- 'publish' or 'settle'
    number bigint NOT NULL,
    PRIMARY KEY (node, kind)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);

CREATE TABLE subscription (
    id          bigint PRIMARY KEY,
    tenant      text NOT NULL,
    endpoint_id bigint NOT NULL,
    url         text NOT NULL,
    types       text NOT NULL,    -- JSON array
    format      text NOT NULL,
    secrets     text NOT NULL,    -- JSON array of {value, until}
    token       text,
    headers     text NOT NULL,    -- JSON array of [name, value]
    policy      text,
    deadline_ms integer,
    active      smallint NOT NULL,
    description text NOT NULL,
    created_at  bigint NOT NULL,
    updated_at  bigint NOT NULL,
    deleted_at  bigint,
    version     bigint NOT NULL
);
CREATE INDEX subscription_version ON subscription (version);
CREATE INDEX subscription_tenant ON subscription (tenant, id) WHERE deleted_at IS NULL;
CREATE INDEX subscription_endpoint ON subscription (endpoint_id);
CREATE INDEX subscription_deleted ON subscription (deleted_at) WHERE deleted_at IS NOT NULL;

CREATE TABLE endpoint (           -- rewritten by every settle: room on the page, vacuumed often
    id                   bigint PRIMARY KEY,
    bucket               smallint NOT NULL,
    tenant               text NOT NULL,
    url                  text NOT NULL,
    created_at           bigint NOT NULL,
    generation           bigint NOT NULL,
    state                text NOT NULL,
    since                bigint NOT NULL,
    enabled_since        bigint NOT NULL,
    attempts             bigint NOT NULL,
    failures             bigint NOT NULL,
    consecutive_failures bigint NOT NULL,
    first_attempt_at     bigint,
    last_success_at      bigint,
    manual_enable_at     bigint,
    warned               integer NOT NULL,
    next_probe_at        bigint,
    probe_after_id       bigint NOT NULL,
    hold_until           bigint NOT NULL,
    dropped_unreported   bigint NOT NULL,
    dropped_reported_at  bigint NOT NULL,
    rule                 text NOT NULL,
    UNIQUE (tenant, url)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.05,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX endpoint_held ON endpoint (state, id) WHERE state <> 'enabled';

CREATE TABLE event_key (          -- one id, one event, per tenant, while the event is kept
    tenant       text NOT NULL,
    key          text NOT NULL,
    event_id     bigint NOT NULL,
    content_hash bytea NOT NULL,
    PRIMARY KEY (tenant, key)
);

CREATE TABLE event (
    id          bigint PRIMARY KEY,
    tenant      text NOT NULL,
    key         text NOT NULL,
    type        text NOT NULL,
    time        text NOT NULL,
    accepted_at bigint NOT NULL,
    data        bytea NOT NULL,
    deliveries  integer NOT NULL, -- made when it was published
    last_id     bigint NOT NULL   -- of those deliveries, whose ids lie in (id, last_id]
) PARTITION BY RANGE (id);
CREATE TABLE event_default PARTITION OF event DEFAULT;

CREATE TABLE pending (            -- rows come and go: vacuumed often, so that no seek meets the dead
    id              bigint PRIMARY KEY,
    bucket          smallint NOT NULL,
    tenant          text NOT NULL,
    endpoint_id     bigint NOT NULL,
    subscription_id bigint NOT NULL,
    event_id        bigint NOT NULL,
    root_id         bigint NOT NULL,
    accepted_at     bigint NOT NULL,
    part            smallint NOT NULL, -- 0 never attempted, 1 replay never attempted, 2 tried
    due_at          bigint NOT NULL,
    expires_at      bigint NOT NULL,
    t0              bigint,
    retry           integer NOT NULL,
    attempts        integer NOT NULL,
    ours            integer NOT NULL,
    replay          smallint NOT NULL
) WITH (autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_analyze_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX pending_due ON pending (endpoint_id, part, due_at, id);   -- dispatch
CREATE INDEX pending_endpoint ON pending (endpoint_id, id);            -- probe, expire, list
CREATE INDEX pending_replay ON pending (event_id) WHERE replay = 1;    -- retention asks: is it still needed?

CREATE TABLE history (
    id              bigint PRIMARY KEY,
    bucket          smallint NOT NULL,
    tenant          text NOT NULL,
    endpoint_id     bigint NOT NULL,
    subscription_id bigint NOT NULL,
    event_id        bigint NOT NULL,
    root_id         bigint NOT NULL,
    accepted_at     bigint NOT NULL,
    due_at          bigint NOT NULL,
    expires_at      bigint NOT NULL,
    t0              bigint,
    retry           integer NOT NULL,
    attempts        integer NOT NULL,
    ours            integer NOT NULL,
    replay          smallint NOT NULL,
    status          text NOT NULL,
    reason          text,
    finished_at     bigint NOT NULL,
    arrived         smallint NOT NULL
) PARTITION BY RANGE (id);
CREATE INDEX history_endpoint ON history (endpoint_id, id);            -- an endpoint's list
CREATE INDEX history_undelivered ON history (status, id) WHERE status <> 'delivered';
CREATE INDEX history_finished ON history USING brin (finished_at);     -- may this day go?
CREATE TABLE history_default PARTITION OF history DEFAULT;

CREATE TABLE attempt (
    delivery_id     bigint NOT NULL,
    number          integer NOT NULL,
    endpoint_id     bigint NOT NULL,
    subscription_id bigint NOT NULL,
    lane            text NOT NULL,
    started_at      bigint NOT NULL,
    finished_at     bigint NOT NULL,
    outcome         text NOT NULL,
    code            integer,
    failure         text,
    detail          text NOT NULL,
    address         text,
    dns_us          bigint,
    connect_us      bigint,
    tls_us          bigint,
    first_byte_us   bigint,
    total_us        bigint NOT NULL,
    request_headers bytea NOT NULL,
    answer_headers  bytea NOT NULL,
    excerpt         bytea NOT NULL,
    decided         text NOT NULL,
    due_at          bigint,
    retry           integer NOT NULL,
    PRIMARY KEY (delivery_id, number)
) PARTITION BY RANGE (delivery_id);
CREATE TABLE attempt_default PARTITION OF attempt DEFAULT;

CREATE TABLE transition (
    id          bigint PRIMARY KEY,
    endpoint_id bigint NOT NULL,
    at          bigint NOT NULL,
    before      text NOT NULL,
    after       text NOT NULL,
    rule        text NOT NULL,
    numbers     text NOT NULL,    -- JSON object
    by          text NOT NULL
);
CREATE INDEX transition_endpoint ON transition (endpoint_id, id);

CREATE TABLE replay_link (        -- the replays of an event, which lie outside its range of ids
    event_id    bigint NOT NULL,
    delivery_id bigint NOT NULL,
    PRIMARY KEY (event_id, delivery_id)
);

CREATE TABLE replay_job (
    id         bigint PRIMARY KEY,
    filter     text NOT NULL,     -- JSON object
    created_at bigint NOT NULL,
    state      text NOT NULL,     -- 'running', 'done', 'cancelled'
    upto_id    bigint NOT NULL,
    after_id   bigint NOT NULL,
    looked_at  bigint NOT NULL,
    replayed   bigint NOT NULL,
    skipped    bigint NOT NULL
);

CREATE TABLE chore (              -- bulk work left by a change, done in bounded steps
    id              bigint PRIMARY KEY,
    kind            text NOT NULL, -- 'move' or 'cancel'
    subscription_id bigint NOT NULL,
    endpoint_id     bigint NOT NULL,
    after_id        bigint NOT NULL
);

CREATE TABLE ledger (             -- accepted = delivered + pending + dropped + cancelled
    tenant    text NOT NULL,
    node      integer NOT NULL,   -- each process its own row: nobody fights for one
    accepted  bigint NOT NULL,
    delivered bigint NOT NULL,
    dropped   bigint NOT NULL,
    cancelled bigint NOT NULL,
    PRIMARY KEY (tenant, node)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);
