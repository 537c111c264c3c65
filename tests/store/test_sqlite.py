"""SQLite under failures: a full disk, failing writes, a second process, and the recovery."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from homing.errors import DataInUse, StoreUnavailable
from homing.store.sqlite import SqliteDb
from store.scene import Scene, count


class Faults:
    """The calls of the file system that fail now."""

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self.error: type[apsw.Error] = apsw.IOError

    def check(self, call: str, name: str) -> None:
        if call in self.failing and not name.endswith("-shm"):
            raise self.error(f"secret row data in {call}")


@pytest.fixture
def faults() -> Iterator[Faults]:
    """A file system that fails on demand, used by every connection opened meanwhile."""
    faults = Faults()

    class File(apsw.VFSFile):
        def __init__(self, base: str, name: Any, flags: list[int]) -> None:
            self._name = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
            super().__init__(base, name, flags)

        def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
            faults.check("write", self._name)
            super().xWrite(data, offset)

        def xSync(self, flags: int) -> None:  # noqa: N802
            faults.check("sync", self._name)
            super().xSync(flags)

        def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
            faults.check("read", self._name)
            return super().xRead(amount, offset)

    class Disk(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("faulty", "", makedefault=True)

        def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
            return File("unix", name, flags)

    disk = Disk()
    yield faults
    faults.failing.clear()
    disk.unregister()


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("call", ["write", "sync"])
@pytest.mark.parametrize("error", [apsw.IOError, apsw.FullError])
async def test_a_failing_disk_heals_without_a_restart(
    faults: Faults, tmp_path: Path, call: str, error: type[apsw.Error], threads: bool
) -> None:
    db = await SqliteDb.open(tmp_path / "homing.db", threads=threads)
    scene = await Scene(db).begin()
    await scene.deliver(2)
    faults.failing, faults.error = {call}, error
    for _ in range(3):
        with pytest.raises(StoreUnavailable) as trouble:
            await scene.deliver(100)
        assert "secret" not in str(trouble.value)

    faults.failing = set()

    assert await count(db, "pending") == 2
    await scene.deliver(3)
    assert await count(db, "pending") == 5
    await db.close()
    again = await SqliteDb.open(tmp_path / "homing.db")
    assert await count(again, "pending") == 5
    await again.close()


async def test_a_full_disk_keeps_nothing_of_the_call_and_goes_on(tmp_path: Path) -> None:
    db = await SqliteDb.open(tmp_path / "homing.db")
    scene = await Scene(db).begin()

    async def allow(pages: int) -> None:
        await db.raw(lambda execute: execute(f"PRAGMA max_page_count = {pages}"))

    await allow(1)  # SQLite takes this as: no more than there are.
    with pytest.raises(StoreUnavailable, match="FullError"):
        await scene.deliver(2_000)
    assert await count(db, "event") == 0

    await allow(1_000_000)
    await scene.deliver(2_000)
    assert await count(db, "event") == 2_000
    await db.close()


async def test_unreadable_data_is_unavailable_and_not_a_crash(
    faults: Faults, tmp_path: Path
) -> None:
    db = await SqliteDb.open(tmp_path / "homing.db")
    scene = await Scene(db).begin()
    await scene.deliver(5)
    await db.close()
    db = await SqliteDb.open(tmp_path / "homing.db")
    scene.flow._db = db
    faults.failing = {"read"}
    with pytest.raises(StoreUnavailable):
        await scene.due()

    faults.failing = set()
    assert len((await scene.due()).fresh) == 5
    await db.close()


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "homing.db"
    path.write_bytes(b"no database " * 1000)
    with pytest.raises(StoreUnavailable, match="it is not a database"):
        await SqliteDb.open(path)
    with pytest.raises(StoreUnavailable, match=r"x\.db"):
        await SqliteDb.open(tmp_path / "missing" / "x.db")


async def test_a_second_opener_is_told_who_holds_the_file(tmp_path: Path) -> None:
    path = tmp_path / "homing.db"
    db = await SqliteDb.open(path)
    with pytest.raises(DataInUse, match=f"Process {os.getpid()} "):
        await SqliteDb.open(path)
    script = (
        "import asyncio, sys; from homing.store.sqlite import SqliteDb;"
        "from homing.errors import DataInUse\n"
        "try: asyncio.run(SqliteDb.open(sys.argv[1]))\n"
        "except DataInUse as error: print(error)"
    )
    told = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    assert f"Process {os.getpid()} " in told.stdout

    await db.close()
    again = await SqliteDb.open(path)
    await again.close()


async def test_only_its_owner_may_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "homing.db"
    db = await SqliteDb.open(path, threads=True)
    await Scene(db).begin()
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name
    await db.close()


async def test_the_log_is_written_back_before_it_grows(tmp_path: Path) -> None:
    db = await SqliteDb.open(tmp_path / "homing.db", threads=True)
    scene = await Scene(db).begin()
    data = b'"' + b"x" * 200_000 + b'"'
    for _ in range(12):
        await scene.publish([scene.make.event(scene.sub, data=data) for _ in range(50)])
    size = (tmp_path / "homing.db-wal").stat().st_size
    assert size < 64 * 1024 * 1024
    await db.close()
