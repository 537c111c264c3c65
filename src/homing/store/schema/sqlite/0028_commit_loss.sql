-- Commits that a failover of the database has lost, as the processes noticed it.

CREATE TABLE commit_loss (
    id           INTEGER PRIMARY KEY,
    noticed_at   INTEGER NOT NULL,
    process      TEXT NOT NULL,
    kind         TEXT NOT NULL,       -- publish, settle, catalog or leases
    from_at      INTEGER,             -- commits may be missing since then; NULL: unknown
    upto_at      INTEGER NOT NULL,
    confirmed_at INTEGER              -- NULL: no operator has confirmed it yet
);
