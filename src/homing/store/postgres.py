"""PostgreSQL: many machines, one database; the same operations as on SQLite.

A transaction that fails before its COMMIT has changed nothing. So after a lost connection, a
restart of the server or a deadlock it is run again, for a second or two. If a connection breaks
*during* COMMIT, it is unknown whether the transaction was committed. Batches that must not be
written twice have a mark, a row that the same transaction writes first. When the batch is run
again, the row shows whether the first run was committed; while its backend is still committing, the
lock of the row makes the second run wait.

The hot path uses index seeks only: its sessions keep one plan for each statement, and never one
that scans or sorts a whole table where there is an index, whatever the statistics are.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import asyncpg

from homing.errors import BadSetting, Fenced, StoreUnavailable
from homing.ports.encryption import Rewrite
from homing.store.connect import Connector
from homing.store.marks import MarkMemory
from homing.store.migrate import Execute, migrate
from homing.store.partitions import ensure_days, remove_days
from homing.store.postgres_refusals import OLDEST, NotWritable, refusal_text, shown
from homing.store.rewrite import rewrite_table
from homing.store.rows import INSERTED
from homing.store.statements import Statement, joined, statements, with_integers
from homing.store.tx import (
    AlreadyWritten,
    Dialect,
    Mark,
    Row,
    RunAgain,
    Tx,
    Write,
    check_rows,
    check_storable,
)

T = TypeVar("T")

COPY_ROWS = 100  # From here on COPY is faster than one INSERT of arrays.
PAUSES_S = (0.02, 0.08, 0.2, 0.4, 0.8)  # before each retry
HOSTS_PAUSES_S = (0.02, 0.08, *(0.2,) * 7)  # with several hosts: soon after a promotion
REWRITE_PAUSES_S = (0.1, 0.4)
HOT_CONNECTIONS = 6
WRITING_CONNECTIONS = 2  # of these, for publish and settle
VIEW_CONNECTIONS = 4
FLEET_CONNECTIONS = 2
# A process that hangs in the middle of a transaction must not block its successor.
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
    INSERT INTO batch_mark (node, kind, number, fence) VALUES ($1, $2, $3, $4)
    ON CONFLICT (node, kind) DO UPDATE SET number = excluded.number
    WHERE batch_mark.number <> excluded.number AND batch_mark.fence = excluded.fence
    RETURNING number
"""
_LAST_MARK = "SELECT number FROM batch_mark WHERE node = $1 AND kind = $2"
_LAST_MARKS = "SELECT kind, number FROM batch_mark WHERE node = $1"
_TYPES = """
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod)
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relname = ANY($1::text[]) AND pg_table_is_visible(c.oid)
    AND a.attnum > 0 AND NOT a.attisdropped
"""

# The connection or the server is lost, for now.
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
# The server runs and cannot do the work: no space, no rights, a standby, damage.
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
# At a start these do not end by themselves.
_WRONG = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError)
_RACE = (asyncpg.TransactionRollbackError, RunAgain)
# The operation is run again at once.
_PASSING = (
    *(kind for kind in _LOST if kind is not OSError),  # Not a time-out: it has taken long enough.
    ConnectionError,
    FileNotFoundError,  # the server's socket
    asyncpg.ReadOnlySQLTransactionError,  # A new connection may lead to the primary.
    *_RACE,
)
# A value is a text that PostgreSQL cannot store, or this is a bug.
_NOT_HELD = (asyncpg.DataError, ValueError)
_RACED = ("event_key", "endpoint")  # tables to which two processes may add the same key at once


class _Unconfirmed(NamedTuple):
    """A batch whose COMMIT was interrupted, and its result if it was committed."""

    mark: Mark
    result: Any


class ConnectionSpec(NamedTuple):
    """How to connect to a database and write its batches, also from a writer process."""

    dsn: str
    name: str
    pooled: bool
    inserts: Inserts
    base: int  # of the batch marks: the same for a server and its writer processes


