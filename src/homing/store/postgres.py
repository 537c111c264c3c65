"""PostgreSQL: many machines, one database; the same operations as on SQLite.

A transaction that fails before its COMMIT has done nothing, so a lost connection, a restart of
the server or a deadlock is answered by running it again, for a second or two. A connection that
breaks *during* COMMIT leaves a doubt. Batches that must not be written twice carry a mark, a row
that the same transaction writes first: when the batch is run again, the row tells whether the
first run was committed, and if its backend is still busy committing, the row's lock makes us wait
for the answer.

The hot path runs on seeks alone: its sessions keep one plan for each statement, and never one that
scans or sorts a whole table where an index could lead, whatever the statistics say at that moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import asyncpg

from homing.errors import BadSetting, StoreUnavailable
from homing.ports.seals import Rewrite
from homing.store.migrate import Execute, migrate
from homing.store.partitions import ensure_days, remove_days
from homing.store.pool import Pool
from homing.store.rewrite import rewrite_table
from homing.store.rows import COLUMNS
from homing.store.statements import Statement, statements, with_integers
from homing.store.texts import check_rows, check_storable
from homing.store.tx import AlreadyWritten, Dialect, Mark, Row, RunAgain, Tx

T = TypeVar("T")

COPY_ROWS = 100  # From here on COPY is the faster way in; below it is one INSERT of arrays.
PAUSES_S = (0.02, 0.08, 0.2, 0.4, 0.8)  # before each further try
REWRITE_PAUSES_S = (0.1, 0.4)
HOT_CONNECTIONS = 6
WRITING_CONNECTIONS = 2  # of these, for publish and settle
VIEW_CONNECTIONS = 4
FLEET_CONNECTIONS = 2
# A process that stops in the middle of a transaction must not hold up who takes its buckets over.
STUCK_AFTER = "2s"

_SESSION = {
    "application_name": "homing",
    "synchronous_commit": "on",
    "default_transaction_isolation": "read committed",
    "timezone": "UTC",
    "jit": "off",
    "idle_in_transaction_session_timeout": STUCK_AFTER,
}
_HOT = {
    **_SESSION,
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
}

_MARK = """
    INSERT INTO batch_mark (node, kind, number) VALUES ($1, $2, $3)
    ON CONFLICT (node, kind) DO UPDATE SET number = excluded.number
    WHERE batch_mark.number <> excluded.number
    RETURNING number
"""
_TYPES = """
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod)
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relname = ANY($1::text[]) AND pg_table_is_visible(c.oid)
    AND a.attnum > 0 AND NOT a.attisdropped
