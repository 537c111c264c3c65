"""Replays: new deliveries that a person makes from finished ones, singly or by a stored job.

A job reads history once in order of id. Its progress and the deliveries that it makes are written
in the same commit, so an interrupted job continues where it was and replays nothing twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
import structlog

from homing.engine.core import Core
from homing.engine.dispatch import Dispatcher
from homing.engine.load import AGAIN_MS
from homing.errors import HomingError, NotFound, StillPending, SubscriptionGone, Unavailable
from homing.model import Delivery, Status
from homing.policy.retry import window_end
from homing.ports import ReplayFilter, ReplayJob

log = structlog.get_logger("homing.replay")

COUNT_MAX = 100_000  # history rows scanned for a dry run


class Replayer:
    """Makes replays."""

    def __init__(self, core: Core, dispatcher: Dispatcher) -> None:
        self._admin, self._views, self._clock = core.admin, core.views, core.clock
        self._catalog, self._ids, self._fan_out = core.catalog, core.ids, core.fan_out
        self._dispatcher, self._options, self._ownership = dispatcher, core.options, core.ownership
        self._tasks: dict[int, asyncio.Task[None]] = {}  # by job
        self._searching: asyncio.Task[None] | None = None
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
        """Search for running jobs, without waiting for the result."""
        if self._ownership.is_maintenance_leader and self._searching is None:
            self._searching = asyncio.get_running_loop().create_task(self._search())

    async def _search(self) -> None:
        try:
            await self.go_on()
        except HomingError as error:
            log.debug("the list of running replay jobs cannot be read", error=str(error))
        finally:
            self._searching = None

    def _spawn(self, job: ReplayJob) -> None:
        if job.id in self._tasks or not self._ownership.is_maintenance_leader:
            return
        task = asyncio.get_running_loop().create_task(self._run(job))
        self._tasks[job.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(job.id, None))

    async def _run(self, job: ReplayJob) -> None:
        while job.state == "running" and self._ownership.is_maintenance_leader:
            try:
                stepped = await self._step(job)
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
        """Run one step and return the job after it; None if the job no longer exists."""
        found, looked_upto, all_seen = await self._admin.candidates(
            job, now=self._clock.now(), limit=self._options.step_rows
        )
        now = self._clock.now()
        made = [self._again(finished.delivery, now) for finished in found]
        new = [delivery for delivery in made if delivery is not None]
        after = msgspec.structs.replace(
            job,
            after_id=looked_upto,
            scanned=job.scanned + len(found),
            replayed=job.replayed + len(new),
            skipped=job.skipped + len(made) - len(new),
            state="done" if all_seen else "running",
        )
        with self._recheck_on_failure(new):
            stepped = await self._admin.replay_step(job, after=after, new=new)
        if not stepped:
            return await self._admin.replay_job(job.id)  # Cancelled, or this step was taken.
        self.accepted += len(new)
        for delivery in new:
            self._dispatcher.left_in_store(delivery)
        return after

    def stop(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
