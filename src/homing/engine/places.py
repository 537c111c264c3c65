"""A few places for work in steps: whoever finds none free waits, and tenants take turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from homing.policy.turns import Turns

_Waiter = tuple[str, asyncio.Future[None]]


class Places:
    """Places of one kind of work. Everything here runs on the event loop."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: Turns[_Waiter] = Turns()

    @asynccontextmanager
    async def one(self, tenant: str) -> AsyncIterator[None]:
        """A place, for the length of a step; at once where one is free."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(tenant)
        try:
            yield
        finally:
            self._give()

    async def _wait(self, tenant: str) -> None:
        waiter = (tenant, asyncio.get_running_loop().create_future())
        self._waiting.add(tenant, waiter)
        try:
            await waiter[1]
        except asyncio.CancelledError:
            self._waiting.discard(tenant, waiter)
            if not waiter[1].cancelled():  # The place had come already.
                self._give()
            raise

    def _give(self) -> None:
        waiter = self._waiting.next()
        while waiter is not None:
            self._waiting.discard(waiter[0], waiter)
            if not waiter[1].done():
                waiter[1].set_result(None)
                return
            waiter = self._waiting.next()
        self._free += 1
