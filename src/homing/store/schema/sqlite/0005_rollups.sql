-- Counts per minute, later per hour: of an endpoint, of a tenant, and of all.
--
-- An endpoint's row has its id and no tenant, a tenant's row no endpoint (0), the row of all neither.
-- b0 to b11 count lengths of time (store/rollups.py has the bounds): of an endpoint's row how long
-- attempts took, of the others from acceptance to delivered. Time comes first in the key: writing
-- touches the newest pages only, and each process has its own rows, so that nobody fights for one.

CREATE TABLE rollup (                -- per minute
    at          INTEGER NOT NULL,
    endpoint_id INTEGER NOT NULL,
    tenant      TEXT NOT NULL,
    node        INTEGER NOT NULL,
    delivered   INTEGER NOT NULL,
    failed      INTEGER NOT NULL,
    ours        INTEGER NOT NULL,
    dropped     INTEGER NOT NULL,
    b0          INTEGER NOT NULL,
    b1          INTEGER NOT NULL,
    b2          INTEGER NOT NULL,
    b3          INTEGER NOT NULL,
    b4          INTEGER NOT NULL,
    b5          INTEGER NOT NULL,
    b6          INTEGER NOT NULL,
    b7          INTEGER NOT NULL,
    b8          INTEGER NOT NULL,
    b9          INTEGER NOT NULL,
    b10         INTEGER NOT NULL,
    b11         INTEGER NOT NULL,
    PRIMARY KEY (at, endpoint_id, tenant, node)
) WITHOUT ROWID;

CREATE TABLE rollup_hour (
    at          INTEGER NOT NULL,
    endpoint_id INTEGER NOT NULL,
    tenant      TEXT NOT NULL,
    node        INTEGER NOT NULL,
    delivered   INTEGER NOT NULL,
    failed      INTEGER NOT NULL,
    ours        INTEGER NOT NULL,
    dropped     INTEGER NOT NULL,
    b0          INTEGER NOT NULL,
    b1          INTEGER NOT NULL,
    b2          INTEGER NOT NULL,
    b3          INTEGER NOT NULL,
    b4          INTEGER NOT NULL,
    b5          INTEGER NOT NULL,
    b6          INTEGER NOT NULL,
    b7          INTEGER NOT NULL,
    b8          INTEGER NOT NULL,
    b9          INTEGER NOT NULL,
    b10         INTEGER NOT NULL,
    b11         INTEGER NOT NULL,
    PRIMARY KEY (at, endpoint_id, tenant, node)
) WITHOUT ROWID;
