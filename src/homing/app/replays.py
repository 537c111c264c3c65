"""Bulk replays: count the matching deliveries, start a job, show its progress, stop it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from homing.app.access import MANAGERS, READERS, Caller, use_case
from homing.app.deliveries import visible_endpoint_id
from homing.app.quotas import Quotas
from homing.engine.engine import Engine
from homing.errors import FieldProblem, Invalid, NotFound
from homing.languages.sentences import Sentence, many, say
from homing.model import Endpoint, Status
from homing.policy.admission import DEFAULT_TENANT
from homing.policy.backfill import PER_SECOND, PastStart, check_start, check_subscription
from homing.policy.bulk import Counted, check_typed
from homing.ports import ReplayFilter, ReplayJob, ViewStore
from homing.ports.views import HOUR_MS

LATE_MAX_MS = 24 * HOUR_MS  # how long after its window a delivery is dropped at the latest
ONLY_FINISHED = say("must not be pending: only finished deliveries are replayed")


class Replays:
    """Replays of many deliveries, as stored jobs."""

    def __init__(
        self, engine: Engine, views: ViewStore, quotas: Quotas, now: Callable[[], int]
    ) -> None:
        self._engine, self._views, self._quotas, self._now = engine, views, quotas, now

    def dropped(self, endpoint: Endpoint, *, since: int, as_of: int) -> ReplayFilter:
        """The deliveries that an endpoint dropped since then, even if they were accepted before.

        The time of acceptance is bounded, so that a job does not read all of the history.
        """
        earliest = since - self._engine.window_max_ms - LATE_MAX_MS
        return ReplayFilter(
            tenant=endpoint.tenant,
            status=Status.DROPPED,
            endpoint_id=endpoint.id,
            since=max(earliest, 0),
            finished_since=since,
            as_of=as_of,
        )

    @use_case(MANAGERS)
    async def count(
        self, caller: Caller, conditions: ReplayFilter, *, event: str | None = None
    ) -> Counted:
        """The deliveries that a job would replay, by status, tenant and cause; raises Forbidden."""
        return await self._engine.replay_groups(await self._scoped(caller, conditions, event))

    @use_case(MANAGERS, changes=True)
    async def start(
        self,
        caller: Caller,
        conditions: ReplayFilter,
        *,
        event: str | None = None,
        typed: str | None = None,
    ) -> ReplayJob:
        """Starts a job; raises Forbidden, TooMany or Invalid.

        If a person starts it, ``typed`` is what they typed; more than 1,000 deliveries are replayed
        only if it is their number.
        """
        conditions = await self._scoped(caller, conditions, event)
        if typed is not None:
            check_typed(await self._engine.replay_groups(conditions), typed)
        if conditions.tenant is not None:
            await self._quotas.check_pending(conditions.tenant)
        return await self._engine.start_replay(conditions)

    @use_case(MANAGERS)
    async def count_past(
        self, caller: Caller, subscription_id: int, *, since: int
    ) -> tuple[int, bool]:
        """How many past events a backfill would deliver, and whether that is exact.

        Raises NotFound, Conflict, or Invalid if ``since`` is before the retention.
        """
        conditions = await self._past(caller, subscription_id, since=since, per_second=PER_SECOND)
        return await self._engine.count_past(conditions)

    @use_case(MANAGERS, changes=True)
    async def backfill(
        self, caller: Caller, subscription_id: int, *, since: int, per_second: int = PER_SECOND
    ) -> ReplayJob:
        """Starts a job that delivers the past events that a subscription has no deliveries of.

        Raises NotFound, Conflict (one is running, or it gets no events), Invalid or TooMany.
        """
        conditions = await self._past(caller, subscription_id, since=since, per_second=per_second)
        assert conditions.tenant is not None
        await self._quotas.check_pending(conditions.tenant)
        return await self._engine.start_backfill(conditions)

    async def _past(
        self, caller: Caller, subscription_id: int, *, since: int, per_second: int
    ) -> ReplayFilter:
        found = await self._views.subscription(subscription_id)
        if found is None or found.deleted_at is not None or not caller.sees(found.tenant):
            raise NotFound(say("There is no such subscription."))
        check_subscription(found)
        retention_ms = self._engine.retention_of(found.tenant)
        start = PastStart(since, per_second)
        check_start(start, retention_ms=retention_ms, now=self._now())
        return ReplayFilter(
            tenant=found.tenant,
            subscription_id=found.id,
            since=since,
            backfill=True,
            per_second=per_second,
        )

    @use_case(READERS)
    async def get(self, caller: Caller, job_id: int) -> ReplayJob:
        """The job; raises NotFound."""
        return await self._visible(caller, job_id)

    async def waits(self, job: ReplayJob) -> Sentence | None:
        """Why a job that a caller may see makes no deliveries for now; None if it does."""
        tenant = await self._engine.replay_waits_for(job)
        if tenant is None:
            return None
        return many(
            "The tenant {tenant} may have at most {count} pending delivery: the job goes on when "
            "there is room.",
            "The tenant {tenant} may have at most {count} pending deliveries: the job goes on when "
            "there is room.",
            self._quotas.of(tenant).pending_max,
            tenant=tenant,
        )

    @use_case(MANAGERS, changes=True)
    async def cancel(self, caller: Caller, job_id: int) -> ReplayJob:
        """Stops a job; the deliveries that it has created are kept. Raises NotFound."""
        await self._visible(caller, job_id)
        return await self._engine.cancel_replay(job_id)

    async def _visible(self, caller: Caller, job_id: int) -> ReplayJob:
        """The job, if the caller may see it: jobs over all tenants need a caller of all tenants."""
        job = await self._engine.replay_job(job_id)
        if caller.tenant not in {None, job.filter.tenant}:
            raise NotFound
        return job

    async def _scoped(
        self, caller: Caller, conditions: ReplayFilter, event: str | None
    ) -> ReplayFilter:
        """The conditions limited to the caller's tenant, which is also the tenant of ``event``."""
        if conditions.status is Status.PENDING:
            raise Invalid(problems=(FieldProblem("filter.status", ONLY_FINISHED),))
        if caller.tenant is not None:
            if conditions.tenant is not None:
                caller.must_write(conditions.tenant)
            conditions = replace(
                conditions,
                tenant=caller.tenant,
                endpoint_id=await visible_endpoint_id(self._views, caller, conditions.endpoint_id),
            )
        elif conditions.tenant is None:
            conditions = replace(conditions, tenant=caller.chosen)
        if event is None:
            return conditions
        found = await self._views.event(event, tenant=conditions.tenant or DEFAULT_TENANT)
        return replace(conditions, event_id=0 if found is None else found.event.id, event_key=event)
