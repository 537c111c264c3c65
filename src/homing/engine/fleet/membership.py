"""A process as a member of a fleet: its heartbeat, its share of the buckets, changes by others.

At every heartbeat it reads the members and the owners of all buckets, and computes its fair share
as all others do (``policy/bucket_shares``). It takes free buckets, and hands over those beyond its
share: nothing new starts there, attempts in flight are settled, then the bucket is given up. After
a heartbeat that fails, this process keeps its buckets, but stops sending, by its own clock, before
another process may take them.

A notification reports at once what other processes do. Because notifications may be lost, a process
also polls: once a second the versions, every two seconds the deliveries that were published a
moment ago, and, slowly, every endpoint in turn.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Iterable
from itertools import islice
from typing import Any

import structlog
from msgspec import Struct

from homing.engine.commit_losses import CommitLosses
from homing.engine.core import Core
from homing.engine.dispatch import Dispatcher
from homing.engine.fleet.catalog_barrier import CatalogBarrier
from homing.engine.fleet.notifications import PeerNotifier
from homing.engine.settle import Settler
from homing.errors import DatabaseBehind, HomingError, StoreUnavailable
from homing.model import SPEC, id_floor, id_time
from homing.policy.bucket_shares import BUCKETS, plan, ranges
from homing.policy.quota import Spent
from homing.ports import DatabaseTime, FleetState, FleetStore, Member, NotificationBus

log = structlog.get_logger("homing.fleet")

POLL_EVERY_MS = 1_000
RECENT_EVERY = 2  # polls
TIDY_EVERY = 5  # polls
VACUUM_EVERY = 300  # polls
VACUUM_HELD_MS = 10 * 60_000
RECENT_MS = 20_000  # the age of deliveries that are searched: a commit takes no longer
SETTLED_MS = 1_000  # the notifications of younger deliveries may still arrive
PAGE = 20  # endpoints of each bucket in one statement
WALK = 32  # buckets in one step of the slow round
AGAIN_MS = 500
QUIET_MS = 20
DEADLINE_MAX_MS = int(SPEC["deadline_ms"].max)  # the longest that a request may take
ROUND_MAX_NS = 1_000_000_000  # a slower reply says too little about the database's clock


_NO_STATE = FleetState(DatabaseTime(0, 0, 0), (), ())


class FleetParts(Struct, frozen=True):
    """The parts that a process of a fleet needs."""

    store: FleetStore
    bus: NotificationBus
    me: Member
    lease_ms: int
    on_clock: Callable[[DatabaseTime], None] = lambda _time: None  # the database's
    on_expelled: Callable[[], None] = lambda: None  # another process has this node number


class FleetPulse(Struct, frozen=True):
    """The state of a process in its fleet; counters count since the start of the process."""

    buckets: int = 0
    closing: int = 0  # of them, being handed over
    lost: int = 0
    late: int = 0  # outcomes dropped because their bucket had gone
    processes: int = 0
    heartbeat_age_ms: int = 0
    bus_live: bool = False


class Fleet:
    """Keeps ``BucketOwnership`` up to date. Everything here runs on the event loop."""

    def __init__(
        self,
        core: Core,
        dispatcher: Dispatcher,
        settler: Settler,
        losses: CommitLosses,
        parts: FleetParts,
    ) -> None:
        self._flow, self._catalog, self._clock = core.flow, core.catalog, core.clock
        self._ownership, self._dispatcher, self._parts = core.ownership, dispatcher, parts
        self._store, self._me, self._delivers = parts.store, parts.me.id, parts.me.delivers
        self._past = [0] * BUCKETS  # the highest epoch of each bucket that was lost
        self._closing: dict[int, int] = {}  # being handed over: bucket → deadline
        self._unread: set[int] = set()  # buckets whose endpoints are not read yet
        self._changing = asyncio.Lock()  # a heartbeat and a hand-over exclude each other
        self._reading = asyncio.Lock()
        self._wake = asyncio.Event()
        self._versions: dict[str, int] | None = None
        self._walk_on: dict[int, int] = {}  # the slow round: bucket → the last endpoint read
        self._polls = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._healing = False
        self._to_heal: dict[int, int] = {}  # buckets with the highest epochs that were seen
        self.state: FleetState | None = None
        self.lost = 0  # buckets that other processes took from this one
        self.topics: dict[str, Callable[[], None]] = {}  # called when a topic has changed
        self.on_gained: Callable[[], None] = lambda: None
        self.on_tidy: Callable[[], None] = lambda: None
        self._peers = peers = PeerNotifier(parts.bus, me=self._me)
        peers.on_work, peers.on_changed = self._on_work, self._on_changed
        peers.on_topic = self._on_topic
        self._barrier = barrier = CatalogBarrier(
            core, self._store, parts.bus, peers, me=self._me, lease_ms=parts.lease_ms
        )
        peers.on_acts = barrier.heard
        ownership, self._grace = core.ownership, core.grace
        ownership.notify_owner, ownership.notify_owner_of_change = peers.work, peers.changed
        ownership.notify_peers, self._grace.wait_for_peers = peers.topic, barrier.wait
        self._grace.tell = barrier.tell
        self._grace.act_again = self._grace.end_doubt = self._act_again
        self._settler = settler
        settler.on_lost = self.lose
        self._losses = losses
        settler.on_behind = self.behind
        self._left = False
        self._take_spent: Callable[[], list[Spent]] = list
        self._changes_unread = self._reads_changes = False
        self._version_seen = 0  # the highest version of the catalog that was lost
        core.catalog.on_lost = self._catalog_lost
        self.topics["commit_losses"] = lambda: self._spawn(losses.read_again())

    def share_quotas(
        self, take: Callable[[], list[Spent]], add: Callable[[Iterable[Spent]], None]
    ) -> None:
        """Tell the others once a second what of the quotas was used here, and count their uses."""
        self._take_spent, self._peers.on_spent = take, add

    async def start(self) -> None:
        """Join the fleet and take a share; raises StoreUnavailable."""
        self._parts.bus.listen(self._peers.receive, self._gap)
        self._versions = await self._store.versions()
        await self._beat_once()
        self._spawn(self._beat())
        self._spawn(self._poll())
        self._peers.topic("leases")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- the heartbeat -----------------------------------------------------------------------

    async def _beat(self) -> None:
        rest_ms = self._parts.lease_ms // 3
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest_ms / 1000):
                    await self._wake.wait()
            self._wake.clear()  # Before the heartbeat: a wake-up during it is not lost.
            try:
                await self._beat_once()
                if rest_ms < self._parts.lease_ms // 3:  # The last one failed.
                    self._settler.try_now()
                    self._dispatcher.read_now()
                rest_ms = self._parts.lease_ms // 3
            except HomingError as error:
                log.warning("a heartbeat failed; this process tries again", error=str(error))
                rest_ms = min(AGAIN_MS, self._parts.lease_ms // 3 - 1)

    async def _beat_once(self) -> None:
        async with self._changing:
            asked_at = self._clock.now()
            standing = await self._store.renew(
                self._me, delivers=self._delivers, lease_ms=self._parts.lease_ms
            )
            if standing is None:
                self._expelled()
                return
            if standing.time.round_ns <= ROUND_MAX_NS:
                self._parts.on_clock(standing.time)
            self._compare_leases(standing)
            if asked_at >= self._ownership.good_until or not standing.acts:
                await self._barrier.act()  # No process waited for this one to read.
                self.on_tidy()
            self._ownership.extend(asked_at + self._parts.lease_ms * 9 // 10)
            await self._share(standing)
        log.debug(
            "heartbeat",
            until=self._ownership.good_until,
            buckets=sum(map(bool, self._ownership.mine)),
        )
        self._dispatcher.pump()
        self._read_soon()

    async def _act_again(self, fence: int) -> None:
        """Begin to act again after a publish with this fence was refused, or had no reply."""
        if self._left:
            raise StoreUnavailable("This process has left the fleet.")
        if self._grace.fence == fence:
            await self._beat_once()
        if self._grace.fence == fence:
            await self._barrier.act()

    def _compare_leases(self, standing: FleetState) -> None:
        """Compare the buckets of this process with the leases in the store."""
        before, self.state = self.state, standing
        if before is not None and any(
            new.epoch < old.epoch for new, old in zip(standing.leases, before.leases, strict=True)
        ):
            self.behind(DatabaseBehind("leases", seen=0, found=None), seen=before)
            return
        lost, found = set(), {}
        for lease in standing.leases:
            epoch = self._ownership.epochs[lease.bucket]
            if epoch and (lease.owner != self._me or lease.epoch != epoch):
                lost.add(lease.bucket)
            # Taken by a call whose reply was lost.
            if lease.owner == self._me and lease.epoch > max(epoch, self._past[lease.bucket]):
                found[lease.bucket] = lease.epoch
        if lost:
            self.lose(lost)
        self._gain(found, expired=found.keys())

    async def _share(self, standing: FleetState) -> None:
        alive = {it.id for it in standing.members}
        # A member whose heartbeat is overdue keeps its buckets, but gets no new ones.
        alive_until = standing.now + self._parts.lease_ms // 2
        members = [it.id for it in standing.members if it.delivers and it.expires_at > alive_until]
        owners = [it.owner if it.owner in alive else None for it in standing.leases]
        wanted = plan(self._me, members, owners)
        self._reopen(self._closing.keys() - set(wanted.give))
        if give := set(wanted.give) - self._closing.keys():
            self._close(give)
            self._spawn(self._hand_over())
        if wanted.take:
            seen = {it.bucket: it.epoch for it in standing.leases}
            taken = await self._store.take(self._me, {it: seen[it] for it in wanted.take})
            left = {it.bucket for it in standing.leases if it.owner is not None}
            self._gain(taken, expired=taken.keys() & left)

    def _expelled(self) -> None:
        log.critical(
            "this process is no longer in the database, and stops: it sent no heartbeat for too "
            "long and another process took its node number, or a failover has lost its row"
        )
        self._ownership.extend(0)
        self.lose(range(BUCKETS))
        self._parts.on_expelled()

    # --- lost commits ------------------------------------------------------------------------

    def behind(self, error: DatabaseBehind, *, seen: FleetState | None = None) -> None:
        """The database has lost commits: forget what was read from it, and read it again.

        As after lost leases: nothing starts here any more, outcomes of attempts in flight are
        dropped, and the buckets are taken again with new epochs.
        """
        self._losses.add(error)
        leases = (seen or self.state or _NO_STATE).leases
        epochs = {it.bucket: it.epoch for it in leases}
        for bucket in range(BUCKETS):
            own = max(self._ownership.epochs[bucket], self._past[bucket])
            epochs[bucket] = max(epochs.get(bucket, 0), own)
        self.lose(range(BUCKETS))
        self._ownership.extend(0)
        self._add_to_heal(epochs)
        if not self._healing:
            self._healing = True
            self._spawn(self._heal())

    def _add_to_heal(self, epochs: dict[int, int]) -> None:
        for bucket, epoch in epochs.items():
            self._to_heal[bucket] = max(self._to_heal.get(bucket, 0), epoch)

    async def _find_losses(self) -> None:
        """Compare what this process has seen of its batches with the store."""
        try:
            await self._flow.check_marks()
        except DatabaseBehind as error:
            self.behind(error)

    def _catalog_lost(self, known: int, found: int) -> None:
        """The catalog was read again, and changes that were known here are lost."""
        self._version_seen = max(self._version_seen, known)
        self.behind(DatabaseBehind("catalog", seen=known, found=found))

    async def _heal(self) -> None:
        try:
            while self._to_heal:  # A further loss may be noticed meanwhile.
                epochs, self._to_heal = self._to_heal, {}
                try:
                    async with self._changing:
                        version = max(self._catalog.version, self._version_seen)
                        await self._store.heal(self._me, epochs=epochs, catalog=version)
                    await self._barrier.act()
                    await self._losses.write()
                except HomingError as error:
                    self._add_to_heal(epochs)
                    log.warning(
                        "lost commits: the store cannot be read again yet", error=str(error)
                    )
                    await asyncio.sleep(AGAIN_MS / 1000)
        finally:
            self._healing = False
        self._wake.set()
        self._peers.topic("leases")
        self._peers.topic("catalog")

    # --- owned buckets -----------------------------------------------------------------------

    def _gain(self, epochs: dict[int, int], *, expired: Collection[int] = ()) -> None:
        """Add buckets; the former owners of ``expired`` ones did not hand them over."""
        if not epochs:
            return
        ordered_from = self._clock.now() + DEADLINE_MAX_MS
        for bucket, epoch in epochs.items():
            self._ownership.gain(
                {bucket: epoch}, ordered_from=ordered_from if bucket in expired else 0
            )
        self._unread.update(epochs)
        log.info("buckets taken", buckets=ranges(epochs), epochs=epochs)

    def lose(self, buckets: Iterable[int]) -> None:
        """Forget buckets that other processes own by now."""
        lost = {it for it in buckets if self._ownership.epochs[it]}
        self._forget(lost)
        self.lost += len(lost)
        if lost:
            log.warning("buckets lost", buckets=ranges(lost))

    def _forget(self, buckets: set[int]) -> None:
        for bucket in buckets:
            self._past[bucket] = max(self._past[bucket], self._ownership.epochs[bucket])
            self._closing.pop(bucket, None)
        self._ownership.lose(buckets)
        self._unread -= buckets
        self._dispatcher.forget_buckets(buckets)

    def _close(self, buckets: set[int]) -> None:
        self._closing |= dict.fromkeys(buckets, self._clock.now() + self._parts.lease_ms)
        self._ownership.close(buckets)
        self._dispatcher.close(buckets)

    def _reopen(self, buckets: set[int]) -> None:
        """Keep buckets that were being handed over: the process that wanted them is gone."""
        for bucket in buckets:
            del self._closing[bucket]
        self._ownership.reopen(buckets)
        self._dispatcher.reopen(buckets)
        self._unread |= buckets  # Notifications of these buckets were ignored meanwhile.
        if buckets:
            log.info("buckets kept", buckets=ranges(buckets))

    async def _hand_over(self) -> None:
        """Give each bucket up when nothing is in flight there, or at its deadline."""
        while closing := dict(self._closing):
            now, busy = self._clock.now(), self._dispatcher.busy(closing)
            if quiet := {it for it, until in closing.items() if it not in busy or now >= until}:
                try:
                    await self._give(quiet)
                except HomingError as error:
                    log.warning("buckets could not be handed over; trying again", error=str(error))
                    await asyncio.sleep(AGAIN_MS / 1000)
            else:
                await asyncio.sleep(QUIET_MS / 1000)

    async def _give(self, buckets: set[int]) -> None:
        async with self._changing:
            buckets &= self._closing.keys()
            if not buckets:
                return
            await self._store.give(self._me, sorted(buckets))
            self._forget(buckets)
        log.info("buckets handed over", buckets=ranges(buckets))
        self._peers.topic("leases")

    # --- reading taken buckets ---------------------------------------------------------------

    def _read_soon(self) -> None:
        if self._unread and not self._reading.locked():
            self._spawn(self._read())

    async def _read(self) -> None:
        async with self._reading:
            while self._unread:
                buckets, self._unread = self._unread, set()
                try:
                    after = dict.fromkeys(buckets, 0)
                    while after:
                        after = await self._read_page(after)
                except HomingError as error:
                    self._unread |= {it for it in buckets if self._ownership.mine[it]}
                    log.warning("taken buckets could not be read; trying again", error=str(error))
                    return  # The next poll tries again.
            self.on_gained()

    async def _read_page(self, after: dict[int, int]) -> dict[int, int]:
        """Read the next endpoints of these buckets; return where to continue."""
        after = {bucket: id_ for bucket, id_ in after.items() if self._ownership.mine[bucket]}
        if not after:
            return {}
        epochs = {bucket: self._ownership.epochs[bucket] for bucket in after}
        self._dispatcher.read_buckets(after)
        try:
            starts, on = await self._flow.bucket_page(after, limit=PAGE)
        finally:
            self._dispatcher.read_buckets(())
        for start in starts:
            bucket = start.endpoint.bucket  # One that was lost and taken again is read again.
            if self._ownership.mine[bucket] and self._ownership.epochs[bucket] == epochs[bucket]:
                self._dispatcher.add_endpoint(start)
        return on

    # --- other processes ---------------------------------------------------------------------

    def _on_work(self, bucket: int, endpoint_id: int, due_at: int = 0, position: int = 0) -> None:
        if self._ownership.mine[bucket]:
            self._dispatcher.published_elsewhere(endpoint_id, due_at, position)

    def _on_changed(self, bucket: int, endpoint_id: int) -> None:
        if self._ownership.mine[bucket]:
            self._dispatcher.changed_elsewhere(endpoint_id)

    def _on_topic(self, topic: str) -> None:
        if topic == "leases":
            self._wake.set()
        elif topic == "catalog":
            self._changes_unread = True
            if not self._reads_changes:
                self._reads_changes = True
                self._spawn(self._read_changes())
        elif topic.startswith("bucket."):
            for queue in self._dispatcher.in_buckets([int(topic[7:])]):
                self._on_changed(queue.endpoint.bucket, queue.endpoint.id)
        elif topic in self.topics:
            self.topics[topic]()

    async def _read_changes(self) -> None:
        """Read the catalog; changes that are notified meanwhile are read together."""
        try:
            while self._changes_unread:
                self._changes_unread = False
                try:
                    await self._catalog.refresh()
                except HomingError as error:
                    log.debug("the catalog cannot be read", error=str(error))
                self._barrier.tell()
                self.on_tidy()
        finally:
            self._reads_changes = False

    def _gap(self) -> None:
        """Poll everything soon: notifications may have been lost for a while."""
        self._polls = 0
        self._wake.set()

    # --- polling ---------------------------------------------------------------------------------

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_EVERY_MS / 1000)
            if spent := self._take_spent():
                self._peers.spent(spent)
            try:
                await self._poll_once()
            except HomingError as error:
                log.debug("the versions could not be polled; trying again", error=str(error))

    async def _poll_once(self) -> None:
        versions = await self._store.versions()
        await self._find_losses()
        before, self._versions = self._versions or {}, versions
        for topic, version in versions.items():
            if topic == "catalog":
                changed = version != self._catalog.version
            else:
                changed = version != before.get(topic, 0)
            if changed:
                self._on_topic(topic)
        self._barrier.tell()
        await self._barrier.store()
        self._read_soon()
        if self._polls % RECENT_EVERY == 0:
            await self._find_recent()
            await self._walk()
        if self._polls % TIDY_EVERY == 0:
            self.on_tidy()
        if self._polls % VACUUM_EVERY == 0 and self._ownership.is_maintenance_leader:
            await self._guard_vacuum()
        self._polls += 1

    async def _guard_vacuum(self) -> None:
        """Log a transaction that was left open: dead rows of ``pending`` pile up behind it."""
        open_ms, whose = await self._store.oldest_snapshot()
        if open_ms > VACUUM_HELD_MS:
            log.warning("a long transaction holds back vacuum", minutes=open_ms // 60_000, by=whose)

    async def _find_recent(self) -> None:
        """Find deliveries that were published a moment ago and whose notification was lost."""
        mine, now = self._ownership.numbers(), self._clock.now()
        if not mine:
            return
        from_id, upto_id = id_floor(now - RECENT_MS), id_floor(now - SETTLED_MS)
        recent = await self._store.recent(mine, from_id=from_id, upto_id=upto_id)
        for bucket, endpoint_id, position in recent:
            queue = self._dispatcher.queues.get(endpoint_id)
            if queue is None or (queue.enabled and not queue.more_fresh):
                self._on_work(bucket, endpoint_id, id_time(from_id), position)

    async def _walk(self) -> None:
        """Read some endpoints in a slow round over all: none stays unknown for ever."""
        if not self._walk_on:
            self._walk_on = dict.fromkeys(self._ownership.numbers(), 0)
        step = dict(islice(self._walk_on.items(), WALK))
        for bucket in step:
            del self._walk_on[bucket]
        self._walk_on.update(await self._read_page(step))

    def pulse(self) -> FleetPulse:
        beat_at = self._ownership.good_until - self._parts.lease_ms * 9 // 10
        return FleetPulse(
            buckets=sum(map(bool, self._ownership.epochs)),
            closing=len(self._closing),
            lost=self.lost,
            processes=len(self.state.members) if self.state else 0,
            heartbeat_age_ms=max(self._clock.now() - beat_at, 0),
            bus_live=self._parts.bus.live,
        )

    # --- leaving -------------------------------------------------------------------------------

    def begin_to_leave(self) -> None:
        """Take no more buckets, and hand over those without attempts in flight."""
        self._delivers = False
        self._wake.set()

    async def leave(self) -> None:
        """Leave the fleet. The store is notified first, because tasks may end slowly."""
        self._left = True
        tasks = [task for task in self._tasks if task.cancel()]
        self._barrier.stop()
        self._grace.stop()
        try:  # After this, heartbeats and takes that are still under way are refused.
            await self._store.leave(self._me)
        except HomingError as error:
            log.warning(
                "leaving the fleet could not be stored; the leases will end by themselves",
                error=str(error),
            )
        self._forget({it for it in range(BUCKETS) if self._ownership.epochs[it]})
        self._peers.topic("leases")
        await self._peers.sent()
        await asyncio.gather(*tasks, return_exceptions=True)
