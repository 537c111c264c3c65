"""Expiry, retention, and the cleanup jobs that a changed or deleted subscription leaves behind.

Everything is done in bounded steps. Nothing expires in the first hour after a start, a step of the
clock or an outage of the sender: downtime of the sender drops nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import structlog

from homing.engine.core import Core
from homing.engine.decide import Terminated
from homing.engine.dispatch import Dispatcher
from homing.engine.load import AGAIN_MS
from homing.engine.options import HOUR_MS
from homing.engine.queue import EndpointQueue
from homing.engine.settle import Settler
from homing.engine.shared import Shared
from homing.errors import HomingError, StaleCatalog, Unavailable
from homing.model import Lane, Reason, Status, Subscription, bucket_of, id_floor, id_time
from homing.policy.pause import is_over_age
from homing.policy.receiver import is_unbound
from homing.policy.share import Share
from homing.ports import CleanupJob
from homing.ports.flow import ErasedPlace, Retention

log = structlog.get_logger("homing.maintenance")

RETENTION_EVERY_MS = HOUR_MS
FEW_PAGES = 10
SEARCH_AGAIN_MS = 24 * HOUR_MS  # for expired deliveries, if no row shows when the next one expires
UNSURE_STEP = 20  # subscriptions whose endpoint is searched in one turn
PAGES_MAX = 4  # pages of expired deliveries in memory; their endpoints take turns


class _Page:
    """Expired deliveries that were read together and wait to be written."""

    def __init__(self) -> None:
        self.waiting = 0
        self._done = asyncio.Event()

    def written_one(self) -> None:
        self.waiting -= 1
        if not self.waiting:
            self._done.set()

    async def written(self) -> None:
        """Wait until the last of them is written."""
        if self.waiting:
            await self._done.wait()


def _pause_ms(pages: int) -> int:
    """The shortest wait before a search for expired deliveries of this many pages is repeated.

    Many deliveries whose windows end one after the other would be read again for each of them.
    """
    return 1 if pages <= FEW_PAGES else min(pages * 1_000, 300_000)


class Maintenance:
    """Expiry by endpoint, retention every hour, cleanup jobs when they arise."""

    def __init__(
        self,
        core: Core,
        dispatcher: Dispatcher,
        settler: Settler,
        *,
        paused: Callable[[int], int],
    ) -> None:
        self._flow, self._admin, self._clock = core.flow, core.admin, core.clock
        self._grace = core.grace
        self._catalog, self._options = core.catalog, core.options
        self._dispatcher, self._settler, self._ownership = dispatcher, settler, core.ownership
        self._paused = paused  # the end of the last outage of the sender
        self._places = Shared(Share(PAGES_MAX, weight=PAGES_MAX))
        self._started_at = core.clock.now()
        self._tasks: set[asyncio.Task[None]] = set()
        self._cleanup_jobs: asyncio.Task[None] | None = None
        self.every_hour: Callable[[], Awaitable[None]]  # set by the engine
        self.lock = asyncio.Lock()  # held by every step that removes or folds rows past retention
        self._keys_wait = False  # a delivery with a key was cancelled
        self._unsure: set[int] = set()  # subscriptions whose keys were released without a reply
        self._asked = False  # ``run_cleanup_jobs`` was called since the jobs were last read

    # --- expiry ------------------------------------------------------------------------------

    def quiet_until(self) -> int:
        """Nothing expires before this time."""
        since = max(self._started_at, self._clock.stepped_at() or 0)
        since = max(since, self._paused(self._clock.now()))
        return since + self._options.quiet_ms

    def may_expire(self, now: int) -> bool:
        return now >= self.quiet_until()

    def expire(self, queue: EndpointQueue) -> None:
        """Search for expired deliveries of an endpoint that is disabled or frozen."""
        queue.begin_expiry()
        self._spawn(self._expire(queue))

    async def _expire(self, queue: EndpointQueue) -> None:
        now = self._clock.now()
        queue.expire_later(now + SEARCH_AGAIN_MS)
        again_at = now + AGAIN_MS  # If the search fails.
        try:
            again_at = await self._expire_all(queue)
        except HomingError as error:
            log.warning("expired deliveries could not be read", error=str(error))
        finally:
            queue.end_expiry(again_at=again_at)
            self._dispatcher.reschedule(queue)

    async def _expire_all(self, queue: EndpointQueue) -> int:
        """Drop expired deliveries; return the time to search again."""
        now = self._clock.now()
        if not self.may_expire(now):
            return self.quiet_until()
        young = id_floor(now - self._options.window_min_ms)  # later ids cannot have expired
        after, soonest = queue.take_expiry_position() or (0, now + SEARCH_AGAIN_MS)
        pages = 0
        while True:
            pages += 1
            try:
                async with self._places.hold(queue.endpoint.tenant):
                    last, next_at = await self._expire_page(queue, after, now)
            except HomingError:
                queue.keep_expiry_position(after, soonest)
                raise
            soonest = min(soonest, next_at)
            if last is None:
                return max(soonest, now + _pause_ms(pages))
            if last >= young:
                again_at = min(soonest, id_time(last) + self._options.window_min_ms)
                return max(again_at, now + _pause_ms(pages))
            after = last

    async def _expire_page(
        self, queue: EndpointQueue, after: int, now: int
    ) -> tuple[int | None, int]:
        """Drop a page's expired rows; return its last row if others follow, and when to search.

        While the page waited for its turn, the endpoint may have been enabled, or an outage ended.
        """
        if queue.enabled:
            return None, now + SEARCH_AGAIN_MS
        if queue.closed or not self.may_expire(self._clock.now()):
            return None, max(self.quiet_until(), now + AGAIN_MS)
        queue.begin_expiry_page()
        epoch = self._ownership.epochs[queue.endpoint.bucket]
        rows, last, next_at = await self._flow.expired(
            queue.endpoint.id,
            bucket=queue.endpoint.bucket,
            now=now,
            after_id=after,
            limit=self._options.step_rows,
        )
        soonest = now + SEARCH_AGAIN_MS if next_at is None else next_at
        page = _Page()
        for row in rows:
            if row.subscription_id in queue.paused:
                continue  # Its window does not run.
            if queue.claim_expired(row.id):
                page.waiting += 1
                # If a pause has moved its window, it gets the new times and stays pending.
                dropped, why = Status.DROPPED, Reason.EXPIRED
                self._settler.add(Terminated(row, dropped, why, epoch, page.written_one))
            else:
                soonest = min(soonest, now + AGAIN_MS)
        await page.written()  # The next page is read only then: its size bounds the memory.
        return last, soonest

    async def _drop_paused(self) -> None:
        """Drop deliveries of paused subscriptions that are past retention, every hour."""
        while True:
            await asyncio.sleep(RETENTION_EVERY_MS / 1000)
            for subscription in tuple(self._catalog.paused.values()):
                try:
                    await self._drop_paused_of(subscription)
                except HomingError as error:
                    log.warning("paused deliveries could not be read", error=str(error))

    async def _drop_paused_of(self, subscription: Subscription) -> None:
        bucket = bucket_of(subscription.tenant, subscription.url)
        retention_ms, after_id = self._options.retention_of(subscription.tenant), 0
        while subscription.url and self._ownership.mine[bucket]:
            now, epoch = self._clock.now(), self._ownership.epochs[bucket]
            if not self.may_expire(now):
                return
            if subscription.tenant in self._catalog.moves:
                return
            queue = self._dispatcher.queues.get(subscription.endpoint_id)
            in_flight = set() if queue is None else set(queue.in_flight)
            async with self._places.hold(subscription.tenant):
                rows = await self._flow.older(
                    subscription.endpoint_id,
                    bucket=bucket,
                    after_id=after_id,
                    before_id=id_floor(now - retention_ms + 1),
                    limit=self._options.step_rows,
                )
                page = _Page()
                for row in rows:
                    if row.subscription_id != subscription.id or row.id in in_flight:
                        continue
                    if is_over_age(row, subscription, retention_ms=retention_ms, now=now):
                        page.waiting += 1
                        dropped, why = Status.DROPPED, Reason.EXPIRED
                        if queue is not None:
                            queue.claim(row.id, Lane.RETRY)
                        self._settler.add(Terminated(row, dropped, why, epoch, page.written_one))
                await page.written()
            if len(rows) < self._options.step_rows:
                return
            after_id = rows[-1].id

    # --- retention ---------------------------------------------------------------------------

    def start(self) -> None:
        self._spawn(self._keep_retention())
        self._spawn(self._drop_paused())
        self.run_cleanup_jobs()

    async def _keep_retention(self) -> None:
        while True:
            if self._ownership.is_maintenance_leader:
                await self.every_hour()
            await asyncio.sleep(RETENTION_EVERY_MS / 1000)
            if not self._ownership.is_maintenance_leader:
                continue
            try:
                removed = await self._remove_old()
                if removed:
                    log.info("history past retention removed", rows=removed)
            except HomingError as error:
                log.warning("history could not be removed", error=str(error))

    async def _remove_old(self) -> int:
        """Remove and fold rows past retention; returns how many rows of history were removed."""
        before, removed = self._clock.now() - self._options.retention_max_ms, 0
        while step := await self._step_of_retention(
            lambda: self._flow.remove_history(
                before=before, limit=self._options.step_rows, epoch=self._ownership.fence(0)
            )
        ):
            removed += step
            await asyncio.sleep(0.01)
        if self._options.tenant_retention_ms:
            removed += await self._keep_retention_of_tenants()
        now = self._clock.now()
        folding = True
        while folding:
            step = await self._step_of_retention(
                lambda: self._flow.fold_rollups(
                    now=now, before=before, limit=self._options.step_rows
                )
            )
            folding = step >= self._options.step_rows
        if self._catalog.ordered:
            await self._expire_blocked()
        return removed

    async def _step_of_retention(self, step: Callable[[], Awaitable[int]]) -> int:
        """Make a step; none while rows of a tenant are copied from or to another installation."""
        async with self.lock:
            return 0 if self._catalog.is_copied else await step()

    async def _keep_retention_of_tenants(self) -> int:
        """Remove the events of tenants whose retention is shorter than the longest one.

        Afterwards also what is known of their erased events.
        """
        removed, tenant = 0, ""
        while (found := await self._flow.next_tenant(tenant)) is not None:
            tenant, after_key = found, ""
            retention_ms = self._options.retention_of(tenant)
            while retention_ms < self._options.retention_max_ms:
                async with self.lock:
                    if self._catalog.is_copied:
                        return removed
                    step, on_after = await self._flow.remove_history_of(
                        tenant,
                        before=self._clock.now() - retention_ms,
                        after_key=after_key,
                        limit=self._options.step_rows,
                        epoch=self._ownership.fence(0),
                    )
                removed += step
                await asyncio.sleep(0.01)
                if on_after is None:
                    break
                after_key = on_after
        return removed + await self._forget_erased()

    def _retention(self) -> Retention:
        now = self._clock.now()
        own = {it: now - ms for it, ms in self._options.tenant_retention_ms.items()}
        return Retention(now - self._options.retention_ms, own)

    async def _expire_blocked(self) -> None:
        """Drop blocked deliveries past their tenant's retention."""
        after_id: int | None = 0
        while after_id is not None:
            async with self.lock:
                if self._catalog.is_copied:
                    return
                _, after_id = await self._flow.expire_blocked(
                    self._retention(),
                    after_id=after_id,
                    now=self._clock.now(),
                    limit=self._options.step_rows,
                    epoch=self._ownership.fence(0),
                )
            await asyncio.sleep(0.01)

    async def _forget_erased(self) -> int:
        removed, keep, place = 0, self._retention(), ErasedPlace()
        while True:
            async with self.lock:
                if self._catalog.is_copied:
                    return removed
                step, on_after = await self._flow.forget_erased(
                    keep,
                    after=place,
                    limit=self._options.step_rows,
                    epoch=self._ownership.fence(0),
                )
            removed += step
            if on_after is None:
                return removed
            place = on_after
            await asyncio.sleep(0.01)

    # --- cleanup jobs -----------------------------------------------------------------------

    def run_cleanup_jobs(self, *, keys_wait: bool = False) -> asyncio.Task[None]:
        """Begin, or continue, the cleanup jobs that changes have left behind.

        ``keys_wait``: a delivery with a key was cancelled.
        """
        self._asked = True
        self._keys_wait = self._keys_wait or keys_wait
        if self._cleanup_jobs is None or self._cleanup_jobs.done():
            self._cleanup_jobs = self._spawn(self._run_cleanup_jobs())
        return self._cleanup_jobs

    async def _run_cleanup_jobs(self) -> None:
        while True:
            self._asked = False  # Before the read: a request during it is not lost.
            try:
                # A change whose reply was lost may have been written: the catalog is read first.
                await self._catalog.refresh()
                cleanup_jobs = await self._begun_cleanup_jobs()
                for cleanup_job in cleanup_jobs:
                    await self._step(cleanup_job)
                released = 0
                if self._catalog.ordered or self._keys_wait or self._unsure:
                    self._keys_wait = False
                    released = await self._release_keys()
                    self._find_unblocked()
                if not cleanup_jobs and not released and not self._unsure and not self._asked:
                    return
            except StaleCatalog:
                continue
            except HomingError as error:
                log.warning("a cleanup job waits for the store", error=str(error))
                await asyncio.sleep(AGAIN_MS / 1000)

    async def _begun_cleanup_jobs(self) -> list[CleanupJob]:
        """The jobs of this process's buckets whose changes all processes act on."""

        async def found() -> list[CleanupJob]:
            mine = self._ownership.mine  # The jobs of other buckets are run by their owners.
            return [it for it in await self._admin.cleanup_jobs() if mine[it.bucket]]

        asked = await found()
        if not asked:
            return []
        await self._catalog.refresh()
        # No publish that was matched before these changes is under way.
        await self._grace.everywhere(self._catalog.version)
        await self._bound_gone(asked)
        ids = {it.id for it in asked}
        return [it for it in await found() if it.id in ids]  # Changes may have altered them.

    async def _bound_gone(self, cleanup_jobs: Sequence[CleanupJob]) -> None:
        """Read up to which id deliveries are cancelled after a 410: to the last one by now."""
        for number in {it.subscription_id for it in cleanup_jobs}:
            subscription = self._catalog.get(number)
            if subscription is not None and is_unbound(subscription):
                await self._admin.bound_gone(number)
                await self._catalog.refresh()

    async def _release_keys(self) -> int:
        """Unblock keys whose delivery was cancelled or erased; returns how many.

        A delivery in flight is left until it is settled.
        """
        found = await self._admin.key_releases(limit=self._options.step_rows)
        if not found:
            return 0
        async with self._settler.lock:
            ownership, now = self._ownership, self._clock.now()
            here = [
                it
                for it in found
                if ownership.mine[it.bucket]
                and now >= ownership.ordered_from(it.bucket)
                and not self._dispatcher.is_in_flight(it.delivery_id, it.endpoint_id)
            ]
            if here:
                fences = ownership.fences(it.bucket for it in here)
                try:
                    unblocked = await self._admin.release_keys(here, now=now, fences=fences)
                except Unavailable:  # It may have been written, or be written a little later.
                    self._keys_wait = True
                    self._unsure.update([it.subscription_id for it in here])
                    raise
                for delivery in unblocked:
                    self._dispatcher.left_in_store(delivery)
        return len(here)

    def _find_unblocked(self) -> None:
        """Search a few subscriptions for deliveries that releases without a reply unblocked."""
        some = [self._unsure.pop() for _ in range(min(len(self._unsure), UNSURE_STEP))]
        self._settler.find_unblocked(some)

    async def _step(self, cleanup_job: CleanupJob) -> None:
        """Run one step, under the lock: settling itself moves deliveries in flight."""
        async with self._settler.lock:
            subscription = self._catalog.get(cleanup_job.subscription_id)
            target = None
            if subscription is not None:
                starts = await self._flow.endpoints([subscription.endpoint_id])
                target = starts[0].endpoint if starts else None
            self._dispatcher.remove_subscription(
                cleanup_job.subscription_id, cleanup_job.endpoint_id
            )
            queue = self._dispatcher.queues.get(cleanup_job.endpoint_id)
            moved = False
            try:
                step = await self._admin.run_cleanup_job(
                    cleanup_job,
                    target=target,
                    except_ids=frozenset(queue.in_flight if queue is not None else ()),
                    now=self._clock.now(),
                    limit=self._options.step_rows,
                    epoch=self._ownership.fence(cleanup_job.bucket),
                )
                moved = step.touched > 0
            except Unavailable:
                moved = True  # The step may have been written without a reply.
                raise
            finally:
                # Once more: rows that were loaded during the step may have moved.
                self._dispatcher.remove_subscription(
                    cleanup_job.subscription_id, cleanup_job.endpoint_id
                )
                stays = target is not None and target.id == cleanup_job.endpoint_id
                if target is not None and (moved or stays):  # Some of its deliveries may stay.
                    self._dispatcher.check_store(target.id)

    # --- tasks -------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
