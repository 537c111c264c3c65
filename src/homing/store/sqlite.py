"""SQLite: one file, one process, every commit on disk before it is confirmed.

All writes use one connection. It runs inline (in tests and simulations, without threads) or on a
thread of its own, with a second thread and connection for the reads of people, so that a list never
delays a commit. The log is WAL with ``synchronous=FULL``: with NORMAL, simulated power cuts lost
acknowledged rows, and group commit makes FULL fast.

An error of the file system raises StoreUnavailable and leaves no state behind: the next call begins
again, if necessary on a new connection, so that a server recovers from a full disk without a
restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import apsw
import msgspec

from homing.errors import DataInUse, StoreUnavailable
from homing.ports.encryption import Rewrite
from homing.store.migrate import Execute, migrate
from homing.store.rewrite import rewrite_file
from homing.store.rows import INSERTED
from homing.store.statements import statements
from homing.store.tx import Dialect, Mark, Row, Tx, Write, check_rows, check_storable, run_sync

T = TypeVar("T")

MEMORY = ":memory:"
BUSY_MS = 5_000  # to wait for another program (a backup, a shell) that locks the file
WAL_TRIES = 500
CACHE_KIB = 8 * 1024  # Of each connection; the system caches the rest of the file.
MEMORY_PAGE_BYTES = 8_192  # Larger pages: a commit that has split a node reads all of them.
CHECKPOINT_PAGES = 4_000  # of 4 KiB: the log is written back from 16 MB on …
WAL_BYTES_MAX = 64 * 1024 * 1024  # … and cut to this size if readers made it grow meanwhile.

# Bugs. Every other error of apsw comes from outside: disk, permissions, damage, memory.
_BUGS = (
    apsw.BindingsError,
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.MisuseError,
    apsw.RangeError,
    apsw.SQLError,
    apsw.TooBigError,
    apsw.ThreadingViolationError,
)
# After these errors a new connection is opened, but not after a failed write or sync: the rollback
# undoes a commit that is already in the log, and a new connection would find it there again.
_ANOTHER_CONNECTION = (
    apsw.CantOpenError,
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.ReadOnlyError,
)


def _insert_text(table: str) -> str:
    columns = INSERTED[table]
    marks = ", ".join(["?"] * len(columns))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608


_INSERTS = {table: _insert_text(table) for table in INSERTED}


def _bound(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return msgspec.json.encode(value).decode()
    return value


def _write_ahead(connection: apsw.Connection) -> None:
    """Turn the write-ahead log on; the file remembers it.

    Where another opener of a new file is doing the same, SQLite gives up at once instead of
    waiting: the second opener finds it done.
    """
    for _ in range(WAL_TRIES):
        with contextlib.suppress(apsw.BusyError):
            if connection.pragma("journal_mode", "wal") == "wal":
                return
        time.sleep(BUSY_MS / 1000 / WAL_TRIES)
    raise apsw.BusyError("the write-ahead log cannot be turned on")


class SqliteTx:
    """``Tx`` on an apsw connection. No method ever suspends."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._execute = connection.execute
        self._executemany = connection.executemany
        self._statements = statements("sqlite")
        self.count = 0

    async def all(self, name: str, /, **params: Any) -> list[Row]:
        self.count += 1
        text, names, _ = self._statements[name]
        try:
            return self._execute(text, [_bound(params[it]) for it in names]).fetchall()
        except UnicodeEncodeError:
            check_storable(params, params.values())
            raise

    async def one(self, name: str, /, **params: Any) -> Row | None:
        rows = await self.all(name, **params)
        return rows[0] if rows else None

    async def many(self, name: str, rows: Sequence[Row], /) -> list[Row]:
        if not rows:
            return []
        self.count += 1
        statement = self._statements[name]
        try:
            return self._executemany(statement.text, rows).fetchall()
        except UnicodeEncodeError:
            check_rows(statement.params, rows)
            raise

    async def insert(self, table: str, rows: Iterable[Row], /) -> None:
        self.count += 1
        rows = list(rows)
        try:
            self._executemany(_INSERTS[table], rows).fetchall()
        except UnicodeEncodeError:
            check_rows(INSERTED[table], rows)
            raise

    async def write(self, writes: Sequence[Write], /) -> None:
        for name, rows in writes:
            if name in INSERTED:
                await self.insert(name, rows)
            else:
                await self.many(name, rows)


