"""``homing migrate``: the plan, the upgrade, and databases that are refused in words."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cli.terminal import Terminal
from homing.store.migrate import migrations
from homing.store.postgres import PostgresDb
from homing.store.sqlite import SqliteDb
from postgres import Server
from store.test_upgrade import write

NEWEST = migrations("sqlite")[-1].number


def old_sqlite(folder: Path, schema: int) -> Terminal:
    (folder / "homing-data").mkdir()
    file = folder / "homing-data" / "homing.db"
    asyncio.run(write(SqliteDb(str(file), threads=False, lock=None), schema, "http://a.example/"))
    return Terminal(folder)


def test_the_plan_changes_nothing_and_the_upgrade_does_what_it_says(tmp_path: Path) -> None:
    terminal = old_sqlite(tmp_path, 14)
    for _ in range(2):
        plan = terminal.well("migrate", "--plan").out
        assert f"has schema 14; {NEWEST - 14} migrations to schema {NEWEST}" in plan
        assert "15 causes" in plan
        assert "builds the index subscription_living on subscription (reads about 1 row)" in plan
        assert "stop the server first" in plan
        assert "Make a backup before" in plan
    assert f"has schema {NEWEST} now." in terminal.well("migrate").out
    assert "Nothing to do" in terminal.well("migrate").out
    assert "Nothing to do" in terminal.well("migrate", "--plan").out
    assert terminal.well("migrate", "--plan", "--json").document["migrations"] == []


@pytest.mark.parametrize(("schema", "told"), [(14, "may go on"), (11, "stop all of them first")])
def test_on_postgresql_the_plan_says_whether_old_servers_may_go_on(
    schema: int, told: str, postgres: Server, tmp_path: Path
) -> None:
    address = asyncio.run(postgres.make())
    asyncio.run(write(PostgresDb(address), schema, "http://a.example/"))
    terminal = Terminal(tmp_path, more={"HOMING_DATABASE_URL": address})
    plan = " ".join(terminal.well("migrate", "--plan").out.split())
    assert told in plan
    assert f"schema {NEWEST} now" in " ".join(terminal.well("migrate").out.split())


def test_a_database_of_a_newer_version_is_refused_by_every_command_in_words(tmp_path: Path) -> None:
    terminal = old_sqlite(tmp_path, NEWEST)

    async def newer() -> None:
        db = await SqliteDb.open(tmp_path / "homing-data" / "homing.db")
        await db.raw(lambda execute: execute("INSERT INTO migration VALUES (9999, 'later', 0)"))
        await db.close()

    asyncio.run(newer())
    for command in (("migrate",), ("migrate", "--plan"), ("serve",)):
        refused = terminal.process(*command)
        assert (refused.code, len(refused.err.splitlines())) == (2, 1), refused.err
        assert "newer version of Homing has upgraded the database to schema 9999" in refused.err


@pytest.mark.long
def test_after_a_move_the_old_database_refuses_to_serve_and_says_where_it_went(
    postgres: Server, tmp_path: Path
) -> None:
    address = asyncio.run(postgres.make())
    terminal = old_sqlite(tmp_path, NEWEST)
    secret = address.replace("//postgres:@", "//postgres:very-secret@")
    terminal.well("move", "--to", secret)
    for command in (("serve",), ("migrate",), ("migrate", "--plan")):
        refused = terminal.process(*command)
        assert (refused.code, len(refused.err.splitlines())) == (2, 1), refused.err
        assert "This installation was moved to the database postgres of PostgreSQL" in refused.err
        assert "very-secret" not in refused.err
    elsewhere = terminal.run("move", "--to", "sqlite:elsewhere")
    assert (elsewhere.code, "move it from there" in elsewhere.err) == (2, True), elsewhere.err
    back = terminal.well("move", "--from", secret, "--to", "sqlite:back")
    assert "checksums are equal" in back.out
    gone = terminal.process("serve", HOMING_DATABASE_URL=secret)
    assert (gone.code, str(tmp_path / "back" / "homing.db") in gone.err) == (2, True), gone.err
