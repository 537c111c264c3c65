-- Counts per minute, later per hour: of an endpoint, of a tenant, and of all.
--
-- An endpoint's row has its id and no tenant, a tenant's row no endpoint (0), the row of all neither.
-- b0 to b11 count lengths of time (store/rollups.py has the bounds): of an endpoint's row how long
-- attempts took, of the others from acceptance to delivered. Time comes first in the key: writing
-- touches the newest pages only, and each process has its own rows, so that nobody fights for one.

CREATE TABLE rollup (                -- per minute
    at          bigint NOT NULL,
    endpoint_id bigint NOT NULL,
    tenant      text NOT NULL,
    node        integer NOT NULL,
    delivered   bigint NOT NULL,
    failed      bigint NOT NULL,
    ours        bigint NOT NULL,
    dropped     bigint NOT NULL,
    b0          bigint NOT NULL,
    b1          bigint NOT NULL,
    b2          bigint NOT NULL,
    b3          bigint NOT NULL,
    b4          bigint NOT NULL,
    b5          bigint NOT NULL,
    b6          bigint NOT NULL,
    b7          bigint NOT NULL,
    b8          bigint NOT NULL,
    b9          bigint NOT NULL,
    b10         bigint NOT NULL,
    b11         bigint NOT NULL,
    PRIMARY KEY (at, endpoint_id, tenant, node)
) WITH (fillfactor = 60);

CREATE TABLE rollup_hour (
    at          bigint NOT NULL,
    endpoint_id bigint NOT NULL,
    tenant      text NOT NULL,
    node        integer NOT NULL,
    delivered   bigint NOT NULL,
    failed      bigint NOT NULL,
    ours        bigint NOT NULL,
    dropped     bigint NOT NULL,
    b0          bigint NOT NULL,
    b1          bigint NOT NULL,
    b2          bigint NOT NULL,
    b3          bigint NOT NULL,
    b4          bigint NOT NULL,
    b5          bigint NOT NULL,
    b6          bigint NOT NULL,
    b7          bigint NOT NULL,
    b8          bigint NOT NULL,
    b9          bigint NOT NULL,
    b10         bigint NOT NULL,
    b11         bigint NOT NULL,
    PRIMARY KEY (at, endpoint_id, tenant, node)
);
