-- Subscriptions without a URL: the events that they may read, in the order of acceptance, and their readers.

CREATE TABLE pull_stream (          -- one for each such subscription
    subscription_id INTEGER PRIMARY KEY,
    tenant          TEXT NOT NULL,
    position        INTEGER NOT NULL,   -- of its newest entry; a publish raises it in its commit
    removed         INTEGER NOT NULL    -- entries up to this position are past retention
);
CREATE INDEX pull_stream_tenant ON pull_stream (tenant, subscription_id);

CREATE TABLE pull_entry (
    subscription_id INTEGER NOT NULL,
    position        INTEGER NOT NULL,   -- 1, 2, 3, …: the order of the commits
    event_id        INTEGER NOT NULL,
    PRIMARY KEY (subscription_id, position)
) WITHOUT ROWID;

CREATE TABLE pull_reader (          -- how far each reader has acknowledged
    subscription_id INTEGER NOT NULL,
    name            TEXT NOT NULL,
    position        INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    acked_at        INTEGER,
    PRIMARY KEY (subscription_id, name)
) WITHOUT ROWID;
