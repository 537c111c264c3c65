"""An outbox in PostgreSQL: rows are locked while they are published, so that relays share them.

A lock ends with its connection, and the database ends a transaction that is idle for a minute: rows
that are locked by a relay whose machine failed are free again by then. PgBouncer in transaction
mode works as well: LISTEN receives nothing there, and the relay finds the rows by polling.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg

from homing.errors import BadSetting, StoreUnavailable
from homing.ports import OutboxRow, OutboxStats, RefusedRow, RelayedRows, RelayRows
from homing.store.connect import Connector
from homing.store.outbox.install import NOT_INSTALLED, REASON_CHARS
from homing.store.postgres_refusals import NotWritable

CHANNEL = "homing_outbox"
COUNTED = 10_000
_CONNECT_WITHIN_S = 5
_STATEMENT_WITHIN_S = 30

_BEGIN = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '60s'"
# A table from before keys has no such column. A name that the innermost query does not know is
# looked up in the query around it, where ``absent`` has it. So one statement reads both tables, and
# a relay that runs while the table is upgraded never publishes a row without its key.
_KEY = "(SELECT key FROM (SELECT it.*) whole)"
_ROWS = "homing_outbox it CROSS JOIN (SELECT CAST(NULL AS text) AS key) absent"
_TAKE = f"""
    SELECT number, id, tenant, type, data, time, key FROM (
        SELECT *, sum(octet_length(data)) OVER (ORDER BY number) AS upto FROM (
            SELECT number, id, tenant, type, data, time, {_KEY} AS key FROM {_ROWS}
            WHERE refused_at IS NULL ORDER BY number LIMIT $1 FOR UPDATE OF it SKIP LOCKED
        ) found
    ) counted
    WHERE upto <= $2 OR upto = octet_length(data) ORDER BY number
"""  # noqa: S608
# Few rows, by the index of waiting rows: those that other relays have locked, and perhaps some that
# were committed a moment ago.
_BEFORE = f"""
    SELECT number, tenant, id, {_KEY} FROM {_ROWS}
    WHERE refused_at IS NULL AND number < $1 AND number <> ALL($2::bigint[])
"""  # noqa: S608
_REMOVE = "DELETE FROM homing_outbox WHERE number = ANY($1::bigint[])"
_REFUSE = """
    UPDATE homing_outbox SET refused_at = clock_timestamp(), reason = it.reason
    FROM unnest($1::bigint[], $2::text[]) AS it (number, reason)
    WHERE homing_outbox.number = it.number
"""
_STATS = """
    SELECT
        (SELECT count(*) FROM (SELECT 1 FROM homing_outbox WHERE refused_at IS NULL LIMIT $1) w),
        (SELECT count(*) FROM (
            SELECT 1 FROM homing_outbox WHERE refused_at IS NOT NULL LIMIT $1) r),
        (SELECT (extract(epoch FROM clock_timestamp() - min(created_at)) * 1000)::bigint FROM (
            SELECT created_at FROM homing_outbox WHERE refused_at IS NULL ORDER BY number LIMIT 100
        ) oldest),
        EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'homing_outbox'::regclass
                AND attname = 'key' AND NOT attisdropped)
"""
_REFUSED = """
    SELECT number, id, tenant, type, (extract(epoch FROM refused_at) * 1000)::bigint,
           coalesce(reason, '')
    FROM homing_outbox WHERE refused_at IS NOT NULL ORDER BY number LIMIT $1
"""
_RETRY = """
    UPDATE homing_outbox SET refused_at = NULL, reason = NULL
    WHERE refused_at IS NOT NULL AND ($1::text[] IS NULL OR id = ANY($1::text[]))
    RETURNING number
