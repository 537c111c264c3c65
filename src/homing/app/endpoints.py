"""Endpoints: their health and waiting deliveries; enable, freeze, send a test event."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from homing.app.access import ADMINS, MANAGERS, READERS, Caller, use_case
from homing.engine.engine import Engine
from homing.errors import NotFound
from homing.languages.sentences import say
from homing.model import Attempt, Cause, Endpoint, State, Status, Subscription, Transition
from homing.policy.health import HealthRules
from homing.ports import DeliveryFilter, DeliveryRow, ViewStore
from homing.ports.views import HOUR_MS, AttemptCursor, AttemptFilter, EndpointSort, Rollup

REFUSED_SHOWN = 20
SUBSCRIPTIONS_MAX = 200  # the newest of an endpoint


class EndpointListed(Struct, frozen=True):
    """An endpoint with its open causes, the latest failure first."""

    endpoint: Endpoint
    causes: list[Cause]


class EndpointSummary(Struct, frozen=True):
    """An endpoint with its number of pending deliveries and rollups of the last hour."""

    endpoint: Endpoint
    waiting: int
    minutes: list[Rollup]
    causes: list[Cause]  # open, the latest failure first


class EndpointDescribed(Struct, frozen=True):
    """An endpoint with its health rules, newest state changes and pending deliveries."""

    endpoint: Endpoint
    rules: HealthRules
    transitions: list[Transition]
    waiting: int  # pending deliveries, counted up to a limit
    deliveries: list[DeliveryRow]  # the newest of them
    causes: list[Cause]  # open, the latest failure first


class EndpointAttempt(Struct, frozen=True):
    """An attempt with its endpoint and its delivery; a test send has no delivery."""

    attempt: Attempt
    endpoint: Endpoint
    row: DeliveryRow | None


class Endpoints:
    """The endpoints of all tenants."""

    def __init__(self, engine: Engine, views: ViewStore, now: Callable[[], int]) -> None:
        self._engine, self._views, self._now = engine, views, now

    def rules_of(self, tenant: str) -> HealthRules:
        """The health rules of a tenant."""
        return self._engine.rules_of(tenant)

    @use_case(READERS)
    async def page(
        self,
        caller: Caller,
        *,
        tenant: str | None,
        state: State | None,
        before_id: int | None,
        limit: int,
    ) -> tuple[list[EndpointListed], int | None]:
        """A page, newest first, and the next ``before_id``."""
        rows, after = await self._views.endpoints(
            tenant=caller.scope(tenant), state=state, before_id=before_id, limit=limit
        )
        causes = await self._views.open_causes([it.id for it in rows])
        return [EndpointListed(it, causes.get(it.id, [])) for it in rows], after

    @use_case(READERS)
    async def find(
        self,
        caller: Caller,
        *,
        tenant: str | None,
        state: State | None,
        text: str,
        sort: EndpointSort,
        offset: int,
        limit: int,
        waiting_max: int,
    ) -> tuple[list[EndpointSummary], bool]:
        """Endpoints whose URL contains this text, and whether there are more."""
        rows, more = await self._views.find_endpoints(
            tenant=caller.scope(tenant),
            state=state,
            text=text,
            sort=sort,
            offset=offset,
            limit=limit,
        )
        ids, now = [it.id for it in rows], self._now()
        waiting = await self._views.waiting_of(ids, limit=waiting_max)
        minutes = await self._views.sparks(ids, since=now - HOUR_MS, until=now + 1)
        causes = await self._views.open_causes(ids)
        return [
            EndpointSummary(
                it, waiting.get(it.id, 0), minutes.get(it.id, []), causes.get(it.id, [])
            )
            for it in rows
        ], more

    @use_case(READERS)
    async def get(self, caller: Caller, endpoint_id: int) -> Endpoint:
        """The endpoint; raises NotFound."""
        return await self._visible(caller, endpoint_id)

    @use_case(ADMINS)
    async def refused(self, _caller: Caller) -> list[Endpoint]:
        """Endpoints whose deliveries wait because changed settings refuse their addresses."""
        return await self._views.refused_endpoints(since=self._now() - HOUR_MS, limit=REFUSED_SHOWN)

    @use_case(READERS)
    async def describe(
        self,
        caller: Caller,
        endpoint_id: int,
        *,
        transitions_max: int,
        waiting_max: int,
        deliveries_max: int = 0,
    ) -> EndpointDescribed:
        """The endpoint with its newest state changes and pending deliveries; raises NotFound."""
        endpoint = await self._visible(caller, endpoint_id)
        changes, _ = await self._views.transitions(
            endpoint_id, before_id=None, limit=transitions_max
        )
        deliveries: list[DeliveryRow] = []
        if deliveries_max:
            pending = DeliveryFilter(endpoint_id=endpoint_id, status=Status.PENDING)
            deliveries, _ = await self._views.deliveries(
                pending, before_id=None, limit=deliveries_max
            )
        return EndpointDescribed(
            endpoint=endpoint,
            rules=self._engine.rules_of(endpoint.tenant),
            transitions=changes,
            waiting=await self._views.waiting(endpoint_id, limit=waiting_max),
            deliveries=deliveries,
            causes=(await self._views.open_causes([endpoint_id])).get(endpoint_id, []),
        )

    @use_case(READERS)
    async def attempts(
        self,
        caller: Caller,
        endpoint_id: int,
        conditions: AttemptFilter,
        *,
        cursor: AttemptCursor | None,
        limit: int,
    ) -> tuple[list[EndpointAttempt], AttemptCursor | None]:
        """Its attempts, newest first, and the next cursor; raises NotFound."""
        endpoint = await self._visible(caller, endpoint_id)
        found, after = await self._views.endpoint_attempts(
            endpoint_id, conditions, cursor=cursor, limit=limit
        )
        rows = await self._views.deliveries_by_id([it.delivery_id for it in found])
        return [EndpointAttempt(it, endpoint, rows.get(it.delivery_id)) for it in found], after

    @use_case(READERS)
    async def several(self, caller: Caller, endpoint_ids: Sequence[int]) -> dict[int, Endpoint]:
        """Those of these endpoints that the caller may see, by their ids."""
        found = await self._views.endpoints_by_id(sorted(set(endpoint_ids)))
        return {id_: it for id_, it in found.items() if caller.sees(it.tenant)}

    @use_case(READERS)
    async def subscriptions(self, caller: Caller, endpoint_id: int) -> list[Subscription]:
        """The newest subscriptions to this endpoint."""
        found = await self._visible(caller, endpoint_id)
        return await self._subscriptions(found)

    @use_case(MANAGERS, changes=True)
    async def enable(self, caller: Caller, endpoint_id: int) -> Endpoint:
        """Enables the endpoint in any state and resets its counters; raises NotFound."""
        await self._visible(caller, endpoint_id)
        return await self._engine.enable(endpoint_id, by=caller.by)

    @use_case(MANAGERS, changes=True)
    async def freeze(self, caller: Caller, endpoint_id: int) -> Endpoint:
        """Freezes the endpoint: no attempt is made until it is enabled. Raises NotFound."""
        await self._visible(caller, endpoint_id)
        return await self._engine.freeze(endpoint_id, by=caller.by)

    @use_case(MANAGERS, changes=True)
    async def test(
        self, caller: Caller, endpoint_id: int, subscription_id: int | None = None
    ) -> Attempt:
        """Sends a test event to the endpoint, signed for one of its subscriptions (or the newest).

        Raises NotFound.
        """
        endpoint = await self._visible(caller, endpoint_id)
        if subscription_id is None:
            found = next(iter(await self._views.subscriptions_to(endpoint.id, limit=1)), None)
        else:
            found = await self._views.subscription(subscription_id)
        if found is None or found.endpoint_id != endpoint.id or found.deleted_at is not None:
            raise NotFound(say("This endpoint has no such subscription."))
        return await self._engine.test_send(found.id)

    async def _visible(self, caller: Caller, endpoint_id: int) -> Endpoint:
        endpoint = await self._views.endpoint(endpoint_id)
        if endpoint is None or not caller.sees(endpoint.tenant):
            raise NotFound(say("There is no such endpoint."))
        return endpoint

    async def _subscriptions(self, endpoint: Endpoint) -> list[Subscription]:
        return await self._views.subscriptions_to(endpoint.id, limit=SUBSCRIPTIONS_MAX)
