-- Erasures: their progress, and the ids of erased events as keyed hashes. Nothing here has erased content.

CREATE TABLE erasure (
    id          INTEGER PRIMARY KEY,
    tenant      TEXT NOT NULL,
    kind        TEXT NOT NULL,      -- 'event', 'field' or 'tenant'
    path        TEXT NOT NULL,      -- of the payload field, or ''
    subject     BLOB NOT NULL,      -- keyed hashes of the event's id or of the field's value
    created_at  INTEGER NOT NULL,
    upto_id     INTEGER NOT NULL,   -- the event, or: nothing newer is erased
    version     INTEGER NOT NULL,   -- of the catalog: processes that have read it send nothing of it; 0: not yet
    more        INTEGER NOT NULL,   -- other events match, too
    events      INTEGER NOT NULL,
    deliveries  INTEGER NOT NULL,
    cancelled   INTEGER NOT NULL,   -- of these deliveries, those that were pending
    finished_at INTEGER             -- NULL: files or rows may still have some of it
);
CREATE INDEX erasure_running ON erasure (id) WHERE finished_at IS NULL;
CREATE INDEX erasure_version ON erasure (version);
CREATE INDEX erasure_tenant ON erasure (tenant, id);

CREATE TABLE erased_key (           -- a publish that repeats the id of an erased event gets the first receipt
    hash        BLOB NOT NULL,      -- of tenant and id
    content     BLOB NOT NULL,      -- of the content, to tell a repetition from a conflict
    deliveries  INTEGER NOT NULL,
    erasure_id  INTEGER NOT NULL,
    accepted_at INTEGER NOT NULL,   -- retention removes it when it would have removed the event
    PRIMARY KEY (hash)
) WITHOUT ROWID;
CREATE INDEX erased_key_accepted ON erased_key (accepted_at);
