"""A whole installation goes over, row by row the same, however often the move is broken off."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from homing.errors import BadSetting
from homing.model import id_floor
from homing.store import move as moving
from homing.store.migrate import Execute, RawSql
from homing.store.move import NotTheSame, Table, move, tables_of
from homing.store.postgres import PostgresDb
from homing.store.sqlite import SqliteDb
from postgres import Server

DAY = 86_400_000
NOW = 1_750_000_000_000
TEXTS = ("", "plain", "ä€😀", 'it\'s "quoted"', "Zebra", "zebra", "a\tb\nc")
IDS = {"id", "delivery_id"}
SINGLE_ROW = {"catalog", "key_version", "audit_head"}


class BrokenOff(Exception):
    """The move was killed here."""


def cell(dice: random.Random, table: Table, column: str, kind: str, number: int) -> object:
    """A value that fits the column; different for each row where it is part of the key."""
    if table.name in SINGLE_ROW and column in table.key:
        return 1
    if column in IDS and column in table.key:
        return id_floor(NOW - DAY * (number % 40)) + number
    if kind == "INTEGER":
        return number if column in table.key else dice.choice((0, 1, 7, 30_000))
    if kind == "REAL":
        return number / 8  # exact in both
    if kind == "BLOB":
        end = number.to_bytes(2, "big") if column in table.key else b""
        return dice.randbytes(dice.randrange(40)) + end
    text = f"{dice.choice(TEXTS)}{number}"
    if column == "filter":  # An index reads this JSON.
        return json.dumps({"tenant": text, "event_id": number})
    return text


async def fill(db: SqliteDb, *, rows: int) -> dict[str, int]:
    """Rows in every table that moves; how many there are."""
    dice = random.Random(7)
    tables = await tables_of(db)

    async def write(run: Execute) -> None:
        for table in tables.values():
            await run(f"DELETE FROM {table.name}")
            count = 1 if table.name in SINGLE_ROW else rows
            for number in range(count):
                values = [
                    cell(dice, table, column, kind, number)
                    for column, kind in zip(table.columns, table.types, strict=True)
                ]
                marks = ", ".join("?" for _ in values)
                await run(f"INSERT INTO {table.name} VALUES ({marks})", *values)

    await db.raw(write)
    return {name: 1 if table.name in SINGLE_ROW else rows for name, table in tables.items()}


@asynccontextmanager
async def two(postgres: Server, folder: Path) -> AsyncIterator[tuple[SqliteDb, PostgresDb, str]]:
    address = await postgres.make()
    source = await SqliteDb.open(folder / "source.db")
    target = await PostgresDb.open(address)
    try:
        yield source, target, address
    finally:
        await source.close()
        await target.close()


def quiet(*_: object) -> None:
    """Nobody looks."""


async def dump(db: RawSql) -> dict[str, set[tuple[object, ...]]]:
    found = {}
    for name, table in (await tables_of(db)).items():
        found[name] = set(await moving._fetch(db, f"SELECT {', '.join(table.columns)} FROM {name}"))
    return found


async def test_every_row_of_every_table_goes_over_and_back(
    postgres: Server, tmp_path: Path
) -> None:
    async with two(postgres, tmp_path) as (source, target, _):
        counts = await fill(source, rows=60)
        told: list[tuple[str, int, int]] = []
        moved = await move(source, target, lambda *at: told.append(at), batch_rows=7)
        assert moved.rows == counts
        original = await dump(source)
        assert await dump(target) == original
        assert {len(rows) for rows in original.values()} == {1, 60}
        assert told[-1][0] == "verifying"
        assert told[-1][1] == told[-1][2]
        assert [one for one in told if one[0] == "moving"][-1][1] == sum(counts.values())
        parts = await target.raw(lambda run: run("SELECT count(*) FROM event_default"))
        assert parts == [(0,)]  # The days of the source were made.
        back = await SqliteDb.open(tmp_path / "back.db")
        again = await move(target, back, quiet)
        assert again.checksums == moved.checksums
        assert await dump(back) == original
        await back.close()


@pytest.mark.long
async def test_a_move_that_is_broken_off_again_and_again_goes_on_where_it_was(
    postgres: Server, tmp_path: Path
) -> None:
    async with two(postgres, tmp_path) as (source, target, address):
        counts = await fill(source, rows=30)
        breaks = 0
        while True:
            left = 5

            def fall(what: str, _done: int, _total: int) -> None:
                nonlocal left
                left -= what == "moving"
                if left == 0:
                    raise BrokenOff

            try:
                moved = await move(source, target, fall, batch_rows=4)
            except BrokenOff:
                breaks += 1
                with pytest.raises(BadSetting, match="is not complete"):
                    await PostgresDb.open(address)  # No server starts on half an installation.
                continue
            break
        assert breaks > 10
        assert moved.rows == counts
        assert await dump(target) == await dump(source)
        await (await PostgresDb.open(address)).close()


async def test_a_target_with_data_and_a_source_that_changed_are_refused(
    postgres: Server, tmp_path: Path
) -> None:
    async with two(postgres, tmp_path) as (source, target, _):
        await fill(source, rows=3)
        await move(source, target, quiet)
        with pytest.raises(BadSetting, match="must be empty"):
            await move(source, target, quiet)
    second = tmp_path / "second"
    second.mkdir()
    async with two(postgres, second) as (source, target, _):
        await fill(source, rows=3)

        def fall(*_: object) -> None:
            raise BrokenOff

        with pytest.raises(BrokenOff):
            await move(source, target, fall)
        await source.raw(lambda run: run("DELETE FROM event"))
        with pytest.raises(BadSetting, match="has changed"):
            await move(source, target, quiet)


async def test_a_copy_that_differs_is_found(postgres: Server, tmp_path: Path) -> None:
    async with two(postgres, tmp_path) as (source, target, _):
        await fill(source, rows=5)
        spoiled = asyncio.Event()
        real = moving._verify

        async def spoil(*args: object) -> moving.Moved:
            if not spoiled.is_set():
                spoiled.set()
                await target.raw(
                    lambda run: run("UPDATE history SET reason = 'x' WHERE id % 2 = 0")
                )
            return await real(*args)  # type: ignore[arg-type]

        moving._verify = spoil  # type: ignore[assignment]
        try:
            with pytest.raises(NotTheSame, match="history: 5 rows"):
                await move(source, target, quiet)
        finally:
            moving._verify = real
