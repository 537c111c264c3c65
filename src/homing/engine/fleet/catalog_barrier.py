"""Changes of the catalog among processes: each says on which version it acts, and waits for all.

A process that reads the catalog first enters that changes wait for it from now on (``act``). It
tells the others by a message when it acts on a newer version, and stores it at its next poll, for
those that the message did not reach. A process whose heartbeat has stopped is waited for until its
lease has ended, by the database's clock; then it is fenced (``fence_ended``), and so is one that
lives and does not act on a version for as long as a lease.
"""

from __future__ import annotations

import asyncio
import contextlib

import structlog
from msgspec import Struct

from homing.engine.core import Core
from homing.engine.fleet.notifications import PeerNotifier
from homing.errors import HomingError, StoreUnavailable
from homing.ports import Acting, FleetStore, NotificationBus

log = structlog.get_logger("homing.catalog_barrier")

LOOK_EVERY_MS = 250  # for a lost message, and for leases that have ended
POLL_EVERY_MS = 20  # without messages


class _Waiting(Struct, eq=False):
    version: int
    since: int
    done: asyncio.Future[None]


class CatalogBarrier:
    """The version on which this process acts, and those of the others."""

    def __init__(
        self,
        core: Core,
        store: FleetStore,
        bus: NotificationBus,
        peers: PeerNotifier,
        *,
        me: int,
        lease_ms: int,
    ) -> None:
        self._store, self._bus, self._peers = store, bus, peers
        self._catalog, self._clock, self._grace = core.catalog, core.clock, core.grace
        self._me, self._lease_ms = me, lease_ms
        self._beginning = asyncio.Lock()
        self._acts = False  # changes wait for this process
        self._told = self._stored = 0  # the versions on which the others know that it acts
        self._heard: dict[int, int] = {}  # by process: the version on which it acts
        self._heard_of = asyncio.Event()
        self._reached = 0  # the version on which all processes act
        self._waiting: list[_Waiting] = []
        self._looking: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None

    # --- this process ------------------------------------------------------------------------

    async def act(self) -> None:
        """Let changes wait for this process, read the catalog, and publish from then on.

        Raises StoreUnavailable, also if its heartbeat has stopped.
        """
        async with self._beginning:
            fence = await self._store.act(self._me)
            if fence is None:
                raise StoreUnavailable("This process has sent no heartbeat for too long.")
            self._acts, self._stored = True, 0
            await self._catalog.refresh()
            # Not before: a group that was matched earlier has an older number, and is refused.
            self._grace.fence = fence
        self.tell()

    def tell(self) -> None:
        """Tell the others that this process acts on what it has read, as soon as it does."""
        if self._acts and self._telling is None and self._told < self._catalog.version:
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._told < self._catalog.version:
                version = self._catalog.version
                await self._grace.here(version)
                self._told = version
                self._peers.acts(version)
                if not self._bus.live:
                    with contextlib.suppress(HomingError):  # It is stored at the next poll.
                        await self.store()
        finally:
            self._telling = None

    async def store(self) -> None:
        """Store the version on which this process acts, for those that missed the message."""
        version = self._told
        if self._acts and self._stored < version:
            await self._store.knows(self._me, version)
            self._stored = max(self._stored, version)

    # --- the others --------------------------------------------------------------------------

    def heard(self, process: int, version: int) -> None:
        """Another process acts on this version."""
        if version > self._heard.get(process, 0):
            self._heard[process] = version
            self._heard_of.set()

    async def wait(self, version: int) -> None:
        """Wait until all other processes act on this version, or are fenced."""
        if version <= self._reached:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(version, self._clock.now(), done))
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look())
        await done

    async def _look(self) -> None:
        try:
            while self._waiting:
                self._heard_of.clear()  # Before the read: a message during it is not lost.
                # A process that begins to act after the read has the versions that they wait for.
                asked, self._waiting = self._waiting, []
                left = asked
                try:
                    left = await self._after_look(asked)
                except HomingError as error:
                    log.debug("the versions of other processes cannot be read", error=str(error))
                finally:
                    self._waiting += left
                if left:
                    await self._pause()
        finally:
            self._looking = None

    async def _after_look(self, asked: list[_Waiting]) -> list[_Waiting]:
        """Those that must wait longer."""
        others = await self._store.acting(but=self._me)
        lowest = min(map(self._version_of, others), default=self._catalog.version)
        self._reached = max(self._reached, lowest)
        left: list[_Waiting] = []
        for it in asked:
            if others and it.version > lowest:
                left.append(it)
            elif not it.done.done():
                it.done.set_result(None)
        if left:
            await self._fence(left[0], [it for it in others if self._is_behind(it, left)])
        return left

    async def _fence(self, oldest: _Waiting, behind: list[Acting]) -> None:
        """Fence processes that have ended, and one that has not acted for as long as a lease."""
        waited = self._clock.now() - oldest.since
        late = [it for it in behind if self._version_of(it) < oldest.version]
        late = late if waited >= self._lease_ms else []
        if late or any(it.is_over for it in behind):
            fenced = await self._store.fence_ended(late=late[0].id if late else 0)
            for it in behind:
                if it.id in fenced:
                    log.warning(
                        "a process does not act on a change: what it publishes is refused until "
                        "it has read the change",
                        process=it.name,
                        heartbeat="stopped" if it.is_over else "goes on",
                    )
            if fenced:
                self._heard_of.set()

    def _version_of(self, it: Acting) -> int:
        return max(it.version, self._heard.get(it.id, 0))

    def _is_behind(self, it: Acting, left: list[_Waiting]) -> bool:
        return self._version_of(it) < max(one.version for one in left)

    async def _pause(self) -> None:
        wait_ms = LOOK_EVERY_MS if self._bus.live else POLL_EVERY_MS
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                await self._heard_of.wait()

    def stop(self) -> None:
        for task in (self._looking, self._telling):
            if task is not None:
                task.cancel()
