"""Bulk replays: count the matching deliveries, start a job, show its progress, stop it."""

from __future__ import annotations

from msgspec.structs import replace

from homing.app.access import MANAGERS, READERS, Caller, use_case
from homing.app.deliveries import visible_endpoint_id
from homing.app.quotas import Quotas
from homing.engine.engine import Engine
from homing.errors import FieldProblem, Invalid, NotFound
from homing.model import Endpoint, Status
from homing.policy.admission import DEFAULT_TENANT
from homing.ports import ReplayFilter, ReplayJob, ViewStore
from homing.ports.views import HOUR_MS

LATE_MAX_MS = 24 * HOUR_MS  # how long after its window a delivery is dropped at the latest
ONLY_FINISHED = "must not be pending: only finished deliveries are replayed"


class Replays:
    """Replays of many deliveries, as stored jobs."""

    def __init__(self, engine: Engine, views: ViewStore, quotas: Quotas) -> None:
        self._engine, self._views, self._quotas = engine, views, quotas

    def dropped(self, endpoint: Endpoint, *, since: int, as_of: int) -> ReplayFilter:
        """What an endpoint dropped since then, also what was accepted before.

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
    ) -> tuple[int, bool]:
        """How many deliveries a job would replay, and whether that is exact; raises Forbidden."""
        return await self._engine.count_replay(await self._scoped(caller, conditions, event))

    @use_case(MANAGERS, changes=True)
    async def start(
        self, caller: Caller, conditions: ReplayFilter, *, event: str | None = None
    ) -> ReplayJob:
        """Starts a job; raises Forbidden or TooMany."""
        conditions = await self._scoped(caller, conditions, event)
        if conditions.tenant is not None:
            await self._quotas.check_pending(conditions.tenant)
        return await self._engine.start_replay(conditions)

    @use_case(READERS)
    async def get(self, caller: Caller, job_id: int) -> ReplayJob:
        """The job; raises NotFound."""
        return await self._visible(caller, job_id)

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
        if event is None:
            return conditions
        found = await self._views.event(event, tenant=conditions.tenant or DEFAULT_TENANT)
        return replace(conditions, event_id=0 if found is None else found.event.id, event_key=event)