"""

# The connection or the server is gone, for now.
_LOST = (
    OSError,  # A time-out is one.
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InternalClientError,
)
# It is there and cannot do it: no space, no rights, standing by, damaged.
_REFUSED = (
    asyncpg.InsufficientResourcesError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.InternalServerError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.LockNotAvailableError,
    asyncpg.OperatorInterventionError,
    asyncpg.PostgresSystemError,
    asyncpg.ReadOnlySQLTransactionError,
)
# At a start these do not pass by themselves.
_WRONG = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError)
_RACE = (asyncpg.TransactionRollbackError, RunAgain)
# What is worth another try at once.
_PASSING = (
    *(kind for kind in _LOST if kind is not OSError),  # Not a time-out: it has waited enough.
    ConnectionError,
    FileNotFoundError,  # the server's socket
    *_RACE,
)
# A text that it cannot hold is among the values, or another mistake of ours.
_NOT_HELD = (asyncpg.DataError, ValueError)
_RACED = ("event_key", "endpoint")  # tables to which two processes may add the same key at once


class _Doubt(NamedTuple):
    """A batch whose COMMIT broke off, and what it answers if it was committed."""

    mark: Mark
    result: Any


class Place(NamedTuple):
    """A database and how we speak to it; what another process needs to write our batches."""

    dsn: str
    name: str
    pooled: bool
    inserts: dict[str, Statement]
    base: int  # of the marks: of one life of ours, whichever process writes them


class PostgresTx:
    """``Tx`` on an asyncpg connection."""

    def __init__(self, connection: Any, inserts: dict[str, Statement]) -> None:
        self._connection = connection
        self._inserts = inserts
        self._statements = statements("postgres")
        self.count = 0
        self.wrote = False

    async def _fetch(self, text: str, values: Iterable[Any]) -> list[Row]:
        self.count += 1
        self.wrote = self.wrote or not text.startswith("SELECT")
        return [tuple(record) for record in await self._connection.fetch(text, *values)]

    async def all(self, name: str, /, **params: Any) -> list[Row]:
        statement = self._statements[name]
        values = statement.given([params[it] for it in statement.params])
        try:
            return await self._fetch(statement.text, values)
        except _NOT_HELD:
            check_storable(params, params.values())
            raise

    async def one(self, name: str, /, **params: Any) -> Row | None:
        rows = await self.all(name, **params)
        return rows[0] if rows else None

    async def many(self, name: str, rows: Sequence[Row], /) -> list[Row]:
        if not rows:
            return []
        statement = self._statements[name]
        try:
            return await self._fetch(statement.text, statement.given(zip(*rows, strict=True)))
        except _NOT_HELD:
            check_rows(statement.params, rows)
            raise

    async def insert(self, table: str, rows: Iterable[Row], /) -> None:
        rows = list(rows)
        try:
            await self._insert(table, rows)
        except asyncpg.UniqueViolationError as error:
            if table in _RACED:
                raise RunAgain from error
            raise
        except _NOT_HELD:
            check_rows(COLUMNS[table], rows)
            raise

    async def _insert(self, table: str, rows: list[Row]) -> None:
        if len(rows) >= COPY_ROWS:
            self.count += 1
            self.wrote = True
            await self._connection.copy_records_to_table(
                table, records=rows, columns=COLUMNS[table]
            )
        elif rows:
            statement = self._inserts[table]
            await self._fetch(statement.text, statement.given(zip(*rows, strict=True)))


def _insert_texts(types: Iterable[Row]) -> dict[str, Statement]:
    """For each table: INSERT of whole columns, given as arrays."""
    known = {(table, column): kind for table, column, kind in types}
    texts = {}
    for table, columns in COLUMNS.items():
        arrays = (f"${n}::{known[table, column]}[]" for n, column in enumerate(columns, 1))
        texts[table] = with_integers(
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT * FROM unnest({', '.join(arrays)})"  # noqa: S608
        )
    return texts


class PostgresDb:
    """``Db`` on PostgreSQL. Made by ``open``."""

    dialect: Dialect = "postgres"

    def __init__(
        self,
        dsn: str,
        *,
        name: str = "homing",
        pooled: bool = False,
        hot: int = HOT_CONNECTIONS,
    ) -> None:
        self.count = 0
        named = {"application_name": name}
        self._at = Place(dsn, name, pooled, {}, secrets.randbits(62))
        self._hot = Pool(dsn, size=hot, settings=_HOT | named, pooled=pooled)
        self._views = Pool(dsn, size=VIEW_CONNECTIONS, settings=_SESSION | named, pooled=pooled)
        self._keys_upto = 0  # The keys of events up to this id have been removed.
        self._doubts: dict[tuple[int, str], _Doubt] = {}

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        moving: bool = False,
        name: str = "homing",
        pooled: bool = False,
        hot: int = HOT_CONNECTIONS,
    ) -> PostgresDb:
        """Connect, and bring the schema and the days ahead up to date.

        ``name`` is what the server shows of us. ``pooled``: through a pooler in transaction mode.
        """
        db = cls(dsn, name=name, pooled=pooled, hot=hot)
        try:
            await migrate(db, moving=moving)
            types = await db.raw(lambda run: run(_TYPES, list(COLUMNS)))
            db._at = db._at._replace(inserts=_insert_texts(types))
            await ensure_days(db)
        except BaseException as error:
            await db.close()
            if isinstance(error.__cause__, _WRONG):
                told = type(error.__cause__).__name__
                raise BadSetting(f"database_url: PostgreSQL does not let us in: {told}.") from error
            raise
        return db

    @classmethod
    def at(cls, place: Place, *, hot: int) -> PostgresDb:
        """On connections of its own; the schema is up to date."""
        db = cls(place.dsn, name=place.name, pooled=place.pooled, hot=hot)
        db._at = place
        return db

    @property
    def place(self) -> Place:
        return self._at

    def beside(self) -> PostgresDb:
        """The same on connections of its own: a heartbeat waits for nobody's work."""
        return self.at(self._at, hot=FLEET_CONNECTIONS)

    @property
    def statements(self) -> int:
        return self.count

    async def run(
        self,
        operation: Callable[[Tx], Awaitable[T]],
        *,
        mark: Mark | None = None,
        read: bool = False,
        look: bool = False,
    ) -> T:
        if read or look:
            pool = self._views if read else self._hot
            return await self._patiently(lambda: self._look(pool, operation))
        return await self._patiently(lambda: self._commit(operation, mark))

    async def raw(self, operation: Callable[[Execute], Awaitable[T]]) -> T:
        """Run plain SQL in one transaction: for migrations and the days."""

        async def plain(tx: Tx) -> T:
            assert isinstance(tx, PostgresTx)

            async def execute(text: str, *values: Any) -> list[Row]:
                return await tx._fetch(text, values)

            return await operation(execute)

        return await self._patiently(lambda: self._commit(plain, None))

    async def rewrite(self) -> Rewrite:
        """Try again where a transaction of another process, which ends soon, was in the way."""
        rewritten = await self.raw(rewrite_table)
        for pause in REWRITE_PAUSES_S:
            if rewritten.done:
                break
            await asyncio.sleep(pause)
            rewritten = await self.raw(rewrite_table)
        return rewritten

    async def remove_days(self, *, before: int, limit: int) -> int:
        await ensure_days(self, before=before)
        removed, self._keys_upto = await remove_days(
            self, before=before, limit=limit, keys_upto=self._keys_upto
        )
        return removed

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run it until it works, for a second or two."""
        for pause in (*PAUSES_S, None):
            try:
                return await work()
            except (*_REFUSED, *_LOST, *_RACE) as error:
                if isinstance(error, ValueError):
                    raise  # asyncpg cannot send what we gave it: our mistake.
                if pause is None or not isinstance(error, _PASSING):
                    raise _unavailable(error) from error
            await asyncio.sleep(pause)
        raise AssertionError("the last pause is None")

    async def _look(self, pool: Pool, operation: Callable[[Tx], Awaitable[T]]) -> T:
        """Read without a transaction: in READ COMMITTED each statement sees its own moment."""
        async with pool.take() as connection:
            tx = PostgresTx(connection, self._at.inserts)
            try:
                return await operation(tx)
            finally:
                self.count += tx.count

    async def _commit(self, operation: Callable[[Tx], Awaitable[T]], mark: Mark | None) -> T:
        async with self._hot.take() as connection:
            tx = PostgresTx(connection, self._at.inserts)
            await connection.execute(self._hot.begin)
            try:
                if mark is not None and await self._is_committed(connection, mark):
                    known: T = self._result_of(mark)
                    await connection.execute("ROLLBACK")
                    return known
                result = await operation(tx)
            except Exception:
                with contextlib.suppress(*_LOST):
                    await connection.execute("ROLLBACK")
                raise
            finally:
                self.count += tx.count
            if not tx.wrote:
                await connection.execute("ROLLBACK")
                return result
            await self._finish(connection, mark, result)
            return result

    async def _is_committed(self, connection: Any, mark: Mark) -> bool:
        """Write the mark; true if an earlier run of this batch had written it.

        Callers' numbers may begin again with another life of ours; what is written does not. It
        is the same in whichever process of this life the batch is run again.
        """
        token = self._at.base ^ mark.number
        return not await connection.fetch(_MARK, mark.node, mark.kind, token)

    def _result_of(self, mark: Mark) -> Any:
        """Of a batch that was committed; unknown where the process that wrote it has ended."""
        doubt = self._doubts.get(mark[:2])
        if doubt is None or doubt.mark != mark:
            raise AlreadyWritten
        return doubt.result

    async def _finish(self, connection: Any, mark: Mark | None, result: Any) -> None:
        try:
            await connection.execute("COMMIT")
        except _LOST as error:
            connection.terminate()
            if mark is None:
                raise StoreUnavailable("The connection broke during COMMIT.") from error
            self._doubts[mark[:2]] = _Doubt(mark, result)
            raise

    async def close(self) -> None:
        await self._hot.close()
        await self._views.close()


def _unavailable(error: Exception) -> StoreUnavailable:
    """Only the kind of error: its text could quote a row."""
    return StoreUnavailable(f"PostgreSQL: {type(error).__name__}.")