class Pool:
    """At most ``size`` connections with the same settings.

    asyncpg's own pool resets each connection with a round trip when it is given back; here only
    clean connections are given back, so that a transaction costs its statements and no more.
    """

    def __init__(
        self, connector: Connector, *, size: int, settings: dict[str, str], pooled: bool = False
    ) -> None:
        self._connector = connector
        self._settings = settings
        self._pooled = pooled  # behind a pooler: a session's state cannot be used
        self._room = asyncio.Semaphore(size)
        self._free: list[Any] = []
        self._taken: dict[Any, float] = {}  # oldest first: since when
        self.opened = 0  # connections so far

    @contextlib.asynccontextmanager
    async def take(self) -> AsyncIterator[Any]:
        """A connection outside any transaction; closed afterwards if it is inside one by then."""
        async with self._room:
            connection = await self._sound()
            self._taken[connection] = asyncio.get_running_loop().time()
            clean = False
            try:
                yield connection
                clean = True
            except asyncpg.ReadOnlySQLTransactionError:
                raise  # The next connection may lead to another server.
            except Exception:
                clean = True  # It is checked below.
                raise
            finally:
                del self._taken[connection]
                if not clean or connection.is_closed() or connection.is_in_transaction():
                    connection.terminate()
                else:
                    self._free.append(connection)

    async def _sound(self) -> Any:
        while self._free:
            connection = self._free.pop()
            if not connection.is_closed():
                return connection
        self._connector.watch(self)
        self.opened += 1
        return await self._connector.connect(
            command_timeout=30,
            max_cached_statement_lifetime=0,
            server_settings=None if self._pooled else self._settings,
            **({"statement_cache_size": 0} if self._pooled else {}),
        )

    def waiting_since(self) -> float | None:
        return next(iter(self._taken.values()), None)

    def connections(self) -> list[Any]:
        return [*self._taken, *self._free]

    @property
    def begin(self) -> str:
        """The statement that begins a transaction; behind a pooler it includes the settings."""
        if not self._pooled:
            return "BEGIN"
        return ";".join(("BEGIN", *(f"SET LOCAL {k} = '{v}'" for k, v in self._settings.items())))

    async def close(self) -> None:
        self._connector.unwatch(self)
        while self._free:
            connection = self._free.pop()
            try:
                await connection.close(timeout=5)
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                connection.terminate()


class PostgresTx:
    """``Tx`` on an asyncpg connection."""

    def __init__(self, connection: Any, inserts: Inserts) -> None:
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
        await self.write([(table, list(rows))])

    async def write(self, writes: Sequence[Write], /) -> None:
        try:
            await self._write(writes)
        except asyncpg.UniqueViolationError as error:
            if error.table_name in _RACED:
                raise RunAgain from error
            raise
        except _NOT_HELD:
            for name, rows in writes:
                check_rows(INSERTED.get(name) or self._statements[name].params, rows)
            raise

    async def _write(self, writes: Sequence[Write]) -> None:
        small: list[Write] = []
        for name, rows in writes:
            if len(rows) >= COPY_ROWS and name in INSERTED:
                self.count += 1
                self.wrote = True
                await self._connection.copy_records_to_table(
                    name, records=rows, columns=INSERTED[name]
                )
            elif rows:
                small.append((name, rows))
        if small:
            statement = self._inserts.together(tuple(name for name, _ in small))
            values = chain.from_iterable(zip(*rows, strict=True) for _, rows in small)
            await self._fetch(statement.text, statement.given(values))


