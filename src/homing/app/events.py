"""Events: search, show the deliveries of one, explain missing ones, try filters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from homing.app.access import MANAGERS, READERS, Caller, use_case
from homing.app.slices import Slices
from homing.errors import FieldProblem, Invalid, NotFound
from homing.languages.sentences import say
from homing.model import Connector, Event, Subscription
from homing.policy.admission import TYPE_RULE, is_key, is_type
from homing.policy.filters import read_affordable
from homing.policy.filters_run import Verdict
from homing.policy.nesting import LEVELS_RULE, is_deep
from homing.policy.wants import why_unmatched
from homing.ports import DeliveryRow, EventRow, ViewStore

DELIVERIES_MAX = 200  # of one event that are shown
SUBSCRIPTIONS_MAX = 200  # for which a missing delivery is explained
_ITS_OWN_ENDPOINT = say(
    "The event is about the endpoint of this subscription, so it is not sent to that endpoint."
)


class EventFound(Struct, frozen=True):
    """An event, its deliveries, and why it is not sent to other subscriptions."""

    event: Event
    deliveries: list[DeliveryRow]  # the first DELIVERIES_MAX
    more: bool
    unmatched: list[tuple[Subscription, str]]
    unmatched_more: bool


class Events:
    """The events of all tenants."""

    def __init__(self, views: ViewStore, now: Callable[[], int]) -> None:
        self._views, self._now = views, now
        self._slices = Slices()

    @use_case(READERS)
    async def page(
        self,
        caller: Caller,
        *,
        tenant: str | None,
        event_type: str | None,
        before_id: int | None,
        limit: int,
    ) -> tuple[list[EventRow], int | None]:
        """A page, newest first, and the next ``before_id``."""
        return await self._views.events(
            tenant=caller.scope(tenant), event_type=event_type, before_id=before_id, limit=limit
        )

    @use_case(READERS)
    async def data(self, caller: Caller, key: str, *, tenant: str) -> bytes | None:
        """The data of an event; None if it is past retention."""
        tenant = caller.scope_one(tenant)
        row = await self._views.event(key, tenant=tenant) if is_key(key) else None
        return None if row is None else row.event.data

    @use_case(READERS)
    async def get(self, caller: Caller, key: str, *, tenant: str | None) -> EventFound:
        """The event with its deliveries; raises NotFound."""
        tenant = caller.scope_one(tenant)
        row = await self._views.event(key, tenant=tenant) if is_key(key) else None
        if row is None:
            raise NotFound(say("The tenant has no such event, or it is past retention."))
        rows = await self._views.event_deliveries(row.event.id, limit=DELIVERIES_MAX + 1)
        others, others_more = await self._unmatched(row.event, rows)
        more = len(rows) > DELIVERIES_MAX
        return EventFound(row.event, rows[:DELIVERIES_MAX], more, others, others_more)

    async def _unmatched(
        self, event: Event, rows: list[DeliveryRow]
    ) -> tuple[list[tuple[Subscription, str]], bool]:
        """Why the event is not sent to other subscriptions of its tenant; whether there are more.

        ``rows`` are its first deliveries; more than DELIVERIES_MAX means that some are missing.
        """
        found, after = await self._views.subscriptions(
            tenant=event.tenant, before_id=None, limit=SUBSCRIPTIONS_MAX
        )
        reached = {row.delivery.subscription_id for row in rows}
        others = [one for one in found if one.id not in reached]
        if not others:
            return [], after is not None
        now, reading = self._now(), await self._slices.read(event.data)
        reasons: list[tuple[Subscription, str]] = []
        for one in others:
            ask = partial(why_unmatched, one, event, reading, now=now)
            reason = await self._slices.ask(reading, ask)
            if reason is None and (len(rows) > DELIVERIES_MAX or not one.url):
                continue  # Its delivery may be one of those that are missing; or the event is read.
            reasons.append((one, reason or _ITS_OWN_ENDPOINT))
        return reasons, after is not None

    # --- filters -----------------------------------------------------------------------------

    @use_case(READERS)
    async def try_filters(
        self,
        caller: Caller,
        filters: str,
        connector: Connector | str,
        *,
        tenant: str | None,
        data: bytes | None = None,
        key: str | None = None,
        event_type: str | None = None,
    ) -> tuple[Verdict, Event | None]:
        """Whether the filters match the data, the event, or the newest event (of this type).

        Raises Invalid or NotFound.
        """
        given = {"data": data, "event": key, "type": event_type}
        kinds = [name for name, value in given.items() if value is not None]
        parsed = read_affordable(filters, connector)
        if len(kinds) > 1:
            reason = say("must not be given together with {field}", field=kinds[0])
            raise Invalid(problems=tuple(FieldProblem(name, reason) for name in kinds[1:]))
        if data is not None:
            if is_deep(data):
                raise Invalid(problems=(FieldProblem("data", LEVELS_RULE),))
            return await self._slices.run(parsed, data), None
        event = await self._event_to_try(caller.scope_one(tenant), key, event_type)
        return await self._slices.run(parsed, event.data), event

    async def _event_to_try(self, tenant: str, key: str | None, event_type: str | None) -> Event:
        if key is not None:
            row = await self._views.event(key, tenant=tenant) if is_key(key) else None
            if row is None:
                raise NotFound(say("Tenant {tenant} has no such event.", tenant=tenant))
            return row.event
        if event_type is not None and not is_type(event_type):
            raise Invalid(problems=(FieldProblem("type", TYPE_RULE),))
        rows, _ = await self._views.events(
            tenant=tenant, event_type=event_type, before_id=None, limit=1
        )
        if not rows:
            raise NotFound(
                say("Tenant {tenant} has no such event recently: give data instead.", tenant=tenant)
            )
        return rows[0].event

    @use_case(MANAGERS)
    async def try_filters_on_latest(
        self,
        caller: Caller,
        filters: str,
        connector: Connector | str,
        *,
        tenant: str | None,
        limit: int,
    ) -> list[tuple[Event, Verdict]]:
        """The latest events, and whether the filters match each; raises Invalid."""
        parsed = read_affordable(filters, connector)
        rows, _ = await self._views.events(
            tenant=caller.scope_one(tenant), event_type=None, before_id=None, limit=limit
        )
        return [(row.event, await self._slices.run(parsed, row.event.data)) for row in rows]