class Session:
    """One connection: opened when needed, thrown away when it may be broken."""

    def __init__(self, path: str, *, reader: bool = False) -> None:
        self.path = path
        self._reader = reader
        self._connection: apsw.Connection | None = None
        self._tx: SqliteTx | None = None
        self._group = False  # several operations share a transaction

    @property
    def count(self) -> int:
        return self._tx.count if self._tx else 0

    def _open(self) -> tuple[apsw.Connection, SqliteTx]:
        if self._connection is None or self._tx is None:
            connection = apsw.Connection(self.path, statementcachesize=300)
            # Plans must not depend on values, or SQLite plans again for every new value (20 µs).
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            connection.set_busy_timeout(BUSY_MS)
            if self.path == MEMORY:
                connection.pragma("page_size", MEMORY_PAGE_BYTES)
            else:
                _write_ahead(connection)
                connection.pragma("journal_size_limit", WAL_BYTES_MAX)
                connection.pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
            connection.pragma("synchronous", "full")
            connection.pragma("cache_size", -CACHE_KIB)
            connection.pragma("temp_store", "memory")
            connection.pragma("secure_delete", True)  # Nothing of an erased row stays in the file.
            if self._reader:
                connection.pragma("query_only", True)
            count = self.count
            self._connection, self._tx = connection, SqliteTx(connection)
            self._tx.count = count
        return self._connection, self._tx

    def empty_log(self) -> bool:
        """Write the log back and empty it; False if a reader or an open transaction needs it."""
        if self.path == MEMORY:
            return True
        if self._group:
            return False
        try:
            connection, _ = self._open()
            connection.set_busy_timeout(0)  # Nobody waits for this.
            try:
                ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                connection.set_busy_timeout(BUSY_MS)
        except apsw.Error as error:
            raise StoreUnavailable(f"SQLite: {type(error).__name__}.") from error
        return not busy

    def image(self) -> bytes:
        """The whole database."""
        return self._open()[0].serialize("main")

    def load(self, image: bytes) -> None:
        """Fill a new database from the image of another one."""
        source = apsw.Connection(MEMORY)
        source.deserialize("main", image)
        with self._open()[0].backup("main", source, "main") as copying:
            copying.step()
        source.close()

    def transact(self, operation: Callable[[Tx], Awaitable[T]], *, begin: str) -> T:
        """Run an operation between ``begin`` and COMMIT."""
        return self._between(begin, lambda _, tx: run_sync(operation(tx)))

    def raw(self, operation: Callable[[Execute], Awaitable[T]]) -> T:
        """Run plain SQL in one writing transaction."""

        def work(connection: apsw.Connection, tx: SqliteTx) -> T:
            async def execute(text: str, *values: Any) -> list[Row]:
                tx.count += 1
                return connection.execute(text, values).fetchall()

            return run_sync(operation(execute))

        return self._between("BEGIN IMMEDIATE", work)

    def grouped(self, work: Callable[[], T]) -> T:
        """Run several operations with one COMMIT; one that raises is undone alone.

        If the database itself fails, the whole group is undone.
        """

        def group(*_: object) -> T:
            self._group = True
            try:
                return work()
            finally:
                self._group = False

        return self._between("BEGIN IMMEDIATE", group)

    def _part(self, work: Callable[[apsw.Connection, SqliteTx], T]) -> T:
        """Run one operation of a group inside a savepoint."""
        connection, tx = self._open()
        connection.execute("SAVEPOINT part")
        try:
            result = work(connection, tx)
        except apsw.Error:
            raise  # The whole group is undone.
        except BaseException:
            connection.execute("ROLLBACK TO part")
            connection.execute("RELEASE part")
            raise
        connection.execute("RELEASE part")
        return result

    def _between(self, begin: str, work: Callable[[apsw.Connection, SqliteTx], T]) -> T:
        if self._group:
            return self._part(work)
        try:
            connection, tx = self._open()
            connection.execute(begin)
            result = work(connection, tx)
            connection.execute("COMMIT")
        except _BUGS:
            self._undo(broken=False)
            raise
        except apsw.Error as error:
            self._undo(broken=isinstance(error, _ANOTHER_CONNECTION))
            # Only the kind of error: its text could quote a row.
            raise StoreUnavailable(f"SQLite: {type(error).__name__}.") from error
        except BaseException:
            self._undo(broken=False)
            raise
        return result

    def _undo(self, *, broken: bool) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error:
            broken = True
        if broken and self.path != MEMORY:
            self.close()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(apsw.Error):
                connection.close()


