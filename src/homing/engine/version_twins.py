"""The end of version twins: the subscriptions that send an old version for five minutes.

An event is matched with a twin only until its time is over (``policy.wants``). Then the owner of
its bucket sets it inactive, and deletes it once none of its deliveries is pending. Every process
watches all twins that it knows, so a twin also ends after a restart, and where its bucket moves.
"""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from homing.engine.core import Core
from homing.engine.operate import Operator
from homing.errors import HomingError, NotFound, StaleCatalog
from homing.model import Subscription, bucket_of, show_id
from homing.policy.audit import Who
from homing.ports.audit import acting

log = structlog.get_logger("homing.version_twins")

CHECK_EVERY_MS = 60_000  # whether it can be deleted, in its first minutes
LATER_EVERY_MS = 600_000
_OURSELVES = Who("Homing")


class VersionTwins:
    """Ends all twins whose time is over."""

    def __init__(self, core: Core, operator: Operator) -> None:
        self._clock, self._catalog, self._ownership = core.clock, core.catalog, core.ownership
        self._operator = operator
        self._changed: dict[int, asyncio.Event] = {}  # of each twin that is watched
        self._tasks: set[asyncio.Task[None]] = set()
        core.catalog.on_twin = self._watch

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _watch(self, twin: Subscription) -> None:
        """Watch a twin that was added or changed."""
        if (changed := self._changed.get(twin.id)) is not None:
            changed.set()
            return
        changed = self._changed[twin.id] = asyncio.Event()
        task = asyncio.get_running_loop().create_task(self._end(twin.id, changed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, twin_id: int, changed: asyncio.Event) -> None:
        try:
            await self._end_in_time(twin_id, changed)
        finally:
            del self._changed[twin_id]

    async def _end_in_time(self, twin_id: int, changed: asyncio.Event) -> None:
        while (twin := self._catalog.get(twin_id)) is not None:
            changed.clear()
            now, until = self._clock.now(), _until(twin)
            wait_ms = until - now
            if wait_ms <= 0:
                await self._end_one(twin)
                wait_ms = CHECK_EVERY_MS if now < until + LATER_EVERY_MS else LATER_EVERY_MS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await changed.wait()

    async def _end_one(self, twin: Subscription) -> None:
        if not self._ownership.mine[bucket_of(twin.tenant, twin.url)]:
            return
        try:
            with acting(_OURSELVES, "workfront.end_old_version"):
                await self._operator.end_twin(twin)
        except (StaleCatalog, NotFound):  # A person has changed or deleted it.
            await self._catalog.refresh()
        except HomingError as error:
            shown = show_id("sub", twin.id)
            log.warning("an old version could not be ended yet", id=shown, error=str(error))


def _until(twin: Subscription) -> int:
    return (twin.workfront.until if twin.workfront is not None else None) or 0
