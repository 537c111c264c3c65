"""Migrations: interrupted anywhere, begun by two at once, the schema ends up whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from homing.errors import BadSetting
from homing.store.migrate import Execute, Ground, migrate, migrations, split
from homing.store.postgres import PostgresDb
from homing.store.rows import COLUMNS
from homing.store.sqlite import SqliteDb
from homing.store.tx import Row
from postgres import Server

T = TypeVar("T")


class PowerCut(Exception):
    """The process ends here."""


class Interrupted:
    """A database on which the process ends before the given statement."""

    def __init__(self, ground: Ground, at: int) -> None:
        self.dialect = ground.dialect
        self._ground = ground
        self._left = at

    async def raw(self, operation: Callable[[Execute], Awaitable[T]]) -> T:
        async def cut(execute: Execute) -> T:
            async def counted(text: str, *values: Any) -> list[Row]:
                if self._left == 0:
                    raise PowerCut
                self._left -= 1
                return await execute(text, *values)

            return await operation(counted)

        return await self._ground.raw(cut)


@pytest.fixture
async def bare(store: str, server: Server | None, tmp_path: Path) -> Callable[[], Awaitable[Any]]:
    """Makes connections to one database without a schema."""
    dsn = await server.make() if server else ""

    async def connect() -> Any:
        match store:
            case "sqlite-memory":
                return SqliteDb(":memory:", threads=False, lock=None)
            case "sqlite-file":
                return SqliteDb(str(tmp_path / "bare.db"), threads=True, lock=None)
            case _:
                return PostgresDb(dsn)

    return connect


Connect = Callable[[], Awaitable[Any]]


async def test_a_migration_may_be_interrupted_at_every_statement(bare: Connect) -> None:
    db = await bare()
    cuts = 0
    while True:
        try:
            await migrate(Interrupted(db, at=cuts))
            break
        except PowerCut:
            cuts += 1
    assert cuts > len(migrations(db.dialect)[0].statements)
    await assert_whole(db)
    await db.close()


async def test_two_may_begin_at_once(bare: Connect, store: str) -> None:
    if store == "sqlite-memory":
        return  # nobody else can have it
    dbs = [await bare() for _ in range(3)]
    await asyncio.gather(*(migrate(db) for db in dbs))
    await assert_whole(dbs[0])
    for db in dbs:
        await db.close()


async def test_a_newer_database_is_left_alone(bare: Connect) -> None:
    db = await bare()
    await migrate(db)
    await db.raw(lambda execute: execute("INSERT INTO migration VALUES (9999, 'later', 0)"))

    with pytest.raises(BadSetting, match="9999"):
        await migrate(db)
    await db.close()


async def assert_whole(db: Any) -> None:
    for table, columns in COLUMNS.items():
        names = ", ".join(columns)
        await db.raw(lambda execute, sql=f"SELECT {names} FROM {table}": execute(sql))
    found = await db.raw(lambda execute: execute("SELECT number, name FROM migration"))
    assert sorted(found) == [(it.number, it.name) for it in migrations(db.dialect)]


def test_a_script_is_split_at_its_statements() -> None:
    script = "-- one; two\nCREATE TABLE a (x); -- why\nINSERT INTO a\nVALUES (1);\n"
    assert split(script) == ("CREATE TABLE a (x)", "INSERT INTO a\nVALUES (1)")
