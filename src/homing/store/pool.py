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

    def __init__(
        self, dsn: str, *, size: int, settings: dict[str, str], pooled: bool = False
    ) -> None:
        self._dsn = dsn
        self._settings = settings
        self._pooled = pooled  # behind a pooler: a session's state is nobody's
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
            server_settings=None if self._pooled else self._settings,
            **({"statement_cache_size": 0} if self._pooled else {}),
        )

    @property
    def begin(self) -> str:
        """Begins a transaction; behind a pooler it brings its settings along."""
        if not self._pooled:
            return "BEGIN"
        return ";".join(("BEGIN", *(f"SET LOCAL {k} = '{v}'" for k, v in self._settings.items())))

    async def close(self) -> None:
        while self._free:
            connection = self._free.pop()
            try:
                await connection.close(timeout=5)
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                connection.terminate()
