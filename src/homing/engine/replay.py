"""Replays: new deliveries that a person makes from finished ones, singly or by a stored job.

A job reads history once in order of id. Its progress and the deliveries that it makes are written
in the same commit, so an interrupted job continues where it was and replays nothing twice.

A backfill is such a job, too. It reads events instead of history, and makes a delivery for each
that matches its subscription and of which the subscription has none (``policy.backfill``).

Each step asks how many pending deliveries its tenant may still have, and a job without room waits.
Steps of one tenant that has a quota follow each other, so that two jobs never use the same room.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from weakref import WeakValueDictionary

import msgspec
import structlog

from homing.engine.core import Core
from homing.engine.dispatch import Dispatcher
from homing.engine.load import AGAIN_MS
from homing.errors import HomingError, NotFound, StillPending, SubscriptionGone, Unavailable
from homing.model import NOT_BOUND, Delivery, Event, Finished, Order, Status, Subscription
from homing.policy.backfill import PastStart, gets_events, is_about, is_of_type, may_be_notice
from homing.policy.bulk import Counted
from homing.policy.filters_reading import SLICE_STEPS
from homing.policy.quota import room_for_jobs
from homing.policy.retry import window_end
from homing.policy.wants import Wants, picking, wants_of
from homing.ports import PastEvent, ReplayFilter, ReplayJob
from homing.ports.admin import FIRST_PLACE, LAST_PLACE, EventPlace

log = structlog.get_logger("homing.replay")

COUNT_MAX = 100_000  # history rows, or events, scanned for a dry run
KEYS_MAX = 10_000  # of which a backfill remembers the newest event
LOOK_PAGE = 100  # events of a key that are read at once to find its newest
LOOK_MAX = 10_000  # the same in one step of a backfill
ROOM_AGAIN_S = 1  # until a job that waits for the quota of its tenant looks again
CHUNK_BYTES = 4 * 1024 * 1024  # of event data that is read at once


class _Key:
    """What a backfill with the order ``latest`` knows of the events of one key, by their places.

    An event counts if its subscription wants it or has a delivery of it: an older one is not sent.
    """

    def __init__(self) -> None:
        self.newest = FIRST_PLACE  # the newest event that counts
        self.seen = FIRST_PLACE  # no event after ``newest`` and up to here counts
        self._top = FIRST_PLACE  # where a look began that is not finished
        self._below = LAST_PLACE  # where it goes on

    def is_newer(self, it: PastEvent) -> bool:
        """Whether an event that is newer than this one is known to count."""
        return self.newest > it.place

    def unseen(self, it: PastEvent) -> tuple[EventPlace, EventPlace]:
        """Between which places newer events than this one are still to be looked at."""
        return max(it.place, self.seen), self._below

    def looked_at(self, page: Sequence[PastEvent], counting: Sequence[PastEvent]) -> None:
        """A page of newer events, and those of them that count."""
        self._top = max(self._top, page[0].place)
        self._below = page[-1].place
        if counting:
            self.finish(counting[0])

    def finish(self, newest: PastEvent) -> None:
        """End the look: no event that was looked at is newer and counts."""
        self.newest = newest.place
        self.seen = max(self.seen, self._top, self.newest)
        self._top, self._below = FIRST_PLACE, LAST_PLACE


class _Known:
    """What a backfill knows of keys, as long as its subscription stays as it is."""

    def __init__(self) -> None:
        self._subscription: Subscription | None = None
        self._keys: dict[str, _Key] = {}

    def keys(self, subscription: Subscription) -> dict[str, _Key]:
        if subscription != self._subscription or len(self._keys) > KEYS_MAX:
            self._subscription, self._keys = subscription, {}
        return self._keys


class _Wanted(msgspec.Struct, frozen=True):
    """The events of a page that a backfill makes deliveries for."""

    events: list[PastEvent]
    decided: int  # events of the page: too much had to be looked at for the next one
    left: int  # events of keys that may still be looked at
    seen: dict[str, EventPlace]  # by key, up to which place an event is known to be the newest


class Replayer:
    """Makes replays."""

    def __init__(self, core: Core, dispatcher: Dispatcher) -> None:
        self._admin, self._views, self._clock = core.admin, core.views, core.clock
        self._catalog, self._ids, self._fan_out = core.catalog, core.ids, core.fan_out
        self._dispatcher, self._options, self._ownership = dispatcher, core.options, core.ownership
        self._tasks: dict[int, asyncio.Task[None]] = {}  # by job
        self._known: dict[int, _Known] = {}  # by backfill
        # One for each tenant with a quota whose step is being taken.
        self._stepping: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._grace = core.grace
        self._searching: asyncio.Task[None] | None = None
        self._search_again = False  # a job may have been stored since the last read
        self.accepted = 0

    async def replay(self, delivery_id: int) -> Delivery:
        """Replay a finished delivery: current URL, retry lane, new window."""
        old = await self._views.delivery(delivery_id)
        if old is None:
            raise NotFound
        if old.status is Status.PENDING:
            raise StillPending
        new = self._again(old.delivery, self._clock.now())
        if new is None:
            raise SubscriptionGone
        with self._recheck_on_failure([new]):
            written = await self._admin.replay(delivery_id, new=new)
        self.accepted += 1
        self._dispatcher.left_in_store(written)
        return written

    def _again(self, old: Delivery, now: int) -> Delivery | None:
        """The new delivery; None if the subscription is deleted."""
        subscription = self._catalog.get(old.subscription_id)
        if subscription is None:
            return None
        schedule = self._options.schedule_of(subscription, tenant=old.tenant)
        return Delivery(
            id=self._ids.take(now),
            bucket=self._fan_out.bucket(subscription),
            tenant=old.tenant,
            endpoint_id=subscription.endpoint_id,
            subscription_id=old.subscription_id,
            event_id=old.event_id,
            root_id=old.root_id,
            accepted_at=now,
            due_at=now,
            expires_at=window_end(now, schedule),
            replay=True,
        )

    @contextmanager
    def _recheck_on_failure(self, new: Sequence[Delivery]) -> Iterator[None]:
        """Search the store for these rows if a write fails: only its reply may have been lost."""
        try:
            yield
        except Unavailable:
            for endpoint_id in dict.fromkeys(delivery.endpoint_id for delivery in new):
                self._dispatcher.check_store(endpoint_id)
            raise

    # --- jobs --------------------------------------------------------------------------------

    def _job(self, conditions: ReplayFilter) -> ReplayJob:
        now = self._clock.now()
        number = self._ids.take(now)
        return ReplayJob(
            id=number,
            filter=conditions,
            created_at=now,
            state="running",
            upto_id=number,  # the deliveries that it makes have higher ids
            after_id=0,
        )

    async def count(self, conditions: ReplayFilter) -> tuple[int, bool]:
        job = self._job(conditions)
        return await self._admin.count_replay(job, now=job.created_at, limit=COUNT_MAX)

    async def groups(self, conditions: ReplayFilter) -> Counted:
        job = self._job(conditions)
        return await self._admin.replay_groups(job, now=job.created_at, limit=COUNT_MAX)

    async def start(self, conditions: ReplayFilter) -> ReplayJob:
        job = self._job(conditions)
        try:
            await self._admin.save_replay_job(job)
        finally:  # A call that fails may have saved it; if it was not saved, it ends at once.
            self._spawn(job)
            self._ownership.notify_peers("replays")
        return job

    async def job(self, job_id: int) -> ReplayJob:
        job = await self._admin.replay_job(job_id)
        if job is None:
            raise NotFound
        return job

    async def cancel(self, job_id: int) -> ReplayJob:
        job = await self._admin.cancel_replay_job(job_id)
        if job is None:
            raise NotFound
        return job

    async def go_on(self) -> None:
        """Continue the jobs that an earlier or another process left unfinished."""
        if not self._ownership.is_maintenance_leader:
            return
        for job in await self._admin.running_replay_jobs():
            self._spawn(job)

    def take_up(self) -> None:
        """Search for running jobs until the store replies, without waiting for the result."""
        if not self._ownership.is_maintenance_leader:
            return
        self._search_again = True
        if self._searching is None:
            self._searching = asyncio.get_running_loop().create_task(self._search())

    def announce(self) -> None:
        """Let the process that runs jobs, this one or another, look for one that was stored."""
        self.take_up()
        self._ownership.notify_peers("replays")

    async def _search(self) -> None:
        try:
            while self._search_again:
                self._search_again = False
                try:
                    await self.go_on()
                except HomingError as error:
                    log.debug("the list of running replay jobs cannot be read", error=str(error))
                    self._search_again = True
                    await asyncio.sleep(AGAIN_MS / 1000)
        finally:
            self._searching = None

    def _spawn(self, job: ReplayJob) -> None:
        if job.id in self._tasks or not self._ownership.is_maintenance_leader:
            return
        task = asyncio.get_running_loop().create_task(self._run(job))
        self._tasks[job.id] = task
        task.add_done_callback(lambda _: self._ended(job.id))

    def _ended(self, job_id: int) -> None:
        self._tasks.pop(job_id, None)
        self._known.pop(job_id, None)

    async def _run(self, job: ReplayJob) -> None:
        while job.state == "running" and self._ownership.is_maintenance_leader:
            try:
                stepped = await self._step(job)
                if stepped is job:
                    await asyncio.sleep(ROOM_AGAIN_S)
                    stepped = await self._reread(job)  # Somebody may have cancelled it.
            except HomingError as error:
                log.warning("a replay job waits for the store", error=str(error))
                await asyncio.sleep(AGAIN_MS / 1000)
                stepped = await self._reread(job)
            if stepped is None:
                return
            job = stepped

    async def _reread(self, job: ReplayJob) -> ReplayJob | None:
        """The job as it is stored: a step whose reply was lost may have been written."""
        try:
            return await self._admin.replay_job(job.id)
        except HomingError:
            return job

    async def _step(self, job: ReplayJob) -> ReplayJob | None:
        """Run one step; the job after it, the same one without room, None if it is gone."""
        if job.filter.backfill:
            return await self._backfill_with_room(job)
        if job.filter.tenant is not None and not await self._room(job.filter.tenant):
            return job
        found, looked_upto, all_seen = await self._candidates(job)
        async with self._alone({it.delivery.tenant for it in found}):
            taken = await self._with_room(found)
            if found and not taken:
                return job
            if len(taken) < len(found):
                looked_upto, all_seen = taken[-1].delivery.id, False
            now = self._clock.now()
            made = [self._again(finished.delivery, now) for finished in taken]
            new = [delivery for delivery in made if delivery is not None]
            after = msgspec.structs.replace(
                job,
                after_id=looked_upto,
                scanned=job.scanned + len(taken),
                replayed=job.replayed + len(new),
                skipped=job.skipped + len(made) - len(new),
                state="done" if all_seen else "running",
            )
            return await self._write(job, after, new, {})

    async def _candidates(self, job: ReplayJob) -> tuple[list[Finished], int, bool]:
        return await self._admin.candidates(
            job, now=self._clock.now(), limit=self._options.step_rows
        )

    async def _write(
        self,
        job: ReplayJob,
        after: ReplayJob,
        new: Sequence[Delivery],
        seen: Mapping[str, EventPlace],
    ) -> ReplayJob | None:
        with self._recheck_on_failure(new):
            stepped = await self._admin.replay_step(job, after=after, new=new, seen=seen)
        if not stepped:  # Cancelled, or taken already, or too many newer events came.
            return await self._admin.replay_job(job.id)
        self.accepted += len(new)
        for delivery in new:
            self._dispatcher.left_in_store(delivery)
        return after

    # --- quotas ------------------------------------------------------------------------------

    async def waits_for(self, job: ReplayJob) -> str | None:
        """The tenant whose quota of pending deliveries a running job waits for, if it does."""
        if job.state != "running":
            return None
        tenant = job.filter.tenant
        if tenant is None:
            found, _, _ = await self._candidates(job)
            if not found:
                return None
            tenant = found[0].delivery.tenant
        return None if await self._room(tenant) else tenant

    async def _room(self, tenant: str) -> int:
        """How many deliveries a step may make for a tenant."""
        if not (limit := self._options.pending_max_of(tenant)):
            return self._options.step_rows
        room = room_for_jobs(await self._views.pending_of(tenant), limit)
        return min(room, self._options.step_rows)

    async def _with_room(self, found: Sequence[Finished]) -> Sequence[Finished]:
        """The first of these, up to one whose tenant may have no more pending deliveries."""
        room: dict[str, int] = {}
        for place, it in enumerate(found):
            tenant = it.delivery.tenant
            if tenant not in room:
                room[tenant] = await self._room(tenant)
            room[tenant] -= 1
            if room[tenant] < 0:
                return found[:place]
        return found

    @asynccontextmanager
    async def _alone(self, tenants: Iterable[str]) -> AsyncIterator[None]:
        """Let no other step make deliveries for those of these tenants that have a quota."""
        async with AsyncExitStack() as held:
            for tenant in sorted(filter(self._options.pending_max_of, tenants)):
                lock = self._stepping.setdefault(tenant, asyncio.Lock())
                await held.enter_async_context(lock)
            yield

    # --- backfills ---------------------------------------------------------------------------

    async def count_past(self, conditions: ReplayFilter) -> tuple[int, bool]:
        """How many past events a backfill would deliver, and whether that is exact."""
        subscription = self._catalog.get(conditions.subscription_id or 0)
        if subscription is None:
            return 0, False
        return await self.count_past_of(subscription, self._job(conditions))

    async def count_past_of(self, subscription: Subscription, job: ReplayJob) -> tuple[int, bool]:
        """The same for a subscription that may not be stored yet."""
        count, left, known = 0, COUNT_MAX, _Known()
        while left > 0:
            found, scanned, upto, all_seen = await self._admin.past_events(
                job, limit=min(self._options.step_rows, left)
            )
            wanted = await self._wanted(subscription, found, known, left - scanned)
            count += len(wanted.events)
            left = wanted.left
            if wanted.decided < len(found):
                return count, False
            if all_seen:
                return count, True
            job = msgspec.structs.replace(job, after_position=upto[0], after_id=upto[1])
        return count, False

    def new_backfill(self, subscription: Subscription, start: PastStart) -> ReplayJob:
        """A backfill that is not stored yet."""
        return self._job(
            ReplayFilter(
                tenant=subscription.tenant,
                subscription_id=subscription.id,
                since=start.since,
                backfill=True,
                per_second=start.per_second,
            )
        )

    async def start_backfill(self, conditions: ReplayFilter) -> ReplayJob:
        """Begin a backfill; raises Conflict if one of this subscription is running."""
        try:
            job = await self._admin.save_backfill(self._job(conditions))
        except Unavailable:  # It may have been saved.
            self.take_up()
            raise
        finally:
            self._ownership.notify_peers("replays")
        self._spawn(job)
        return job

    async def _backfill_with_room(self, job: ReplayJob) -> ReplayJob | None:
        """Run one step within the quota, and wait as long as the rate of the job asks."""
        tenant, per_second = job.filter.tenant or "", max(job.filter.per_second, 1)
        async with self._alone((tenant,)):
            if not (room := await self._room(tenant)):
                return job
            stepped = await self._backfill_step(job, limit=min(room, per_second))
        if stepped is not None and stepped.state == "running" and stepped.replayed > job.replayed:
            await asyncio.sleep((stepped.replayed - job.replayed) / per_second)
        return stepped

    async def _backfill_step(self, job: ReplayJob, *, limit: int) -> ReplayJob | None:
        """Make deliveries for the next past events.

        With the order ``key`` they are made in order, and wait behind pending ones of their key.
        """
        subscription = self._catalog.get(job.filter.subscription_id or 0)
        if not gets_events(subscription):  # Another process may have created or changed it.
            await self._catalog.refresh()
            subscription = self._catalog.get(job.filter.subscription_id or 0)
        if subscription is None or not gets_events(subscription):
            ended = msgspec.structs.replace(job, state="cancelled")
            return await self._write(job, ended, (), {})
        if job.upto_position == NOT_BOUND:
            await self._catalog.refresh()
            await self._grace.everywhere(self._catalog.version)
            return await self._admin.bound_backfill(job.id)
        found, scanned, upto, all_seen = await self._admin.past_events(job, limit=limit)
        known = self._known.setdefault(job.id, _Known())
        wanted = await self._wanted(subscription, found, known, LOOK_MAX)
        if wanted.decided < len(found):  # The next step goes on there.
            scanned, all_seen = wanted.decided, False
            upto = found[scanned - 1].place if scanned else (job.after_position, job.after_id)
        now = self._clock.now()
        new = [self._delivery(subscription, it.id, now) for it in wanted.events]
        after = msgspec.structs.replace(
            job,
            after_position=upto[0],
            after_id=upto[1],
            scanned=job.scanned + scanned,
            replayed=job.replayed + len(new),
            state="done" if all_seen else "running",
        )
        return await self._write(job, after, new, wanted.seen)

    def _delivery(self, subscription: Subscription, event_id: int, now: int) -> Delivery:
        number = self._ids.take(now)
        schedule = self._options.schedule_of(subscription, tenant=subscription.tenant)
        return Delivery(
            id=number,
            bucket=self._fan_out.bucket(subscription),
            tenant=subscription.tenant,
            endpoint_id=subscription.endpoint_id,
            subscription_id=subscription.id,
            event_id=event_id,
            root_id=number,  # the first delivery of this event to this subscription
            accepted_at=now,
            due_at=now,
            expires_at=window_end(now, schedule),
            replay=True,
        )

    async def _wanted(
        self, subscription: Subscription, found: Sequence[PastEvent], known: _Known, left: int
    ) -> _Wanted:
        """Those that match the subscription as it is now; with ``latest``, the newest of each key.

        What is ``known`` serves the next pages: of a million events of a thousand keys, the newest
        is looked for a thousand times. At most ``left`` events are looked at for that.
        """
        matching = await self._matching(subscription, found)
        if subscription.order is not Order.LATEST:
            return _Wanted(matching, len(found), left, {})
        keys, end, seen = known.keys(subscription), LAST_PLACE, dict[str, EventPlace]()
        last = {it.order_key: it for it in matching if it.order_key}
        for it in sorted(last.values(), key=lambda it: it.place):
            key = keys.setdefault(it.order_key, _Key())
            newest, left = await self._is_newest(subscription, it, key, left)
            if newest is None:
                end = it.place
                break
            if newest:
                seen[it.order_key] = key.seen
        events = [
            it
            for it in matching
            if it.place < end
            and (not it.order_key or (it.order_key in seen and last[it.order_key] is it))
        ]
        decided = sum(it.place < end for it in found)
        return _Wanted(events, decided, left, seen)

    async def _is_newest(
        self, subscription: Subscription, it: PastEvent, key: _Key, left: int
    ) -> tuple[bool | None, int]:
        """Whether no newer event of its key counts, and how many may still be looked at.

        None if none may: the look goes on where it ended.
        """
        while not key.is_newer(it):
            limit = min(LOOK_PAGE, left)
            if limit <= 0:
                return None, left
            after, before = key.unseen(it)
            page = await self._admin.newer_of_key(
                subscription.tenant,
                it.order_key,
                subscription_id=subscription.id,
                after=after,
                before=before,
                limit=limit,
            )
            left -= len(page)
            if page:
                wanted = {it.id for it in await self._matching(subscription, page)}
                key.looked_at(page, [it for it in page if it.had or it.id in wanted])
            if len(page) < limit and not key.is_newer(it):
                key.finish(it)
                return True, left
        return False, left

    async def _matching(
        self, subscription: Subscription, found: Sequence[PastEvent]
    ) -> list[PastEvent]:
        """Those that match the subscription as it is now."""
        typed = [it for it in found if is_of_type(subscription, it.type)]
        wants = wants_of(subscription)
        to_read = [it for it in typed if wants is not None or may_be_notice(it.type)]
        unwanted = {it.id for it in to_read}
        for chunk in _chunks(to_read):
            for event in await self._admin.events_whole([it.id for it in chunk]):
                if not is_about(subscription, event) and await self._wants(
                    subscription, wants, event
                ):
                    unwanted.discard(event.id)
        return [it for it in typed if it.id not in unwanted]

    async def _wants(self, subscription: Subscription, wants: Wants | None, event: Event) -> bool:
        """Whether the data of an event meets the conditions; read in slices."""
        if wants is None:
            return True
        now = self._clock.now()
        slices = picking(
            [subscription], {subscription.id: wants}, event.data, now=now, steps=SLICE_STEPS
        )
        try:
            next(slices)
            while True:
                await asyncio.sleep(0)
                slices.send(SLICE_STEPS)
        except StopIteration as end:
            kept: list[Subscription] = end.value[0]
            return bool(kept)

    def stop(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        if self._searching is not None:
            self._searching.cancel()


def _chunks(found: Sequence[PastEvent]) -> Iterator[list[PastEvent]]:
    """The events in parts of at most CHUNK_BYTES of data, or of one event."""
    part: list[PastEvent] = []
    size = 0
    for it in found:
        if part and size + it.size > CHUNK_BYTES:
            yield part
            part, size = [], 0
        part.append(it)
        size += it.size
    if part:
        yield part
