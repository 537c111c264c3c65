-- Many processes on one store: the processes, the owners of buckets, the versions of topics.

CREATE TABLE process (            -- every process that has been here, until its node is needed
    id         bigint PRIMARY KEY,
    node       bigint NOT NULL UNIQUE, -- in the ids that it makes
    name       text NOT NULL,      -- host and process id
    role       text NOT NULL,      -- 'both', 'api' or 'deliver'
    delivers   smallint NOT NULL,      -- takes a share of the buckets
    started_at bigint NOT NULL,
    expires_at bigint NOT NULL       -- by the database's clock: its leases end with it
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);

CREATE TABLE lease (              -- one row for each bucket
    bucket smallint PRIMARY KEY,
    owner  bigint,                   -- a process; NULL: free
    epoch  bigint NOT NULL           -- rises with every new owner: fences late writers
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);

CREATE TABLE news (               -- the version of each topic, for processes that poll
    topic   text PRIMARY KEY,
    version bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);

CREATE INDEX endpoint_bucket ON endpoint (bucket, id);
INSERT INTO lease (bucket, owner, epoch) SELECT it, NULL, 0 FROM generate_series(0, 255) AS it;
