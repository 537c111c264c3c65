"""What PostgreSQL itself writes down during a run: who held a bucket, and who settled what.

Triggers see it from inside the transactions, by one clock, and lose nothing when a process dies.
"""

from __future__ import annotations

import asyncpg

from fleet.house import fetch
from fleet.judge import Hand, Settled

AUDIT = """
CREATE TABLE audit_settled (delivery_id bigint, at double precision);
CREATE TABLE audit_hands (bucket integer, owner bigint, at double precision);
CREATE TABLE audit_late (who text, bucket integer, what text);
CREATE TABLE audit_disabled (at double precision);

CREATE FUNCTION audit_now() RETURNS double precision LANGUAGE sql VOLATILE AS
$$ SELECT extract(epoch FROM clock_timestamp())::double precision $$;

-- Who writes under a bucket must hold it at that moment, by the lease table itself.
CREATE FUNCTION audit_writer(buckets integer[], what text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO audit_late (who, bucket, what)
    SELECT current_setting('application_name'), l.bucket, what
    FROM lease l LEFT JOIN process p ON p.id = l.owner
    WHERE l.bucket = ANY(buckets)
    AND 'homing ' || p.name IS DISTINCT FROM current_setting('application_name')
$$;

CREATE FUNCTION audit_pending() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit_settled SELECT id, audit_now() FROM gone;
    PERFORM audit_writer((SELECT array_agg(DISTINCT bucket) FROM gone), 'pending');
    RETURN NULL;
END $$;
CREATE TRIGGER audited AFTER DELETE ON pending
REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION audit_pending();

CREATE FUNCTION audit_attempt() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM audit_writer((SELECT array_agg(DISTINCT e.bucket) FROM fresh
                          JOIN endpoint e ON e.id = fresh.endpoint_id), 'attempt');
    RETURN NULL;
END $$;
CREATE TRIGGER audited AFTER INSERT ON attempt
REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION audit_attempt();

CREATE FUNCTION audit_lease() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit_hands SELECT bucket, owner, audit_now() FROM fresh;
    RETURN NULL;
END $$;
CREATE TRIGGER audited AFTER UPDATE ON lease
REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION audit_lease();

CREATE FUNCTION audit_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit_disabled SELECT audit_now() FROM fresh WHERE after = 'disabled';
    RETURN NULL;
END $$;
CREATE TRIGGER audited AFTER INSERT ON transition
REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION audit_transition();

INSERT INTO audit_hands SELECT bucket, owner, audit_now() FROM lease;
"""


async def begin(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(AUDIT)
    await connection.close()


async def settled(dsn: str) -> dict[int, Settled]:
    """When each delivery left ``pending``."""
    rows = await fetch(dsn, "SELECT delivery_id, at FROM audit_settled")
    return dict(rows)


async def hands(dsn: str) -> dict[int, list[Hand]]:
    """For each bucket who held it from when on; the holder by pid, None: nobody."""
    rows = await fetch(
        dsn,
        "SELECT h.bucket, split_part(p.name, ':', 2), h.at FROM audit_hands h"
        " LEFT JOIN process p ON p.id = h.owner ORDER BY h.at",
    )
    found: dict[int, list[Hand]] = {}
    for bucket, pid, at in rows:
        found.setdefault(bucket, []).append(Hand(int(pid) if pid else None, at))
    return found


async def failed(dsn: str) -> set[tuple[int, int]]:
    """The attempts that are recorded as failed."""
    rows = await fetch(dsn, "SELECT delivery_id, number FROM attempt WHERE outcome <> 'delivered'")
    return {(delivery_id, number) for delivery_id, number in rows}


async def late(dsn: str) -> int:
    return int((await fetch(dsn, "SELECT count(*) FROM audit_late"))[0][0])


async def disabled_at(dsn: str) -> float | None:
    at = (await fetch(dsn, "SELECT min(at) FROM audit_disabled"))[0][0]
    return None if at is None else float(at)


async def buckets(dsn: str) -> dict[str, int]:
    """The bucket of each path."""
    rows = await fetch(dsn, "SELECT url, bucket FROM endpoint")
    return {"/" + url.split("/", 3)[3]: bucket for url, bucket in rows}


async def left(dsn: str) -> int:
    """What is not settled yet, but for the dead endpoint."""
    text = (
        "SELECT count(*) FROM pending p JOIN endpoint e ON e.id = p.endpoint_id"
        " WHERE e.url NOT LIKE '%/dead'"
    )
    return int((await fetch(dsn, text))[0][0])
