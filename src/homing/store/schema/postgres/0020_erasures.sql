-- Erasures: their progress, and the ids of erased events as keyed hashes. Nothing here has erased content.

CREATE TABLE erasure (
    id          bigint PRIMARY KEY,
    tenant      text NOT NULL,
    kind        text NOT NULL,      -- 'event', 'field' or 'tenant'
    path        text NOT NULL,      -- of the payload field, or ''
    subject     bytea NOT NULL,      -- keyed hashes of the event's id or of the field's value
    created_at  bigint NOT NULL,
    upto_id     bigint NOT NULL,   -- the event, or: nothing newer is erased
    version     bigint NOT NULL,   -- of the catalog: processes that have read it send nothing of it; 0: not yet
    more        smallint NOT NULL,   -- other events match, too
    events      bigint NOT NULL,
    deliveries  bigint NOT NULL,
    cancelled   bigint NOT NULL,   -- of these deliveries, those that were pending
    finished_at bigint             -- NULL: files or rows may still have some of it
);
CREATE INDEX erasure_running ON erasure (id) WHERE finished_at IS NULL;
CREATE INDEX erasure_version ON erasure (version);
CREATE INDEX erasure_tenant ON erasure (tenant, id);

CREATE TABLE erased_key (           -- a publish that repeats the id of an erased event gets the first receipt
    hash        bytea NOT NULL,      -- of tenant and id
    content     bytea NOT NULL,      -- of the content, to tell a repetition from a conflict
    deliveries  bigint NOT NULL,
    erasure_id  bigint NOT NULL,
    accepted_at bigint NOT NULL,   -- retention removes it when it would have removed the event
    PRIMARY KEY (hash)
);
CREATE INDEX erased_key_accepted ON erased_key (accepted_at);
