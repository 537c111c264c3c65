"""Migrations give a complete schema, interrupted anywhere or run by two processes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from homing.errors import BadSetting
from homing.store import migrate as migrate_module
from homing.store.migrate import Execute, RawSql, migrate, migrations, split
from homing.store.postgres import PostgresDb
from homing.store.rows import COLUMNS
from homing.store.sqlite import SqliteDb
from homing.store.tx import Row
from postgres import Server

T = TypeVar("T")


class PowerCut(Exception):
    """Raised instead of the end of the process."""


class Interrupted:
    """A database on which the process ends before the given statement."""

    def __init__(self, db: RawSql, at: int) -> None:
        self.dialect = db.dialect
        self._db = db
        self._left = at

    async def raw(self, operation: Callable[[Execute], Awaitable[T]]) -> T:
        async def cut(execute: Execute) -> T:
            async def counted(text: str, *values: Any) -> list[Row]:
                if self._left == 0:
                    raise PowerCut
                self._left -= 1
                return await execute(text, *values)

            return await operation(counted)

        return await self._db.raw(cut)


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


def test_every_number_belongs_to_one_file_and_to_both_databases() -> None:
    """Of two files with the same number only one would be applied."""
    numbers = {
        dialect: [(it.number, it.name) for it in migrations(dialect)]
        for dialect in ("sqlite", "postgres")
    }
    assert numbers["sqlite"] == numbers["postgres"]
    assert [number for number, _ in numbers["sqlite"]] == list(range(1, len(numbers["sqlite"]) + 1))


def test_a_script_is_split_at_its_statements() -> None:
    script = "-- one; two\nCREATE TABLE a (x); -- why\nINSERT INTO a\nVALUES (1);\n"
    assert split(script) == ("CREATE TABLE a (x)", "INSERT INTO a\nVALUES (1)")


OLD_ROWS = {  # with the names of schema 11: every table and column that schema 12 renames
    "pending": "id bucket tenant endpoint_id subscription_id event_id root_id accepted_at part"
    " due_at expires_at t0 retry attempts ours replay",
    "history": "id bucket tenant endpoint_id subscription_id event_id root_id accepted_at"
    " due_at expires_at t0 retry attempts ours replay status reason finished_at arrived",
    "attempt": "delivery_id number endpoint_id subscription_id lane started_at finished_at outcome"
    " detail total_us request_headers answer_headers excerpt decided retry",
    "rollup": "at endpoint_id tenant node delivered failed ours dropped"
    " b0 b1 b2 b3 b4 b5 b6 b7 b8 b9 b10 b11",
    "rollup_hour": "at endpoint_id tenant node delivered failed ours dropped"
    " b0 b1 b2 b3 b4 b5 b6 b7 b8 b9 b10 b11",
    "replay_job": "id filter created_at state upto_id after_id looked_at replayed skipped",
    "process": "id node name role delivers started_at expires_at catalog",
    "chore": "id kind subscription_id endpoint_id after_id",
    "seal": "name done",
    "news": "topic version",
}
RENAMED_TABLES = {"chore": "cleanup_job", "seal": "encryption_key", "news": "topic_version"}
RENAMED_COLUMNS = {
    "ours": "sender_errors",
    "answer_headers": "response_headers",
    "excerpt": "response_excerpt",
    "looked_at": "scanned",
    "catalog": "catalog_version",
    "done": "encrypts_all",
}
TEXTS = {"tenant", "lane", "outcome", "detail", "decided", "status", "reason"}
TEXTS |= {"state", "name", "role", "kind", "topic"}
BLOBS = {"request_headers", "answer_headers", "excerpt"}


async def test_rows_keep_their_values_under_plain_names(bare: Connect) -> None:
    db = await bare()
    sign = "?" if db.dialect == "sqlite" else "$"
    old = tuple(it for it in migrations(db.dialect) if it.number < 12)

    def values(columns: list[str]) -> tuple[object, ...]:
        return tuple(
            "{}"
            if it == "filter"
            else it
            if it in TEXTS
            else it.encode()
            if it in BLOBS
            else number
            for number, it in enumerate(columns, 1)
        )

    async def write(execute: Execute) -> None:
        for table, text in OLD_ROWS.items():
            columns = text.split()
            marks = ", ".join(f"{sign}{n}" for n, _ in enumerate(columns, 1))
            names = ", ".join(columns)
            await execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", *values(columns))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate_module, "migrations", lambda _: old)
        await migrate(db)
    await db.raw(write)

    await migrate(db)

    for table, text in OLD_ROWS.items():
        columns = text.split()
        names = ", ".join(RENAMED_COLUMNS.get(it, it) for it in columns)
        query = f"SELECT {names} FROM {RENAMED_TABLES.get(table, table)}"
        (row,) = await db.raw(lambda execute, query=query: execute(query))
        assert row == values(columns), table
    for table in ("catalog", "key_version", "clock_mark"):
        query = f"SELECT id FROM {table}"
        assert await db.raw(lambda execute, query=query: execute(query)) == [(1,)]
    await db.close()


async def test_every_index_of_postgres_is_named_after_its_table(postgres: Server) -> None:
    db = await PostgresDb.open(await postgres.make())
    query = """
        SELECT i.relname FROM pg_index x
        JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
        WHERE t.relnamespace = current_schema()::regnamespace AND NOT t.relispartition
        AND NOT starts_with(i.relname, t.relname)
    """
    assert await db.raw(lambda execute: execute(query)) == []
    await db.close()
