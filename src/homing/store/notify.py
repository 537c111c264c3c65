"""Notifications between processes through PostgreSQL: NOTIFY outside transactions, and LISTEN.

Listening needs a connection of its own, straight to the server: a pooler in transaction mode
cannot listen. Without it, or while it is broken, every process still polls once a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import asyncpg
import structlog

from homing.store.connect import Connector
from homing.store.tx import Db, Tx

log = structlog.get_logger("homing.notifications")

PAUSES_S = (0.1, 0.3, 1.0)
_CHANNEL = "SELECT 'homing.' || current_schema()"


class PostgresNotificationBus:
    """``NotificationBus`` on PostgreSQL; without a ``connector`` it sends and does not listen."""

    def __init__(self, db: Db, connector: Connector | None) -> None:
        self._db, self._connector = db, connector
        self._task: asyncio.Task[None] | None = None
        self._live = False
        self._connection: Any = None

    @property
    def live(self) -> bool:
        return self._live

    async def send(self, texts: Sequence[str]) -> None:
        async def work(tx: Tx) -> None:
            await tx.all("notify_all", texts=list(texts))

        if texts:
            await self._db.run(work, read_only=True)

    def listen(self, on_message: Callable[[str], None], gap: Callable[[], None]) -> None:
        if self._connector is not None:
            self._task = asyncio.get_running_loop().create_task(self._listen(on_message, gap))

    async def _listen(self, on_message: Callable[[str], None], gap: Callable[[], None]) -> None:
        failures = 0
        while True:
            try:
                broken = await self._begin_listening(on_message)
                failures = 0
                self._live = True
                gap()
                await broken.wait()
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
                failures += 1
                if failures == 1:
                    log.warning(
                        "the connection for notifications is broken; changes are found by polling",
                        error=type(error).__name__,
                    )
            finally:
                self._live = False
            await asyncio.sleep(PAUSES_S[min(failures, len(PAUSES_S) - 1)])

    async def _begin_listening(self, on_message: Callable[[str], None]) -> asyncio.Event:
        """Listen on a new connection; returns an event that is set when it breaks."""
        assert self._connector is not None
        broken = asyncio.Event()
        connection: Any = await self._connector.connect(
            server_settings={"application_name": "homing listens"}
        )
        connection.add_termination_listener(lambda _: broken.set())
        channel = await connection.fetchval(_CHANNEL)
        await connection.add_listener(
            channel, lambda _connection, _pid, _channel, text: on_message(text)
        )
        self._connection = connection
        self._connector.watch(self)
        return broken

    def waiting_since(self) -> float | None:
        return None  # A connection that only listens is silent most of the time.

    def connections(self) -> list[Any]:
        return [] if self._connection is None else [self._connection]

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._connector is not None:
            self._connector.unwatch(self)
        if self._connection is not None and not self._connection.is_closed():
            self._connection.terminate()