class Inserts:
    """For each table: INSERT of whole columns, given as arrays; and several writes as one."""

    def __init__(self, types: Iterable[Row]) -> None:
        """``types``: table, column and type of each column."""
        known = {(table, column): kind for table, column, kind in types}
        self._texts: dict[str, Statement] = {}
        self._together: dict[tuple[str, ...], Statement] = {}
        for table, columns in INSERTED.items() if known else ():
            arrays = (f"${n}::{known[table, column]}[]" for n, column in enumerate(columns, 1))
            self._texts[table] = with_integers(
                f"INSERT INTO {table} ({', '.join(columns)})"  # noqa: S608
                f" SELECT * FROM unnest({', '.join(arrays)})",
                columns,
            )

    def together(self, names: tuple[str, ...]) -> Statement:
        """One statement for inserts into tables and for batch statements without a result."""
        found = self._together.get(names)
        if found is None:
            batch = statements("postgres")
            parts = [self._texts.get(name) or batch[name] for name in names]
            found = self._together[names] = joined(parts)
        return found


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
        connector: Connector | None = None,
    ) -> None:
        self.count = 0
        self.connector = connector or Connector(dsn)
        named = {"application_name": name}
        self._spec = ConnectionSpec(dsn, name, pooled, Inserts(()), secrets.randbits(62))
        self._hot = Pool(self.connector, size=hot, settings=_HOT | named, pooled=pooled)
        self._views = Pool(
            self.connector, size=VIEW_CONNECTIONS, settings=_SESSION | named, pooled=pooled
        )
        self._keys_upto = 0  # The keys of events up to this id have been removed.
        self._unconfirmed: dict[tuple[int, str], _Unconfirmed] = {}
        self._marks = MarkMemory()
        self._compared: dict[tuple[int, str], int] = {}  # with how many connections opened

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        moving: bool = False,
        leaving: bool = False,
        as_is: bool = False,
        name: str = "homing",
        pooled: bool = False,
        hot: int = HOT_CONNECTIONS,
    ) -> PostgresDb:
        """Connect, and bring the schema and the days ahead up to date.

        ``name`` is the application name. ``pooled``: through a pooler in transaction mode. With
        ``as_is`` the schema is not upgraded: raises BadSetting if it is not the current one.
        """
        db = cls(dsn, name=name, pooled=pooled, hot=hot)
        try:
            await _check_version(db, dsn)
            await migrate(db, moving=moving, leaving=leaving, as_is=as_is)
            types = await db.raw(lambda run: run(_TYPES, list(INSERTED)))
            db._spec = db._spec._replace(inserts=Inserts(types))
            await ensure_days(db)
        except BaseException as error:
            await db.close()
            cause = error.__cause__
            if isinstance(cause, _WRONG):
                raise BadSetting(refusal_text(cause, dsn)) from error
            if isinstance(error, StoreUnavailable) and cause is not None:
                raise StoreUnavailable(refusal_text(cause, dsn)) from cause
            raise
        return db

    @classmethod
    def at(
        cls, spec: ConnectionSpec, *, hot: int, connector: Connector | None = None
    ) -> PostgresDb:
        """The database of a spec on new connections; its schema must be up to date."""
        db = cls(spec.dsn, name=spec.name, pooled=spec.pooled, hot=hot, connector=connector)
        db._spec = spec
        return db

    @property
    def spec(self) -> ConnectionSpec:
        return self._spec

    def with_own_connections(self) -> PostgresDb:
        """The same database on separate connections: a heartbeat must not wait for other work."""
        return self.at(self._spec, hot=FLEET_CONNECTIONS, connector=self.connector)

    @property
    def statements(self) -> int:
        return self.count

    async def run(
        self,
        operation: Callable[[Tx], Awaitable[T]],
        *,
        mark: Mark | None = None,
        read_only: bool = False,
        view: bool = False,
    ) -> T:
        if read_only or view:
            pool = self._views if view else self._hot
            return await self._with_retries(lambda: self._read(pool, operation))
        return await self._with_retries(lambda: self._commit(operation, mark))

    async def raw(self, operation: Callable[[Execute], Awaitable[T]]) -> T:
        """Run plain SQL in one transaction: for migrations and partitions."""

        async def plain(tx: Tx) -> T:
            assert isinstance(tx, PostgresTx)

            async def execute(text: str, *values: Any) -> list[Row]:
                return await tx._fetch(text, values)

            return await operation(execute)

        return await self._with_retries(lambda: self._commit(plain, None))

    async def rewrite(self) -> Rewrite:
        """Rewrite the table of subscriptions; tries again while another transaction blocks it."""
        rewritten = await self.raw(rewrite_table)
        for pause in REWRITE_PAUSES_S:
            if rewritten.done:
                break
            await asyncio.sleep(pause)
            rewritten = await self.raw(rewrite_table)
        return rewritten

    async def empty_log(self) -> bool:
        return True  # The log belongs to the server, which removes it by its own rules.

    async def remove_days(self, *, before: int, limit: int) -> int:
        await ensure_days(self, before=before)
        removed, self._keys_upto = await remove_days(
            self, before=before, limit=limit, keys_upto=self._keys_upto
        )
        return removed

    async def _with_retries(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run ``work`` until it succeeds, for a second or two."""
        pauses = PAUSES_S if len(self.connector.hosts) == 1 else HOSTS_PAUSES_S
        for pause in (*pauses, None):
            try:
                return await work()
            except (*_REFUSED, *_LOST, *_RACE) as error:
                if isinstance(error, ValueError):
                    raise  # asyncpg cannot encode a value: a bug.
                if pause is None or not isinstance(error, _PASSING):
                    raise _unavailable(error, self._spec.dsn) from error
            await asyncio.sleep(pause)
        raise AssertionError("the last pause is None")

    async def _read(self, pool: Pool, operation: Callable[[Tx], Awaitable[T]]) -> T:
        """Read without a transaction: in READ COMMITTED each statement sees its own moment."""
        async with pool.take() as connection:
            tx = PostgresTx(connection, self._spec.inserts)
            try:
                return await operation(tx)
            finally:
                self.count += tx.count

    async def _commit(self, operation: Callable[[Tx], Awaitable[T]], mark: Mark | None) -> T:
        async with self._hot.take() as connection:
            tx = PostgresTx(connection, self._spec.inserts)
            await connection.execute(self._hot.begin)
            try:
                if mark is not None:
                    self._marks.begin(mark)
                    if self._compared.get(mark[:2]) != self._hot.opened:
                        await self._compare_mark(connection, mark)
                    if await self._is_committed(connection, mark):
                        known: T = await self._finish_again(connection, mark)
                        return known
                result = await operation(tx)
            except Exception:
                with contextlib.suppress(*_LOST):
                    await connection.execute("ROLLBACK")
                raise
            finally:
                self.count += tx.count
            # A batch that finds all its rows there waits for the standby, too: _finish_again.
            if not tx.wrote and mark is None:
                await connection.execute("ROLLBACK")
                return result
            await self._finish(connection, mark, result)
            return result

    async def _is_committed(self, connection: Any, mark: Mark) -> bool:
        """Write the mark; returns True if an earlier run of this batch was committed.

        Raises Fenced if it was not, and this process is no longer waited for. The numbers of
        callers may begin again after a restart; the written number does not repeat. It is the same
        in the server and in its writer processes, wherever the batch is run again.
        """
        token = self._spec.base ^ mark.number
        if await connection.fetch(_MARK, mark.node, mark.kind, token, mark.fence):
            return False
        # The row is locked: it stays as it is.
        if await connection.fetchval(_LAST_MARK, mark.node, mark.kind) != token:
            raise Fenced
        return True

    async def _finish_again(self, connection: Any, mark: Mark) -> Any:
        """The result of a batch that an earlier run has committed.

        That run's rows can be seen, but a synchronous standby may not have them: after a crash, or
        where its wait was cancelled, PostgreSQL shows what it has not yet replicated. This
        transaction has locked the row of the mark, so its own COMMIT waits for the standby, and
        with it for everything before.
        """
        await connection.execute("COMMIT")
        self._marks.commit(mark)
        return self._result_of(mark)

    def _result_of(self, mark: Mark) -> Any:
        """The result of a committed batch; unknown if the process that wrote it has ended."""
        found = self._unconfirmed.get(mark[:2])
        if found is None or found.mark != mark:
            raise AlreadyWritten
        return found.result

    async def _finish(self, connection: Any, mark: Mark | None, result: Any) -> None:
        try:
            await connection.execute("COMMIT")
        except _LOST as error:
            connection.terminate()
            if mark is None:
                raise StoreUnavailable("The connection broke during COMMIT.") from error
            self._unconfirmed[mark[:2]] = _Unconfirmed(mark, result)
            raise
        if mark is not None:
            self._marks.commit(mark)

    async def _compare_mark(self, connection: Any, mark: Mark) -> None:
        """Raises DatabaseBehind: a new connection may lead to a server that has lost commits."""
        opened = self._hot.opened
        row = await connection.fetchrow(_LAST_MARK, mark.node, mark.kind)
        self._compared[mark[:2]] = opened
        self._marks.check(mark[:2], None if row is None else self._spec.base ^ row[0])

    async def check_marks(self, node: int) -> None:
        """Compare the batches of this node with the database; raises DatabaseBehind."""
        if not (seen := self._marks.committed(node)):  # before the database is asked
            return

        async def read(tx: Tx) -> dict[str, int]:
            assert isinstance(tx, PostgresTx)
            return dict(await tx._fetch(_LAST_MARKS, (node,)))

        found = await self.run(read, read_only=True)
        for kind, number in seen.items():
            token = found.get(kind)
            last = None if token is None else self._spec.base ^ token
            self._marks.check((node, kind), last, seen=number)

    async def close(self) -> None:
        await self._hot.close()
        await self._views.close()


async def _check_version(db: PostgresDb, dsn: str) -> None:
    """Connect for the first time; raises BadSetting if the address or the version is wrong."""
    text = "SELECT current_setting('server_version_num')::int, current_setting('server_version')"
    try:
        ((number, version),) = await db.raw(lambda run: run(text))
    except ValueError as error:  # The address cannot be read.
        raise BadSetting(refusal_text(error, dsn)) from None
    if number // 10_000 < OLDEST:
        raise BadSetting(
            f"The version of {shown(dsn)} is {version}: Homing needs PostgreSQL {OLDEST} or newer."
        )


def _unavailable(error: Exception, dsn: str) -> StoreUnavailable:
    """The error with the type of the driver's error only: its text could quote a row."""
    if isinstance(error, NotWritable | asyncpg.ReadOnlySQLTransactionError):
        return StoreUnavailable(refusal_text(error, dsn))
    return StoreUnavailable(f"PostgreSQL: {type(error).__name__}.")
