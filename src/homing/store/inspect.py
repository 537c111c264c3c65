"""A look at a store from outside, as ``homing doctor`` takes it: nothing is written or locked."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import cast

import apsw
from msgspec import Struct

from homing.errors import StoreUnavailable
from homing.store.sqlite import BUSY_MS

CONNECT_WITHIN_S = 5.0


class StoreFacts(Struct, frozen=True):
    """What can be seen of a store."""

    size_bytes: int
    version: str  # of the database program
    last_id: int  # the highest event id; 0 if there is none
    log_bytes: int = 0  # of SQLite's write-ahead log
    clock_ms: int | None = None  # the database's own, where it has one


def look_at_sqlite(file: Path) -> StoreFacts:
    """Raises StoreUnavailable."""
    try:
        connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            connection.set_busy_timeout(BUSY_MS)
            last = connection.execute("SELECT coalesce(max(id), 0) FROM event").get
        finally:
            connection.close()
        log = file.with_name(file.name + "-wal")
        return StoreFacts(
            size_bytes=file.stat().st_size,
            version=f"SQLite {apsw.sqlite_lib_version()}",
            last_id=cast("int", last),
            log_bytes=log.stat().st_size if log.exists() else 0,
        )
    except (apsw.Error, OSError) as error:
        raise StoreUnavailable(f"{file.name}: {error}.") from error


async def look_at_postgres(url: str) -> StoreFacts:
    """Raises StoreUnavailable."""
    import asyncpg

    try:
        connection = await asyncpg.connect(url, timeout=CONNECT_WITHIN_S)
        try:
            row = await connection.fetchrow(
                "SELECT pg_database_size(current_database()),"
                " current_setting('server_version'),"
                " (extract(epoch FROM clock_timestamp()) * 1000)::bigint,"
                " to_regclass('event') IS NOT NULL"
            )
            last = 0
            if row[3]:
                last = await connection.fetchval("SELECT coalesce(max(id), 0) FROM event")
        finally:
            await connection.close()
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
        # Only the kind of error: its text could name the password.
        raise StoreUnavailable(f"PostgreSQL: {type(error).__name__}.") from error
    return StoreFacts(
        size_bytes=int(row[0]),
        version=f"PostgreSQL {row[1]}",
        last_id=int(last),
        clock_ms=int(row[2]),
    )


def holder(database: Path) -> int | None:
    """The process that holds this SQLite data, if it is alive."""
    with contextlib.suppress(OSError, ValueError):
        number = int(Path(f"{database}.lock").read_text(encoding="ascii"))
        if number > 0:
            os.kill(number, 0)
            return number
    return None
