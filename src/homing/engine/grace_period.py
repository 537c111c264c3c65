"""The grace period of a change: publishes hold nothing of the catalog; a change waits for them.

A publish compares no version: a change by one tenant never makes another's publish wait, or be
matched again. Instead, a process *acts on* a version of the catalog once it has read it and every
group of publishes that it matched before has ended. A change is answered, and what follows from it
begins, when every living process acts on it (``everywhere``). Then no publish that was matched
before the change is under way any more, anywhere: a bound "up to now" can be read.

A process that is not waited for any more is fenced: its publishes carry a number that is too old,
and are refused in their commit. It reads the catalog before it gets the next number.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import structlog

from homing.engine.catalog import Catalog
from homing.engine.fleet.ownership import BucketOwnership
from homing.errors import HomingError, StoreUnavailable, Unavailable

log = structlog.get_logger("homing.grace_period")

AGAIN_MS = 500


async def _no_peers(_version: int) -> None:
    """An embedded process has no peers to wait for."""


async def _never_fenced(_fence: int) -> None:
    raise StoreUnavailable("A process without a fleet was fenced.")


async def _no_doubt(_fence: int) -> None:
    """The writer of a file has ended when its call fails."""


class GracePeriod:
    """The groups of publishes that this process is writing, and who waits for their end."""

    def __init__(self, catalog: Catalog, ownership: BucketOwnership) -> None:
        self._catalog, self._ownership = catalog, ownership
        self._groups: Counter[int] = Counter()  # by the version that they were matched with
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.fence = 0  # with which publishes are taken
        # Set by the fleet.
        self.wait_for_peers: Callable[[int], Awaitable[None]] = _no_peers
        self.tell: Callable[[], None] = lambda: None
        self.act_again: Callable[[int], Awaitable[None]] = _never_fenced
        self.end_doubt: Callable[[int], Awaitable[None]] = _no_doubt

    @contextmanager
    def group(self, version: int, fence: int) -> Iterator[None]:
        """A group of publishes that was matched with this version is being written.

        A call without a reply may still be committed: the group has ended when it cannot any more.
        """
        self._groups[version] += 1
        try:
            yield
        except Unavailable:
            task = asyncio.get_running_loop().create_task(self._end_in_doubt(version, fence))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            raise
        except BaseException:
            self._end(version)
            raise
        self._end(version)

    async def _end_in_doubt(self, version: int, fence: int) -> None:
        try:
            while True:
                try:
                    await self.end_doubt(fence)
                except HomingError as error:
                    log.debug("a publish without a reply may be written", error=str(error))
                    await asyncio.sleep(AGAIN_MS / 1000)
                else:
                    return
        finally:
            self._end(version)

    def _end(self, version: int) -> None:
        self._groups[version] -= 1
        if not self._groups[version]:
            del self._groups[version]
            waiting, self._waiting = self._waiting, []
            for asked, ended in waiting:
                if self._has_older(asked):
                    self._waiting.append((asked, ended))
                elif not ended.done():
                    ended.set_result(None)

    def _has_older(self, version: int) -> bool:
        return any(it < version for it in self._groups)

    async def here(self, version: int) -> None:
        """Return when this process acts on this version, which it has read."""
        if self._has_older(version):
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((version, ended))
            await ended

    async def everywhere(self, version: int) -> None:
        """Return when every living process acts on this version.

        All publishes that were matched before it have ended, on every machine. After a process was
        killed this takes the rest of its lease. Raises StoreUnavailable.
        """
        if self._catalog.version < version:
            await self._catalog.refresh()
        await self.here(version)
        await self.wait_for_peers(version)

    async def changed(self, version: int) -> None:
        """Notify the other processes of a change, and return when all of them act on it."""
        self._ownership.notify_peers("catalog")
        if self._catalog.version < version:
            await self._catalog.refresh()
        self.tell()  # What follows from the change may begin in another process.
        await self.everywhere(version)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