"""


class PostgresOutbox:
    """``OutboxStore`` on one connection, opened when needed."""

    def __init__(self, dsn: str) -> None:
        self._connector = Connector(dsn)
        self._connection: Any = None
        self._since: float | None = None  # a statement is being executed
        self._turn = asyncio.Lock()
        self._notified = asyncio.Event()

    async def relay(self, take: RelayRows, *, limit: int, bytes_max: int) -> int:
        async with self._work() as connection:
            await connection.execute(_BEGIN)
            try:
                found = await connection.fetch(_TAKE, limit, bytes_max)
                rows = await _in_turn(connection, [_row(it) for it in found])
                if rows:
                    await _write(connection, await take(rows))
            except BaseException:
                await _undo(connection)
                raise
            await connection.execute("COMMIT")
            return len(rows)

    async def stats(self) -> OutboxStats:
        async with self._work() as connection:
            waiting, refused, oldest_ms, has_keys = await connection.fetchrow(_STATS, COUNTED + 1)
            return OutboxStats(waiting, refused, max(oldest_ms or 0, 0), has_keys)

    async def refused(self, *, limit: int) -> list[RefusedRow]:
        async with self._work() as connection:
            return [RefusedRow(*row) for row in await connection.fetch(_REFUSED, limit)]

    async def retry(self, ids: Sequence[str] | None) -> int:
        async with self._work() as connection:
            return len(await connection.fetch(_RETRY, None if ids is None else list(ids)))

    async def changed(self, *, within_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._notified.wait()
        self._notified.clear()

    async def close(self) -> None:
        self._connector.unwatch(self)
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await connection.close(timeout=_CONNECT_WITHIN_S)
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                connection.terminate()

    def waiting_since(self) -> float | None:
        return self._since

    def connections(self) -> list[Any]:
        return [] if self._connection is None else [self._connection]

    @contextlib.asynccontextmanager
    async def _work(self) -> AsyncIterator[Any]:
        """The connection; its errors become StoreUnavailable, and a broken one is closed."""
        async with self._turn:
            self._since = asyncio.get_running_loop().time()
            try:
                yield await self._connected()
            except asyncpg.UndefinedTableError:
                raise BadSetting(NOT_INSTALLED) from None
            except NotWritable as error:
                raise StoreUnavailable(f"The outbox: {error}") from error
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
                # Only the kind of error: its text could quote a row or a password.
                raise StoreUnavailable(f"The outbox: {type(error).__name__}.") from error
            finally:
                self._since = None
                connection = self._connection
                if connection is not None and (
                    connection.is_closed() or connection.is_in_transaction()
                ):
                    connection.terminate()
                    self._connection = None

    async def _connected(self) -> Any:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connector.connect(
                command_timeout=_STATEMENT_WITHIN_S,
                statement_cache_size=0,  # PgBouncer gives each transaction another session.
            )
            await self._connection.add_listener(CHANNEL, self._on_notification)
            self._connector.watch(self)
            self._notified.set()  # Rows may have been added before LISTEN.
        return self._connection

    def _on_notification(self, *_: object) -> None:
        self._notified.set()


def _row(found: Sequence[Any]) -> OutboxRow:
    number, event_id, tenant, kind, data, time, key = found
    return OutboxRow(number, event_id, tenant, kind, data.encode(), time, key)


async def _in_turn(connection: Any, rows: list[OutboxRow]) -> list[OutboxRow]:
    """The rows that wait for no earlier row: those that another relay has locked come first.

    A row waits for an earlier one with its id, of which only the first is the event, and for an
    earlier one with its key, so that the events of a key are accepted in order.
    """
    if not rows:
        return rows
    mine = [row.number for row in rows]
    others = await connection.fetch(_BEFORE, mine[-1], mine)
    if not others:
        return rows
    in_order: list[tuple[int, set[tuple[str, str, str]], OutboxRow | None]] = [
        *((number, _marks(*marks), None) for number, *marks in others),
        *((it.number, _marks(it.tenant, it.id, it.key), it) for it in rows),
    ]
    ready: list[OutboxRow] = []
    taken: set[tuple[str, str, str]] = set()
    for _, marks, row in sorted(in_order, key=lambda it: it[0]):
        if row is not None and taken.isdisjoint(marks):
            ready.append(row)
        else:
            taken |= marks
    return ready


def _marks(tenant: str, event_id: str, key: str | None) -> set[tuple[str, str, str]]:
    """What a later row must not share with a row that is not published yet."""
    marks = {("id", tenant, event_id)}
    return marks if key is None else marks | {("key", tenant, key)}


async def _write(connection: Any, relayed: RelayedRows) -> None:
    if relayed.published:
        await connection.execute(_REMOVE, list(relayed.published))
    if relayed.refused:
        numbers, reasons = zip(*relayed.refused, strict=True)
        await connection.execute(
            _REFUSE, list(numbers), [reason[:REASON_CHARS].replace("\0", "") for reason in reasons]
        )


async def _undo(connection: Any) -> None:
    with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        await connection.execute("ROLLBACK")
