"""A few PostgreSQL connections, opened when needed and thrown away when they may be broken.

asyncpg's own pool resets each connection with a round trip when it is given back; ours are only
given back clean, so that a transaction costs its statements and nothing more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import asyncpg


class Pool:
    """At most ``size`` connections with the same settings."""

    def __init__(self, dsn: str, *, size: int, settings: dict[str, str]) -> None:
        self._dsn = dsn
        self._settings = settings
        self._room = asyncio.Semaphore(size)
        self._free: list[Any] = []

    @contextlib.asynccontextmanager
    async def take(self) -> AsyncIterator[Any]:
        """A connection outside any transaction; one that is not so afterwards is thrown away."""
        async with self._room:
            connection = await self._sound()
            clean = False
            try:
                yield connection
                clean = True
            except Exception:
                clean = True  # As far as we know: what follows looks.
                raise
            finally:
                if not clean or connection.is_closed() or connection.is_in_transaction():
                    connection.terminate()
                else:
                    self._free.append(connection)

    async def _sound(self) -> Any:
        while self._free:
            connection = self._free.pop()
            if not connection.is_closed():
                return connection
        return await asyncpg.connect(
            self._dsn,
            timeout=5,
            command_timeout=30,
            max_cached_statement_lifetime=0,
            server_settings=self._settings,
        )

    async def close(self) -> None:
        while self._free:
            connection = self._free.pop()
            try:
                await connection.close(timeout=5)
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                connection.terminate()
