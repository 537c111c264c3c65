"""Migrations whose process is killed before each statement: every database recovers."""

from __future__ import annotations

import asyncio
import os
import signal
import traceback
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

import pytest

from homing.store.migrate import Execute, RawSql, migrate, migrations
from homing.store.postgres import PostgresDb
from homing.store.sqlite import SqliteDb
from homing.store.tx import Dialect, Row
from postgres import Server
from store.test_migrate import T, assert_whole

WELL = 0


class Deadly:
    """A database whose process is killed before the first statement not yet tried."""

    def __init__(self, db: RawSql, tombs: Path) -> None:
        self.dialect = db.dialect
        self._db, self._tombs = db, tombs

    async def raw(self, operation: Callable[[Execute], Awaitable[T]]) -> T:
        async def counted(execute: Execute) -> T:
            async def one(text: str, *values: Any) -> list[Row]:
                tomb = self._tombs / sha256(text.encode()).hexdigest()
                if not tomb.exists():
                    tomb.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                return await execute(text, *values)

            return await operation(one)

        return await self._db.raw(counted)


def _connect(place: str) -> Any:
    if place.startswith("postgresql"):
        return PostgresDb(place)
    return SqliteDb(place, threads=False, lock=None)


def _child(place: str, tombs: Path) -> NoReturn:
    async def work() -> None:
        db = _connect(place)
        await migrate(Deadly(db, tombs))
        await db.close()

    try:
        asyncio.run(work())
    except BaseException:  # noqa: BLE001 - nothing of this process may reach the tests'
        traceback.print_exc()
        os._exit(1)
    os._exit(WELL)


def _migrated(place: str, tombs: Path) -> bool:
    """Migrate in another process; False if it was killed."""
    pid = os.fork()
    if pid == 0:
        _child(place, tombs)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == WELL
    return True


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_a_process_may_be_killed_at_every_statement_of_every_migration(
    dialect: Dialect, postgres: Server, tmp_path: Path
) -> None:
    place = str(tmp_path / "bare.db")
    if dialect == "postgres":
        place = asyncio.run(postgres.make())
    tombs = tmp_path / "tombs"
    tombs.mkdir()
    kills = 0
    while not _migrated(place, tombs):
        kills += 1
    assert kills > len({text for it in migrations(dialect) for text in it.statements})

    async def look() -> None:
        db = _connect(place)
        await assert_whole(db)
        await db.close()

    asyncio.run(look())
    print(f"{dialect}: killed {kills} times")
