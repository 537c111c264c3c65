"""Reads of subscriptions without a URL that wait for the next event.

A publish of this process wakes them at once. For other processes' publishes the ends of all streams
that somebody waits for are read in one statement, a few times a second, and only while somebody
waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from homing.errors import HomingError
from homing.ports.pull import PullStore

log = structlog.get_logger("homing.pull")

POLL_S = 0.25


class PullWaiters:
    """The reads that wait, by subscription."""

    def __init__(self, store: PullStore | None) -> None:
        self._store = store
        self._waiting: dict[int, set[asyncio.Event]] = {}
        self._heads: dict[int, int] = {}  # as last read
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    async def wait(self, subscription_id: int, *, head: int, timeout_s: float) -> bool:
        """Wait for an entry after ``head``; False if none came in time."""
        if self._stopped:
            return False
        event = asyncio.Event()
        waiting = self._waiting.setdefault(subscription_id, set())
        waiting.add(event)
        self._heads[subscription_id] = min(head, self._heads.get(subscription_id, head))
        if self._task is None and self._store is not None:
            self._task = asyncio.get_running_loop().create_task(self._poll())
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return False
        finally:
            waiting.discard(event)
            if not waiting and self._waiting.get(subscription_id) is waiting:
                del self._waiting[subscription_id]
                self._heads.pop(subscription_id, None)
        return True

    def wake(self, subscription_ids: Iterable[int]) -> None:
        """Let the reads of these streams go on: there are new entries."""
        if self._waiting:
            for subscription_id in subscription_ids:
                for event in self._waiting.get(subscription_id, ()):
                    event.set()

    async def _poll(self) -> None:
        assert self._store is not None
        try:
            while self._waiting:
                await asyncio.sleep(POLL_S)
                try:
                    heads = await self._store.heads(list(self._waiting))
                except HomingError as error:
                    log.debug("streams could not be read; they are read again", error=str(error))
                    continue
                # A stream that ends earlier than before has lost commits: its reads are woken, too.
                self.wake(it for it in self._waiting if heads.get(it, 0) != self._heads.get(it))
        finally:
            self._task = None

    def stop(self) -> None:
        """Let all reads go on, and let no other read wait."""
        self._stopped = True
        self.wake(list(self._waiting))
        if self._task is not None:
            self._task.cancel()
