"""This process as one of many: its heartbeat, its share of the buckets, and what others do.

At every heartbeat it reads who is there and who holds what, and computes its fair share as all
others do (``policy/shares``). What is free it takes; what is over its share it hands over: nothing
new starts there, what is in flight is settled, then the bucket is let go. A heartbeat that fails
moves nothing: sending stops by our own clock before anybody may take our buckets.

What other processes do is heard at once through the wire. Whoever does not hear (a word was lost,
there is no line) looks: once a second at versions, every two seconds at what was published a
moment ago; and endpoint by endpoint, slowly, at everything.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from itertools import islice
from typing import Any

import structlog
from msgspec import Struct

from homing.engine.aware import Aware
from homing.engine.core import Core
from homing.engine.dispatch import Dispatcher
from homing.engine.fleet_pulse import FleetPulse
from homing.engine.news import News
from homing.engine.settle import Settler
from homing.errors import HomingError
from homing.model import id_floor
from homing.policy.shares import BUCKETS, plan, ranges
from homing.ports import FleetStore, Member, Standing, Wire

log = structlog.get_logger("homing.fleet")

LOOK_EVERY_MS = 1_000
RECENT_EVERY = 2  # looks
TIDY_EVERY = 5  # looks
VACUUM_EVERY = 300  # looks
VACUUM_HELD_MS = 10 * 60_000
RECENT_MS = 20_000  # what was published so long ago is looked for: a commit takes no longer
SETTLED_MS = 1_000  # and what was published since is on its way
PAGE = 20  # endpoints of each bucket in one statement
WALK = 32  # buckets in one step of the slow round
AGAIN_MS = 500
QUIET_MS = 20
ROUND_MOST_MS = 1_000  # an answer that took longer tells nothing of the database's clock


class FleetParts(Struct, frozen=True):
    """What a process of a fleet is given."""

    store: FleetStore
    wire: Wire
    me: Member
    lease_ms: int
    joined_s: float = 0.0  # monotonic: when ``me.started_at`` was the database's time
    on_clock: Callable[[int], None] = lambda _ahead_ms: None  # the database's clock, ahead of ours
    on_expelled: Callable[[], None] = lambda: None  # our node has gone to another process


class Fleet:
    """Keeps ``Held`` up to date. Everything here runs on the event loop."""

    def __init__(
        self, core: Core, dispatcher: Dispatcher, settler: Settler, parts: FleetParts
    ) -> None:
        self._flow, self._catalog, self._clock = core.flow, core.catalog, core.clock
        self._held, self._dispatcher, self._parts = core.held, dispatcher, parts
        self._store, self._me, self._delivers = parts.store, parts.me.id, parts.me.delivers
        self._past = [0] * BUCKETS  # the highest epoch that we no longer have
        self._closing: dict[int, int] = {}  # being handed over, and until when it may take
        self._unread: set[int] = set()  # taken, their endpoints not read yet
        self._changing = asyncio.Lock()  # a heartbeat's answer and a letting go do not mix
        self._reading = asyncio.Lock()
        self._wake = asyncio.Event()
        self._versions: dict[str, int] | None = None
        self._walk_on: dict[int, int] = {}  # the slow round: where it goes on in each bucket
        self._looks = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.standing: Standing | None = None
        self.lost = 0  # buckets that others took from us
        self.topics: dict[str, Callable[[], None]] = {}  # who wants to hear of what
        self.on_gained: Callable[[], None] = lambda: None
        self.on_tidy: Callable[[], None] = lambda: None
        self._news = News(parts.wire, me=self._me)
        self._news.on_work, self._news.on_changed = self._hear_work, self._hear_changed
        self._news.on_topic = self._hear_topic
        self._held.work_abroad, self._held.change_abroad = self._news.work, self._news.changed
        self._held.tell = self._news.topic
        self._aware = Aware(core, self._store, me=self._me, lease_ms=parts.lease_ms)
        settler.on_lost = self.lose

    async def start(self) -> None:
        """Take a share; raises where the store does not answer."""
        self._parts.wire.listen(self._news.heard, self._gap)
        self._versions = await self._store.versions()
        await self._beat_once()
        self._spawn(self._beat())
        self._spawn(self._look())
        self._news.topic("leases")

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
            self._wake.clear()  # Before the look: a wake-up during it is not lost.
            try:
                await self._beat_once()
                rest_ms = self._parts.lease_ms // 3
            except HomingError as error:
                log.warning("no heartbeat", error=str(error))
                rest_ms = min(AGAIN_MS, self._parts.lease_ms // 3)

    async def _beat_once(self) -> None:
        async with self._changing:
            asked_at = self._clock.now()
            standing = await self._store.renew(
                self._me, delivers=self._delivers, lease_ms=self._parts.lease_ms
            )
            if standing is None:
                self._expelled()
                return
            if (heard_at := self._clock.now()) - asked_at <= ROUND_MOST_MS:
                self._parts.on_clock(standing.now - (asked_at + heard_at) // 2)
            self._stand(standing)
            if asked_at >= self._held.good_until:  # Nobody has waited for us to read.
                await self._refresh()
            self._held.good_until = asked_at + self._parts.lease_ms * 9 // 10
            await self._share(standing)
        log.debug("heartbeat", until=self._held.good_until, buckets=sum(map(bool, self._held.mine)))
        self._dispatcher.pump()
        self._read_soon()

    def _stand(self, standing: Standing) -> None:
        """What the store says of our buckets."""
        self.standing = standing
        lost, found = set(), {}
        for lease in standing.leases:
            epoch = self._held.epochs[lease.bucket]
            if epoch and (lease.owner != self._me or lease.epoch != epoch):
                lost.add(lease.bucket)
            # Taken, and the answer did not reach us.
            if lease.owner == self._me and lease.epoch > max(epoch, self._past[lease.bucket]):
                found[lease.bucket] = lease.epoch
        if lost:
            self.lose(lost)
        self._gain(found)

    async def _share(self, standing: Standing) -> None:
        alive = {it.id for it in standing.members}
        # One whose heartbeat is overdue keeps what it has, and nobody waits for it to take more.
        heard_of = standing.now + self._parts.lease_ms // 2
        members = [it.id for it in standing.members if it.delivers and it.expires_at > heard_of]
        owners = [it.owner if it.owner in alive else None for it in standing.leases]
        wanted = plan(self._me, members, owners)
        self._reopen(self._closing.keys() - set(wanted.give))
        if give := set(wanted.give) - self._closing.keys():
            self._close(give)
            self._spawn(self._hand_over())
        if wanted.take:
            seen = {it.bucket: it.epoch for it in standing.leases}
            self._gain(await self._store.take(self._me, {it: seen[it] for it in wanted.take}))

    def _expelled(self) -> None:
        log.critical("this process was away for too long: its node has gone to another")
        self._held.good_until = 0
        self.lose(range(BUCKETS))
        self._parts.on_expelled()

    # --- what is ours ------------------------------------------------------------------------

    def _gain(self, epochs: dict[int, int]) -> None:
        if not epochs:
            return
        for bucket, epoch in epochs.items():
            self._held.mine[bucket] = self._held.epochs[bucket] = epoch
        self._unread.update(epochs)
        log.info("buckets taken", buckets=ranges(epochs), epochs=epochs)

    def lose(self, buckets: Iterable[int]) -> None:
        """They are another's by now: forget them at once."""
        lost = {it for it in buckets if self._held.epochs[it]}
        self._forget(lost)
        self.lost += len(lost)
        if lost:
            log.warning("buckets lost", buckets=ranges(lost))

    def _forget(self, buckets: set[int]) -> None:
        held = self._held
        for bucket in buckets:
            self._past[bucket] = max(self._past[bucket], held.epochs[bucket])
            held.mine[bucket] = held.epochs[bucket] = 0
            self._closing.pop(bucket, None)
        self._unread -= buckets
        self._dispatcher.drop(buckets)

    def _close(self, buckets: set[int]) -> None:
        self._closing |= dict.fromkeys(buckets, self._clock.now() + self._parts.lease_ms)
        for bucket in buckets:
            self._held.mine[bucket] = 0
        self._dispatcher.close(buckets)

    def _reopen(self, buckets: set[int]) -> None:
        """Whoever was to have them is gone."""
        for bucket in buckets:
            del self._closing[bucket]
            self._held.mine[bucket] = self._held.epochs[bucket]
        self._dispatcher.reopen(buckets)
        self._unread |= buckets  # What was published meanwhile went unheard.
        if buckets:
            log.info("buckets kept", buckets=ranges(buckets))

    async def _hand_over(self) -> None:
        """Let each go as soon as nothing is in flight there, and the last ones in any case."""
        while closing := dict(self._closing):
            now, busy = self._clock.now(), self._dispatcher.busy(closing)
            if quiet := {it for it, until in closing.items() if it not in busy or now >= until}:
                try:
                    await self._give(quiet)
                except HomingError as error:
                    log.warning("buckets wait to be handed over", error=str(error))
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
        self._news.topic("leases")

    # --- reading what was taken ----------------------------------------------------------------

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
                    self._unread |= {it for it in buckets if self._held.mine[it]}
                    log.warning("taken buckets cannot be read", error=str(error))
                    return  # The next look tries again.
            self.on_gained()

    async def _read_page(self, after: dict[int, int]) -> dict[int, int]:
        """The next endpoints of these buckets; where to go on."""
        after = {bucket: id_ for bucket, id_ in after.items() if self._held.mine[bucket]}
        if not after:
            return {}
        starts, on = await self._flow.bucket_page(after, limit=PAGE)
        for start in starts:
            if self._held.mine[start.endpoint.bucket]:
                self._dispatcher.add_endpoint(start)
        return on

    # --- what others do --------------------------------------------------------------------------

    def _hear_work(self, bucket: int, endpoint_id: int) -> None:
        if self._held.mine[bucket]:
            self._dispatcher.published_elsewhere(endpoint_id)

    def _hear_changed(self, bucket: int, endpoint_id: int) -> None:
        if self._held.mine[bucket]:
            self._dispatcher.changed_elsewhere(endpoint_id)

    def _hear_topic(self, topic: str) -> None:
        if topic == "leases":
            self._wake.set()
        elif topic == "catalog":
            self._spawn(self._refresh())
        elif topic.startswith("bucket."):
            for queue in self._dispatcher.in_buckets([int(topic[7:])]):
                self._hear_changed(queue.endpoint.bucket, queue.endpoint.id)
        elif topic in self.topics:
            self.topics[topic]()

    async def _refresh(self) -> None:
        try:
            await self._aware.catch_up()
        except HomingError as error:
            log.debug("the catalog cannot be read", error=str(error))
        self.on_tidy()

    def _gap(self) -> None:
        """Nothing was heard for a while."""
        self._looks = 0
        self._wake.set()

    # --- looking ---------------------------------------------------------------------------------

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_MS / 1000)
            try:
                await self._look_once()
            except HomingError as error:
                log.debug("a look failed", error=str(error))

    async def _look_once(self) -> None:
        versions = await self._store.versions()
        before, self._versions = self._versions or {}, versions
        for topic, version in versions.items():
            if topic == "catalog":
                changed = version > self._catalog.version
            else:
                changed = version != before.get(topic, 0)
            if changed:
                self._hear_topic(topic)
        await self._aware.say()
        self._read_soon()
        if self._looks % RECENT_EVERY == 0:
            await self._look_for_recent()
            await self._walk()
        if self._looks % TIDY_EVERY == 0:
            self.on_tidy()
        if self._looks % VACUUM_EVERY == 0 and self._held.keeps_house:
            await self._guard_vacuum()
        self._looks += 1

    async def _guard_vacuum(self) -> None:
        """Dead rows pile up in ``pending`` behind a transaction that somebody left open."""
        open_ms, whose = await self._store.oldest_snapshot()
        if open_ms > VACUUM_HELD_MS:
            log.warning("a long transaction holds back vacuum", minutes=open_ms // 60_000, by=whose)

    async def _look_for_recent(self) -> None:
        """What was published a moment ago and is not known here: its word was lost."""
        mine, now = self._held.numbers(), self._clock.now()
        if not mine:
            return
        from_id, upto_id = id_floor(now - RECENT_MS), id_floor(now - SETTLED_MS)
        for bucket, endpoint_id in await self._store.recent(mine, from_id=from_id, upto_id=upto_id):
            queue = self._dispatcher.queues.get(endpoint_id)
            if queue is None or (queue.enabled and not queue.more_fresh):
                self._hear_work(bucket, endpoint_id)

    async def _walk(self) -> None:
        """One step of a slow round over all endpoints here: nothing lies unknown for ever."""
        if not self._walk_on:
            self._walk_on = dict.fromkeys(self._held.numbers(), 0)
        step = dict(islice(self._walk_on.items(), WALK))
        for bucket in step:
            del self._walk_on[bucket]
        self._walk_on.update(await self._read_page(step))

    def pulse(self) -> FleetPulse:
        beat_at = self._held.good_until - self._parts.lease_ms * 9 // 10
        return FleetPulse(
            buckets=sum(map(bool, self._held.epochs)),
            closing=len(self._closing),
            lost=self.lost,
            processes=len(self.standing.members) if self.standing else 0,
            heartbeat_age_ms=max(self._clock.now() - beat_at, 0),
            wire_live=self._parts.wire.live,
        )

    # --- leaving -------------------------------------------------------------------------------

    def begin_to_leave(self) -> None:
        """Take nothing more, and hand over what is quiet."""
        self._delivers = False
        self._wake.set()

    async def leave(self) -> None:
        """Everything is settled, or given up. The store hears it first: tasks may end slowly."""
        tasks = [task for task in self._tasks if task.cancel()]
        try:  # Its heartbeats and takes that come later are refused.
            await self._store.leave(self._me)
        except HomingError as error:
            log.warning("left without saying so; the lease will end by itself", error=str(error))
        self._forget({it for it in range(BUCKETS) if self._held.epochs[it]})
        self._news.topic("leases")
        await self._news.told()
        await asyncio.gather(*tasks, return_exceptions=True)
