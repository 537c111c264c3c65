"""Who knows what of the subscriptions: a change is answered when every process acts on it.

Each process writes down the version it has read. Who has changed something waits until all that
send have read it; one whose heartbeat has stopped has stopped sending, and reads when it comes
back. One that lives and cannot read is told of, and not waited for for ever.
"""

from __future__ import annotations

import asyncio

import structlog

from homing.engine.core import Core
from homing.errors import HomingError
from homing.ports import FleetStore

log = structlog.get_logger("homing.aware")

AGAIN_MS = 20


class Aware:
    """The catalog of this process among those of the others."""

    def __init__(self, core: Core, store: FleetStore, *, me: int, lease_ms: int) -> None:
        self._store, self._catalog, self._clock = store, core.catalog, core.clock
        self._me, self._most_ms = me, lease_ms * 9 // 10  # so long one sends after a heartbeat
        self._said = -1
        core.held.all_know = self.all_know

    async def catch_up(self) -> None:
        """Read what has changed, and say so."""
        if self._said < 0:  # From now on others wait for us.
            await self._store.knows(self._me, 0)
            self._said = 0
        await self._catalog.refresh()
        await self.say()

    async def say(self) -> None:
        """Write down what is known here, if that was not done."""
        version = self._catalog.version
        if version > self._said:
            await self._store.knows(self._me, version)
            self._said = max(self._said, version)

    async def all_know(self, version: int) -> None:
        """Until nobody acts on an older one."""
        until = self._clock.now() + self._most_ms
        while await self._some_behind(version):
            if self._clock.now() >= until:
                log.warning("a process does not read the subscriptions", version=version)
                return
            await asyncio.sleep(AGAIN_MS / 1000)

    async def _some_behind(self, version: int) -> bool:
        try:
            return bool(await self._store.behind(version, but=self._me))
        except HomingError as error:
            log.debug("who knows what cannot be read", error=str(error))
            return True
