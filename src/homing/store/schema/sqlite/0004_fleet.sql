-- Many processes on one store: the processes, the owners of buckets, the versions of topics.

CREATE TABLE process (            -- every process that has been here, until its node is needed
    id         INTEGER PRIMARY KEY,
    node       INTEGER NOT NULL UNIQUE, -- in the ids that it makes
    name       TEXT NOT NULL,      -- host and process id
    role       TEXT NOT NULL,      -- 'both', 'api' or 'deliver'
    delivers   INTEGER NOT NULL,      -- takes a share of the buckets
    started_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL       -- by the database's clock: its leases end with it
);

CREATE TABLE lease (              -- one row for each bucket
    bucket INTEGER PRIMARY KEY,
    owner  INTEGER,                   -- a process; NULL: free
    epoch  INTEGER NOT NULL           -- rises with every new owner: fences late writers
);

CREATE TABLE news (               -- the version of each topic, for processes that poll
    topic   TEXT PRIMARY KEY,
    version INTEGER NOT NULL
);

CREATE INDEX endpoint_bucket ON endpoint (bucket, id);
WITH RECURSIVE every (bucket) AS (SELECT 0 UNION ALL SELECT bucket + 1 FROM every WHERE bucket < 255)
INSERT INTO lease (bucket, owner, epoch) SELECT bucket, NULL, 0 FROM every;
