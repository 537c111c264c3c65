"""A look at a PostgreSQL from outside, for ``homing doctor``: vacuum, snapshots, who is there."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from homing.errors import StoreUnavailable

CONNECT_WITHIN_S = 5.0

_NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_DEAD = """
    SELECT relname, n_live_tup, n_dead_tup FROM pg_stat_user_tables
    WHERE schemaname = current_schema()
    AND relname IN ('pending', 'endpoint', 'lease', 'process', 'ledger', 'batch_mark', 'event_key')
    ORDER BY relname
"""
_SNAPSHOT = """
    SELECT coalesce(max((extract(epoch FROM clock_timestamp() - xact_start) * 1000)::bigint), 0),
        coalesce((array_agg(application_name ORDER BY xact_start))[1], '')
    FROM pg_stat_activity
    WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
"""
_DAYS = """
    SELECT coalesce(max(substring(c.relname FROM '_d([0-9]+)$')::bigint), -1)
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = to_regclass('history')
"""
_LEASES = f"""
    SELECT p.id, p.name, p.role, p.expires_at > {_NOW}, count(l.bucket)
    FROM process p LEFT JOIN lease l ON l.owner = p.id
    GROUP BY p.id, p.name, p.role, p.expires_at
    HAVING p.expires_at > {_NOW} OR count(l.bucket) > 0
    ORDER BY p.id
"""  # noqa: S608
_FREE = "SELECT count(*) FROM lease WHERE owner IS NULL"


class Crew(Struct, frozen=True):
    """One process and how many buckets it holds."""

    id: int
    name: str
    role: str
    alive: bool
    buckets: int


class FleetFacts(Struct, frozen=True):
    """What can be seen of a fleet's database."""

    dead: dict[str, tuple[int, int]]  # table → live rows, dead rows
    oldest_ms: int  # the age of the oldest transaction that vacuum must respect
    oldest_name: str  # whose it is
    last_day: int  # the last day that has its part, since 1970; -1: none
    now_ms: int
    crew: tuple[Crew, ...]
    free: int  # buckets that nobody holds


async def look_at_fleet(url: str) -> FleetFacts:
    """Raises StoreUnavailable."""
    import asyncpg

    try:
        connection: Any = await asyncpg.connect(
            url, timeout=CONNECT_WITHIN_S, command_timeout=CONNECT_WITHIN_S, statement_cache_size=0
        )
        try:
            dead = {row[0]: (row[1], row[2]) for row in await connection.fetch(_DEAD)}
            oldest = await connection.fetchrow(_SNAPSHOT)
            crew = tuple(Crew(*row) for row in await connection.fetch(_LEASES))
            return FleetFacts(
                dead=dead,
                oldest_ms=int(oldest[0]),
                oldest_name=str(oldest[1]),
                last_day=int(await connection.fetchval(_DAYS)),
                now_ms=int(await connection.fetchval(f"SELECT {_NOW}")),
                crew=crew,
                free=int(await connection.fetchval(_FREE)),
            )
        finally:
            await connection.close()
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
        # Only the kind of error: its text could name the password.
        raise StoreUnavailable(f"PostgreSQL: {type(error).__name__}.") from error
