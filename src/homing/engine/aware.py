"""Who knows what of the subscriptions: a change is answered when every process acts on it.

Each process writes down the version it has read. Who has changed something waits until all that
are alive and send have read it; one whose heartbeat has stopped has stopped sending before.
"""

from __future__ import annotations

import asyncio

from homing.engine.core import Core
from homing.errors import Unavailable
from homing.ports import FleetStore

AGAIN_MS = 20
LEASES_MOST = 2  # who is alive for so long and has not read never will


class Aware:
    """The catalog of this process among those of the others."""

    def __init__(self, core: Core, store: FleetStore, *, me: int, lease_ms: int) -> None:
        self._store, self._catalog, self._clock = store, core.catalog, core.clock
        self._me, self._most_ms = me, LEASES_MOST * lease_ms
        self._said = 0
        core.held.all_know = self.all_know

    async def catch_up(self) -> None:
        """Read what has changed, and say so."""
        await self._catalog.refresh()
        await self.say()

    async def say(self) -> None:
        """Write down what is known here, if that was not done."""
        version = self._catalog.version
        if version > self._said:
            await self._store.knows(self._me, version)
            self._said = max(self._said, version)

    async def all_know(self, version: int) -> None:
        """Until nobody acts on an older one; Unavailable if somebody goes on doing so."""
        until = self._clock.now() + self._most_ms
        while behind := await self._store.behind(version, but=self._me):
            if self._clock.now() >= until:
                names = ", ".join(behind)
                raise Unavailable(f"It is done, but {names} may not act on it yet.")
            await asyncio.sleep(AGAIN_MS / 1000)
