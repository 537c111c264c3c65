-- Commits that a failover of the database has lost, as the processes noticed it.

CREATE TABLE commit_loss (
    id           bigint PRIMARY KEY,
    noticed_at   bigint NOT NULL,
    process      text NOT NULL,
    kind         text NOT NULL,       -- publish, settle, catalog or leases
    from_at      bigint,             -- commits may be missing since then; NULL: unknown
    upto_at      bigint NOT NULL,
    confirmed_at bigint              -- NULL: no operator has confirmed it yet
);
