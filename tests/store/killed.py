"""Migrations in a process that is killed before each statement that was not tried yet."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import traceback
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import apsw

from homing.store.migrate import Execute, RawSql, migrate
from homing.store.postgres import PostgresDb
from homing.store.sqlite import SqliteDb
from homing.store.tx import Row

T = TypeVar("T")

WELL = 0
_LONGEST, _WRITTEN = "longest_ms", "written_kb"


class Stuck(Exception):
    """A migration that was begun again has failed."""


class Deadly:
    """A database whose process is killed before the first statement not yet tried.

    ``torn``: a broken build, in which each statement is a transaction of its own.
    """

    def __init__(self, db: RawSql, tombs: Path, *, torn: bool) -> None:
        self.dialect = db.dialect
        self._db, self._tombs, self._torn = db, tombs, torn

    async def raw(self, operation: Callable[[Execute], Awaitable[T]]) -> T:
        async def alone(text: str, *values: Any) -> list[Row]:
            return await self._db.raw(lambda execute: execute(text, *values))

        async def counted(execute: Execute) -> T:
            async def one(text: str, *values: Any) -> list[Row]:
                tomb = self._tombs / sha256(text.encode()).hexdigest()
                if not tomb.exists():
                    tomb.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                return await execute(text, *values)

            return await operation(one)

        began, written = time.monotonic(), _pages_written(self._db)
        result = await (counted(alone) if self._torn else self._db.raw(counted))
        took_ms = round((time.monotonic() - began) * 1000)
        more_kb = (_pages_written(self._db) - written) * 4
        _note(self._tombs, _LONGEST, max(took_ms, longest_ms(self._tombs)))
        _note(self._tombs, _WRITTEN, written_kb(self._tombs) + more_kb)
        return result


def _pages_written(db: RawSql) -> int:
    """By the connection of a SQLite file so far, 0 of PostgreSQL."""
    connection = db._writer._connection if isinstance(db, SqliteDb) else None
    return connection.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0] if connection else 0


def _note(tombs: Path, name: str, number: int) -> None:
    (tombs / name).write_text(str(number))


def _noted(tombs: Path, name: str) -> int:
    place = tombs / name
    return int(place.read_text()) if place.exists() else 0


def longest_ms(tombs: Path) -> int:
    """How long the longest transaction took that was committed."""
    return _noted(tombs, _LONGEST)


def written_kb(tombs: Path) -> int:
    """What was committed to a SQLite file."""
    return _noted(tombs, _WRITTEN)


def connect(place: str) -> Any:
    if place.startswith("postgresql"):
        return PostgresDb(place)
    return SqliteDb(place, threads=False, lock=None)


def _child(place: str, tombs: Path, *, torn: bool) -> NoReturn:
    async def work() -> None:
        db = connect(place)
        await migrate(Deadly(db, tombs, torn=torn))
        await db.close()

    try:
        asyncio.run(work())
    except BaseException:  # noqa: BLE001 - nothing of this process may reach the tests'
        traceback.print_exc()
        os._exit(1)
    os._exit(WELL)


def migrated(place: str, tombs: Path, *, torn: bool = False) -> bool:
    """Migrate in another process; False if it was killed. Raises Stuck if it failed."""
    pid = os.fork()
    if pid == 0:
        _child(place, tombs, torn=torn)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    if os.WEXITSTATUS(status) != WELL:
        raise Stuck
    return True
