"""Reads facts about a store for ``homing doctor``, without writes and locks."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, cast

import apsw
from msgspec import Struct

from homing.errors import StoreUnavailable
from homing.store.connect import HostState, connect, host_states
from homing.store.migrate import MOVED, MOVED_TABLE
from homing.store.postgres_refusals import CONNECTION_ERRORS, refusal_text
from homing.store.sqlite import BUSY_MS, sqlite_reason

CONNECT_WITHIN_S = 5.0
DURABLE = ["fsync", "full_page_writes", "synchronous_commit"]


class StoreFacts(Struct, frozen=True):
    """Facts about a store."""

    size_bytes: int
    version: str  # of the database program
    last_id: int  # the highest event id; 0 if there is none
    log_bytes: int = 0  # of SQLite's write-ahead log
    clock_ms: int | None = None  # the database's own, where it has one
    durability: dict[str, str] = {}  # PostgreSQL's settings that decide whether a commit survives
    async_standbys: tuple[str, ...] = ()  # A failover to one of them may lose commits.
    hidden_standbys: int = 0  # whose state this user may not see
    hosts: tuple[HostState, ...] = ()  # of an address that names several
    moved_to: str = ""  # where `homing move` has moved the installation; empty: it is here


def inspect_sqlite(file: Path) -> StoreFacts:
    """Raises StoreUnavailable."""
    try:
        connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            connection.set_busy_timeout(BUSY_MS)
            last = connection.execute("SELECT coalesce(max(id), 0) FROM event").get
            moved_to = ""
            if list(connection.execute(MOVED["sqlite"])):
                moved_to = str(connection.execute(f"SELECT place FROM {MOVED_TABLE}").get)  # noqa: S608
        finally:
            connection.close()
        log = file.with_name(file.name + "-wal")
        return StoreFacts(
            size_bytes=file.stat().st_size,
            version=f"SQLite {apsw.sqlite_lib_version()}",
            last_id=cast("int", last),
            log_bytes=log.stat().st_size if log.exists() else 0,
            moved_to=moved_to,
        )
    except apsw.Error as error:
        raise StoreUnavailable(f"{file}: {sqlite_reason(error)}") from error
    except OSError as error:
        raise StoreUnavailable(f"{file}: {error.strerror}.") from error


async def inspect_postgres(url: str) -> StoreFacts:
    """Raises StoreUnavailable."""
    try:
        connection = await connect(url, within_s=CONNECT_WITHIN_S)
        try:
            row = await connection.fetchrow(
                "SELECT pg_database_size(current_database()),"
                " current_setting('server_version'),"
                " (extract(epoch FROM clock_timestamp()) * 1000)::bigint,"
                " to_regclass('event') IS NOT NULL"
            )
            durability = {
                str(one[0]): str(one[1])
                for one in await connection.fetch(
                    "SELECT name, setting FROM pg_settings WHERE name = ANY($1::text[])", DURABLE
                )
            }
            standbys = await connection.fetch(
                "SELECT coalesce(nullif(application_name, ''), client_addr::text, 'unnamed'),"
                " sync_state FROM pg_stat_replication ORDER BY 1"
            )
            moved_to = ""
            if await connection.fetchval(MOVED["postgres"]):
                moved_to = str(await connection.fetchval(f"SELECT place FROM {MOVED_TABLE}"))  # noqa: S608
            last = 0
            if row[3]:
                last = await connection.fetchval("SELECT coalesce(max(id), 0) FROM event")
        finally:
            await connection.close()
        hosts = await host_states(url, within_s=CONNECT_WITHIN_S)
    except CONNECTION_ERRORS as error:
        raise StoreUnavailable(refusal_text(error, url)) from error
    return StoreFacts(
        size_bytes=int(row[0]),
        version=f"PostgreSQL {row[1]}",
        last_id=int(last),
        clock_ms=int(row[2]),
        durability=durability,
        async_standbys=tuple(str(one[0]) for one in standbys if one[1] == "async"),
        hidden_standbys=sum(one[1] is None for one in standbys),
        hosts=hosts,
        moved_to=moved_to,
    )


def holder(database: Path) -> int | None:
    """The id of the running process that has this SQLite file open, if there is one."""
    with contextlib.suppress(OSError, ValueError):
        number = int(Path(f"{database}.lock").read_text(encoding="ascii"))
        if number > 0:
            os.kill(number, 0)
            return number
    return None


# --- the database of a fleet ----------------------------------------------------------------

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


class FleetProcess(Struct, frozen=True):
    """One process and how many buckets it holds."""

    id: int
    name: str
    role: str
    alive: bool
    buckets: int


class FleetFacts(Struct, frozen=True):
    """Facts about the database of a fleet."""

    dead: dict[str, tuple[int, int]]  # table → live rows, dead rows
    oldest_ms: int  # the age of the oldest transaction that holds back vacuum
    oldest_name: str  # of the program that has it open
    last_day: int  # the last day that has a partition, since 1970; -1: none
    now_ms: int
    processes: tuple[FleetProcess, ...]
    free: int  # buckets without an owner


async def inspect_fleet(url: str) -> FleetFacts:
    """Raises StoreUnavailable."""
    try:
        connection: Any = await connect(
            url, within_s=CONNECT_WITHIN_S, command_timeout=CONNECT_WITHIN_S, statement_cache_size=0
        )
        try:
            dead = {row[0]: (row[1], row[2]) for row in await connection.fetch(_DEAD)}
            oldest = await connection.fetchrow(_SNAPSHOT)
            processes = tuple(FleetProcess(*row) for row in await connection.fetch(_LEASES))
            return FleetFacts(
                dead=dead,
                oldest_ms=int(oldest[0]),
                oldest_name=str(oldest[1]),
                last_day=int(await connection.fetchval(_DAYS)),
                now_ms=int(await connection.fetchval(f"SELECT {_NOW}")),
                processes=processes,
                free=int(await connection.fetchval(_FREE)),
            )
        finally:
            await connection.close()
    except CONNECTION_ERRORS as error:
        raise StoreUnavailable(refusal_text(error, url)) from error
