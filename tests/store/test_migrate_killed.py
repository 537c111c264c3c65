"""Migrations whose process is killed before each statement: every database recovers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from homing.store.migrate import migrations
from homing.store.tx import Dialect
from postgres import Server
from store.killed import connect, migrated
from store.test_migrate import assert_whole


@pytest.mark.long
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
    while not migrated(place, tombs):
        kills += 1
    assert kills > len({text for it in migrations(dialect) for text in it.statements})

    async def look() -> None:
        db = connect(place)
        await assert_whole(db)
        await db.close()

    asyncio.run(look())
    print(f"{dialect}: killed {kills} times")
