"""An outbox in SQLite: read without a lock, so that the application can write meanwhile.

Two relays on one file publish the same rows twice, which makes one event of each pair. The journal
mode of the file is not changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, cast

import apsw
import msgspec

from homing.errors import BadSetting, StoreUnavailable
from homing.ports import OutboxRow, OutboxStats, RefusedRow, RelayedRows, RelayRows
from homing.store.outbox.install import NOT_INSTALLED, REASON_CHARS
from homing.store.sqlite import Inline, Runner, Thread

T = TypeVar("T")

COUNTED = 10_000
BUSY_MS = 5_000
POLL_EVERY_S = 0.05  # Each poll reads one number in memory, which every commit changes.
_NOW = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"

# Text is read as bytes: SQLite does not check that it is UTF-8. A row that is not must be refused
# alone, without stopping the others.
#
# A table from before keys has no such column. A name that the innermost query does not know is
# looked up in the query around it, where ``absent`` has it: so one statement reads both tables.
_TAKE = """
    SELECT number, CAST(id AS BLOB), CAST(tenant AS BLOB), CAST(type AS BLOB), CAST(data AS BLOB),
           CAST(time AS BLOB), CAST(key AS BLOB) FROM (
        SELECT *, length(CAST(data AS BLOB)) AS size,
               sum(length(CAST(data AS BLOB))) OVER (ORDER BY number) AS upto FROM (
            SELECT number, coalesce(id, made_id) AS id, tenant, type, data,
                   CASE WHEN time IS NULL AND id IS NULL
                        THEN strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000.0, 'unixepoch')
                        ELSE time END AS time,
                   (SELECT key FROM homing_outbox whole WHERE whole.number = it.number) AS key
            FROM homing_outbox it, (SELECT NULL AS key) absent
            WHERE refused_at IS NULL ORDER BY number LIMIT ?1
        )
    )
    WHERE upto <= ?2 OR upto = size ORDER BY number
"""
_REMOVE = "DELETE FROM homing_outbox WHERE number IN (SELECT value FROM json_each(?1))"
_REFUSE = f"UPDATE homing_outbox SET refused_at = {_NOW}, reason = ?2 WHERE number = ?1"  # noqa: S608
_STATS = f"""
    SELECT
        (SELECT count(*) FROM (SELECT 1 FROM homing_outbox WHERE refused_at IS NULL LIMIT ?1)),
        (SELECT count(*) FROM (SELECT 1 FROM homing_outbox WHERE refused_at IS NOT NULL LIMIT ?1)),
        (SELECT {_NOW} - min(created_at) FROM (
            SELECT created_at FROM homing_outbox WHERE refused_at IS NULL ORDER BY number LIMIT 100
        )),
        EXISTS (SELECT 1 FROM pragma_table_info('homing_outbox') WHERE name = 'key')
"""  # noqa: S608
_REFUSED = """
    SELECT number, CAST(coalesce(id, made_id) AS BLOB), CAST(tenant AS BLOB), CAST(type AS BLOB),
           refused_at, CAST(coalesce(reason, '') AS BLOB)
    FROM homing_outbox WHERE refused_at IS NOT NULL ORDER BY number LIMIT ?1
"""
_RETRY = """
    UPDATE homing_outbox SET refused_at = NULL, reason = NULL
    WHERE refused_at IS NOT NULL
    AND (?1 IS NULL OR coalesce(id, made_id) IN (SELECT value FROM json_each(?1))) RETURNING number
"""


class SqliteOutbox:
    """``OutboxStore`` on a connection with a thread of its own, or inline for virtual time."""

    def __init__(self, path: Path, *, threads: bool = True) -> None:
        self._path = path
        self._connection: apsw.Connection | None = None
        self._runner: Runner = Thread("homing-outbox") if threads else Inline()
        self._version = -1

    async def relay(self, take: RelayRows, *, limit: int, bytes_max: int) -> int:
        found = await self._do(
            lambda it: [_row(row) for row in it.execute(_TAKE, (limit, bytes_max))]
        )
        if found:
            relayed = await take(found)
            await self._do(lambda it: _write(it, relayed))
        return len(found)

    async def stats(self) -> OutboxStats:
        waiting, refused, oldest_ms, has_keys = await self._do(
            lambda it: it.execute(_STATS, (COUNTED + 1,)).fetchall()[0]
        )
        return OutboxStats(
            cast("int", waiting),
            cast("int", refused),
            max(cast("int", oldest_ms or 0), 0),
            bool(has_keys),
        )

    async def refused(self, *, limit: int) -> list[RefusedRow]:
        return await self._do(
            lambda it: [_refused_row(row) for row in it.execute(_REFUSED, (limit,))]
        )

    async def retry(self, ids: Sequence[str] | None) -> int:
        wanted = None if ids is None else msgspec.json.encode(list(ids)).decode()
        return await self._do(lambda it: len(it.execute(_RETRY, (wanted,)).fetchall()))

    async def changed(self, *, within_s: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        while loop.time() < until:
            version = await self._do(lambda it: cast("int", it.pragma("data_version")))
            if version != self._version:
                self._version = version
                return
            await asyncio.sleep(min(POLL_EVERY_S, max(until - loop.time(), 0)))

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._runner.call(connection.close)
        self._runner.close()

    async def _do(self, work: Callable[[apsw.Connection], T]) -> T:
        def call() -> T:
            with _translated_errors(self._path):
                return work(self._connected())

        return await self._runner.call(call)

    def _connected(self) -> apsw.Connection:
        if self._connection is None:
            connection = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)
            connection.set_busy_timeout(BUSY_MS)
            self._connection = connection
        return self._connection


@contextmanager
def _translated_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except apsw.SQLError as error:
        if "no such table" in str(error):
            raise BadSetting(NOT_INSTALLED) from None
        raise
    except apsw.CantOpenError as error:
        raise StoreUnavailable(f"The outbox: {path} cannot be opened.") from error
    except apsw.Error as error:
        raise StoreUnavailable(f"The outbox: {type(error).__name__}.") from error


def _row(found: tuple[apsw.SQLiteValue, ...]) -> OutboxRow:
    number, event_id, tenant, kind, data, time, key = cast(
        "tuple[int, bytes, bytes, bytes, bytes, bytes | None, bytes | None]", found
    )
    at = None if time is None else _text(time)
    about = None if key is None else _key_text(key)
    return OutboxRow(number, _text(event_id), _text(tenant), _text(kind), data, at, about)


def _refused_row(found: tuple[apsw.SQLiteValue, ...]) -> RefusedRow:
    number, key, tenant, kind, at, reason = cast(
        "tuple[int, bytes, bytes, bytes, int, bytes]", found
    )
    return RefusedRow(number, _text(key), _text(tenant), _text(kind), at, _text(reason))


def _text(value: bytes) -> str:
    """The text with U+FFFD, which no id, tenant, type or time may contain, for bad bytes."""
    return value.decode("utf-8", "replace")


def _key_text(value: bytes) -> str:
    """The key; a control character, which is refused, for bad bytes: a key may contain U+FFFD."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "\0"


def _write(connection: apsw.Connection, relayed: RelayedRows) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(_REMOVE, (msgspec.json.encode(relayed.published).decode(),))
        rows = [(number, reason[:REASON_CHARS]) for number, reason in relayed.refused]
        connection.executemany(_REFUSE, rows)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