class Lock:
    """The lock of a SQLite file; a second process is refused, with the id of the first."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._file, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise DataInUse(f"Process {holder} holds {path.name}.") from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.ftruncate(self._file, 0)
        os.close(self._file)


class Runner(Protocol):
    """Where the work of a session runs."""

    async def call(self, work: Callable[[], T]) -> T: ...

    def close(self) -> None: ...


class Inline:
    """At once, in the caller."""

    async def call(self, work: Callable[[], T]) -> T:
        return work()

    def close(self) -> None:
        """Nothing is open."""


class Thread:
    """On one thread of its own, in order."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            job()

    async def call(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def resolve(result: T | None, error: BaseException | None) -> None:
            if future.done():
                return  # The caller was cancelled.
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(cast("T", result))

        def job() -> None:
            result, reason = None, None
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - it is raised in the caller
                reason = error
            with contextlib.suppress(RuntimeError):  # The loop has ended, and so has the caller.
                loop.call_soon_threadsafe(resolve, result, reason)

        self._queue.put(job)
        return await future

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()


def sqlite_reason(error: apsw.Error) -> str:
    """What SQLite says, in a sentence; it quotes no row."""
    match error:
        case apsw.NotADBError() | apsw.CorruptError():
            return "it is not a database, or it is damaged."
        case apsw.FullError():
            return "the disk is full."
        case apsw.BusyError() | apsw.LockedError():
            return "another program has locked it; try again."
        case apsw.CantOpenError():
            return "it cannot be opened: is it a file, and may this user read it?"
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return "this user may not write to it or to its directory."
        case _:
            return f"{error}."


class SqliteDb:
    """``Db`` on SQLite. Made by ``open``."""

    dialect: Dialect = "sqlite"

    def __init__(self, path: str, *, threads: bool, lock: Lock | None) -> None:
        self._lock = lock
        self._writer = Session(path)
        self._write: Runner = Thread("homing-writer") if threads else Inline()
        self._reader, self._read = self._writer, self._write
        if threads and path != MEMORY:
            self._reader, self._read = Session(path, reader=True), Thread("homing-reader")

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        threads: bool = False,
        locked: bool = False,
        moving: bool = False,
        leaving: bool = False,
        as_is: bool = False,
    ) -> SqliteDb:
        """Open or make a database file, or ``":memory:"``, with the current schema.

        Raises DataInUse if another process has it; ``locked``: the caller holds the lock. With
        ``as_is`` the schema is not upgraded: raises BadSetting if it is not the current one.
        """
        name = str(path)
        lock = None
        if name != MEMORY:
            try:
                lock = None if locked else Lock(Path(f"{name}.lock"))
                os.close(os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            except OSError as error:
                raise StoreUnavailable(f"{Path(name).name}: {error.strerror}.") from error
        db = cls(name, threads=threads, lock=lock)
        try:
            if name == MEMORY:
                await db._write.call(lambda: db._writer.load(_migrated()))
            await migrate(db, moving=moving, leaving=leaving, as_is=as_is)
        except BaseException as error:
            await db.close()
            if isinstance(error, StoreUnavailable) and isinstance(error.__cause__, apsw.Error):
                raise StoreUnavailable(f"{name}: {sqlite_reason(error.__cause__)}") from error
            raise
        return db

    @classmethod
    def reader(cls, path: str | Path) -> SqliteDb:
        """A read-only connection, for people, to a file that a writer process has opened."""
        return cls(str(path), threads=True, lock=None)

    @property
    def statements(self) -> int:
        return sum(session.count for session in {self._writer, self._reader})

    async def run(
        self,
        operation: Callable[[Tx], Awaitable[T]],
        *,
        mark: Mark | None = None,  # noqa: ARG002 - a commit's reply cannot be lost in one process
        read_only: bool = False,
        view: bool = False,
    ) -> T:
        if view:
            return await self._read.call(
                lambda: self._reader.transact(operation, begin="BEGIN DEFERRED")
            )
        begin = "BEGIN DEFERRED" if read_only else "BEGIN IMMEDIATE"
        return await self._write.call(lambda: self._writer.transact(operation, begin=begin))

    async def empty_log(self) -> bool:
        return await self._write.call(self._writer.empty_log)

    async def check_marks(self, node: int) -> None:
        """Nothing: no other server can take the place of a file."""

    async def remove_days(self, *, before: int, limit: int) -> int:  # noqa: ARG002
        return 0  # SQLite has no partitions; retention removes rows.

    async def raw(self, operation: Callable[[Execute], Awaitable[T]]) -> T:
        """Run plain SQL in one writing transaction: for migrations."""
        return await self._write.call(lambda: self._writer.raw(operation))

    async def rewrite(self) -> Rewrite:
        return await self._write.call(lambda: rewrite_file(self._writer.path))

    def grouped(self, work: Callable[[], T]) -> T:
        """Run several operations with one COMMIT; only where they run inline."""
        return self._writer.grouped(work)

    async def close(self) -> None:
        """Finish the calls under way, write the log back and release the file."""
        await self._write.call(self._writer.close)
        self._write.close()
        if self._reader is not self._writer:
            await self._read.call(self._reader.close)
            self._read.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


@cache
def _migrated() -> bytes:
    """An empty database in memory: tests and simulations open many, and migrate only one."""
    db = SqliteDb(MEMORY, threads=False, lock=None)
    run_sync(migrate(db))
    return db._writer.image()
