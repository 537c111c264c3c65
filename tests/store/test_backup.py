"""A copy of the SQLite file shows one moment, also while the file is written to."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from homing.errors import DataInUse, StoreUnavailable
from homing.store.backup import BadCopy, check_copy, copy_database, unheld
from homing.store.inspect import holder, inspect_postgres, inspect_sqlite
from homing.store.migrate import Execute
from homing.store.sqlite import SqliteDb
from postgres import Server


async def test_a_copy_is_of_one_moment_while_commits_go_on(tmp_path: Path) -> None:
    file = tmp_path / "homing.db"
    db = await SqliteDb.open(file, threads=True)
    written = 0

    async def both(execute: Execute) -> None:
        nonlocal written
        await execute("INSERT INTO batch_mark VALUES (?, 'publish', 1, 0)", written)
        await execute("INSERT INTO batch_mark VALUES (?, 'settle', 1, 0)", written)
        written += 1

    async def write() -> None:
        while True:
            await db.raw(both)

    writer = asyncio.create_task(write())
    try:
        for number in range(5):
            target = tmp_path / f"copy-{number}.db"
            before = max(written - 1, 0)  # the last may not have been committed yet
            copied = await asyncio.to_thread(copy_database, file, target, lambda *_: None)
            assert copied.rows["batch_mark"] % 2 == 0, "half of a commit"
            assert copied.rows["batch_mark"] >= 2 * before
            assert check_copy(target) == copied.rows
            await asyncio.sleep(0.02)
    finally:
        writer.cancel()
        await asyncio.wait([writer])
        await db.close()
    assert written > 0


def test_nothing_is_overwritten_and_nothing_left_behind(tmp_path: Path) -> None:
    asyncio.run(_made(tmp_path / "homing.db"))
    target = tmp_path / "copy.db"
    target.write_text("precious")
    with pytest.raises(StoreUnavailable, match="File exists"):
        copy_database(tmp_path / "homing.db", target, lambda *_: None)
    assert target.read_text() == "precious"
    with pytest.raises(StoreUnavailable):
        copy_database(tmp_path / "none.db", tmp_path / "other.db", lambda *_: None)
    left = {path.name for path in tmp_path.iterdir() if not path.name.endswith(("-wal", "-shm"))}
    assert left == {"homing.db", "homing.db.lock", "copy.db"}


async def _made(file: Path) -> None:
    await (await SqliteDb.open(file)).close()


async def test_who_holds_the_data_is_seen_without_touching_it(tmp_path: Path) -> None:
    file = tmp_path / "homing.db"
    assert holder(file) is None
    db = await SqliteDb.open(file)
    assert holder(file) == os.getpid()
    with pytest.raises(DataInUse), unheld(file):
        pass
    facts = inspect_sqlite(file)
    assert (facts.last_id, facts.clock_ms) == (0, None)
    assert facts.version.startswith("SQLite 3.")
    await db.close()
    assert holder(file) is None
    with unheld(file):
        assert holder(file) == os.getpid()


def test_what_is_no_database_of_ours_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("nothing of the kind " * 100)
    with pytest.raises(BadCopy, match="not a database"):
        check_copy(tmp_path / "text.db")
    (tmp_path / "empty.db").write_bytes(b"")
    with pytest.raises(BadCopy, match="not a database of Homing"):
        check_copy(tmp_path / "empty.db")


async def test_postgres_is_looked_at(postgres: Server) -> None:
    facts = await inspect_postgres(await postgres.make())
    assert facts.version.startswith("PostgreSQL ")
    assert facts.size_bytes > 0
    assert facts.clock_ms is not None
    with pytest.raises(StoreUnavailable, match=r"Nothing listens at 127\.0\.0\.1:9"):
        await inspect_postgres("postgresql://127.0.0.1:9/none")
