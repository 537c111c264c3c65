"""A change of a subscription is confirmed when every process acts on it.

Each process stores the version of the catalog that it has read. A process that has changed a
subscription waits until all processes that send have read the change. A process whose heartbeat has
stopped has stopped sending, and reads the catalog before it sends again. If a process lives but
cannot read, a warning is logged after the longest time that it may still send, and the wait ends.
"""

from __future__ import annotations

import asyncio

import structlog

from homing.engine.core import Core
from homing.errors import HomingError
from homing.ports import FleetStore

log = structlog.get_logger("homing.catalog_barrier")

AGAIN_MS = 20


class CatalogBarrier:
    """The catalog version of this process among those of the others."""

    def __init__(self, core: Core, store: FleetStore, *, me: int, lease_ms: int) -> None:
        self._store, self._catalog, self._clock = store, core.catalog, core.clock
        self._me, self._wait_max_ms = me, lease_ms * 9 // 10  # as long as a process may send
        self._reported = -1

    async def catch_up(self) -> None:
        """Read the changes of the catalog, and store the version read."""
        if self._reported < 0:  # From now on other processes wait for this one.
            await self._store.knows(self._me, 0)
            self._reported = 0
        await self._catalog.refresh()
        await self.report()

    async def report(self) -> None:
        """Store the version that this process has read, unless it is stored."""
        version = self._catalog.version
        if version > self._reported:
            await self._store.knows(self._me, version)
            self._reported = max(self._reported, version)

    async def wait(self, version: int) -> None:
        """Wait until no process acts on an older version."""
        until = self._clock.now() + self._wait_max_ms
        while await self._some_behind(version):
            if self._clock.now() >= until:
                log.warning(
                    "a process does not read a changed subscription; it is no longer waited for",
                    version=version,
                )
                return
            await asyncio.sleep(AGAIN_MS / 1000)

    async def _some_behind(self, version: int) -> bool:
        try:
            return bool(await self._store.behind(version, but=self._me))
        except HomingError as error:
            log.debug("the versions of other processes cannot be read", error=str(error))
            return True
