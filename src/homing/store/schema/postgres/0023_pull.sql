-- Subscriptions without a URL: the events that they may read, in the order of acceptance, and their readers.

CREATE TABLE pull_stream (          -- one for each such subscription
    subscription_id bigint PRIMARY KEY,
    tenant          text NOT NULL,
    position        bigint NOT NULL,    -- of its newest entry; a publish raises it in its commit, and holds the row
    removed         bigint NOT NULL     -- entries up to this position are past retention
) WITH (fillfactor = 50);
CREATE INDEX pull_stream_tenant ON pull_stream (tenant, subscription_id);

CREATE TABLE pull_entry (
    subscription_id bigint NOT NULL,
    position        bigint NOT NULL,    -- 1, 2, 3, …: the order of the commits
    event_id        bigint NOT NULL,
    PRIMARY KEY (subscription_id, position)
);

CREATE TABLE pull_reader (          -- how far each reader has acknowledged
    subscription_id bigint NOT NULL,
    name            text NOT NULL,
    position        bigint NOT NULL,
    created_at      bigint NOT NULL,
    acked_at        bigint,
    PRIMARY KEY (subscription_id, name)
);
