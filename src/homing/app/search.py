"""Search: one text finds deliveries, events, subscriptions, endpoints and event types.

Ids, event ids, whole URLs and payload fields are searched first; each has an index. Only if none of
them is found, the text is searched as an event type and as a part of a URL, among a bounded number
of rows. A caller finds no object of another tenant.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from homing.app.access import READERS, Caller, use_case
from homing.engine.engine import Engine
from homing.languages.sentences import say
from homing.model import Endpoint, show_id
from homing.policy.search import SearchQuery, read_query
from homing.policy.url import host_of
from homing.ports import DeliveryFilter, DeliveryRow, ViewStore
from homing.ports.views import EventSummary

HITS_MAX = 20
TENANTS_MAX = 1_000  # whose subscriptions are searched for an event type
_TENANTS_NOTE = say("Only some of the tenants were searched: put tenant:NAME before the text.")
_PARTS_NOTE = say(
    "Only some of the endpoints were searched for a part of a URL: give the whole URL,"
    " or put tenant:NAME before the text."
)


class HitKind(StrEnum):
    """What was found."""

    DELIVERY = "delivery"
    EVENT = "event"
    SUBSCRIPTION = "subscription"
    ENDPOINT = "endpoint"
    TYPE = "type"


class Hit(Struct, frozen=True):
    """One thing that was found; a type has no tenant and no time."""

    kind: HitKind
    id: str
    tenant: str | None
    title: str  # an event type or a URL
    status: str | None = None  # of a delivery, or the state of an endpoint
    at: int | None = None  # when it was accepted or created


class Example(Struct, frozen=True):
    """A text that can be searched for now, and what it finds."""

    text: str
    finds: str


class Found(Struct, frozen=True):
    """The result of a search, with examples if nothing was found."""

    hits: list[Hit]
    more: bool = False  # there are more than ``hits``
    notes: tuple[str, ...] = ()  # why something may be missing
    examples: tuple[Example, ...] = ()


class Search:
    """Finds the objects of all tenants."""

    def __init__(self, engine: Engine, views: ViewStore) -> None:
        self._engine, self._views = engine, views
        self._fields = engine.payload_fields

    @use_case(READERS)
    async def find(self, caller: Caller, text: str, *, tenant: str | None = None) -> Found:
        """The objects that this text names; raises Invalid.

        ``tenant`` limits the search, as does ``tenant:NAME`` at the beginning of the text.
        """
        query = read_query(text, fields=self._fields.paths)
        scope = caller.scope(tenant if query.tenant is None else query.tenant)
        if query.tenant is not None and tenant is not None and tenant != query.tenant:
            return Found([])
        notes: list[str] = []
        hits = await self._exact(query, scope, notes) or await self._like(query, scope, notes)
        if hits:
            return Found(hits[:HITS_MAX], more=len(hits) > HITS_MAX, notes=tuple(notes))
        return Found([], notes=tuple(notes), examples=await self._examples(scope))

    @property
    def fields(self) -> tuple[str, ...]:
        """The payload fields that can be searched."""
        return self._fields.paths

    @use_case(READERS)
    async def examples(self, caller: Caller) -> tuple[Example, ...]:
        """Texts that find something of the caller's tenants."""
        return await self._examples(caller.scope(None))

    async def _exact(self, query: SearchQuery, scope: str | None, notes: list[str]) -> list[Hit]:
        if query.field is not None:
            hashes = self._fields.wanted(*query.field)
            found = await self._views.events_by_field(hashes, tenant=scope, limit=HITS_MAX + 1)
            return [_event_hit(one) for one in found]
        hits = [] if query.id is None else await self._by_id(*query.id, scope)
        if query.key is not None:
            found, complete = await self._views.events_by_key(
                query.key, tenant=scope, limit=HITS_MAX + 1
            )
            hits += [_event_hit(one) for one in found]
            if not complete:
                notes.append(_TENANTS_NOTE)
        if query.url is not None:
            endpoints, complete = await self._views.endpoints_by_url(
                query.url, tenant=scope, limit=HITS_MAX + 1
            )
            hits += [_endpoint_hit(one) for one in endpoints]
            if not complete and _TENANTS_NOTE not in notes:
                notes.append(_TENANTS_NOTE)
        return hits

    async def _like(self, query: SearchQuery, scope: str | None, notes: list[str]) -> list[Hit]:
        """Event types, and endpoints by a part of their URL."""
        hits: list[Hit] = []
        is_named: bool | None = False
        if query.type is not None:
            is_named = self._engine.names_type(query.type, tenant=scope, tenants_max=TENANTS_MAX)
            if is_named:
                hits.append(_type_hit(query.type))
        if query.part is not None:
            endpoints, complete = await self._views.endpoints_by_part(
                query.part, tenant=scope, limit=HITS_MAX + 1
            )
            hits += [_endpoint_hit(one) for one in endpoints]
            if not complete:
                notes.append(_PARTS_NOTE)
        if not hits and query.type is not None and await self._was_published(query.type, scope):
            hits.append(_type_hit(query.type))
        if not hits and is_named is None and _TENANTS_NOTE not in notes:
            notes.append(_TENANTS_NOTE)
        return hits

    async def _by_id(self, prefix: str, number: int, scope: str | None) -> list[Hit]:
        match prefix:
            case "dlv":
                row = await self._views.delivery(number)
                if row is not None and scope in {None, row.delivery.tenant}:
                    return [_delivery_hit(row)]
            case "sub":
                sub = await self._views.subscription(number)
                if sub is not None and sub.deleted_at is None and scope in {None, sub.tenant}:
                    shown = show_id("sub", sub.id)
                    kind = HitKind.SUBSCRIPTION
                    return [Hit(kind, shown, sub.tenant, sub.url, at=sub.created_at)]
            case _:
                endpoint = await self._views.endpoint(number)
                if endpoint is not None and scope in {None, endpoint.tenant}:
                    return [_endpoint_hit(endpoint)]
        return []

    async def _was_published(self, event_type: str, scope: str | None) -> bool:
        """Whether a recent event has this type; it need not match any subscription."""
        found, _ = await self._views.events(
            tenant=scope, event_type=event_type, before_id=None, limit=1
        )
        return bool(found)

    async def _examples(self, scope: str | None) -> tuple[Example, ...]:
        views = self._views
        found: list[Example] = []
        deliveries, _ = await views.deliveries(
            DeliveryFilter(tenant=scope), before_id=None, limit=1
        )
        events, _ = await views.events(tenant=scope, event_type=None, before_id=None, limit=1)
        endpoints, _ = await views.endpoints(tenant=scope, state=None, before_id=None, limit=1)
        for row in deliveries:
            shown = show_id("dlv", row.delivery.id)
            finds = say("a delivery by its id, or by the webhook-id of a request")
            found.append(Example(shown, finds))
        for one in events:
            finds = say("an event by the id that its publisher gave it")
            found.append(Example(one.event.key, finds))
            found.append(Example(one.event.type, say("the events of a type")))
            for path, value in self._fields.values(one.event.data):
                finds = say("events by a value in their data")
                found.append(Example(f"{path}:{value}", finds))
        for endpoint in endpoints:
            finds = say("endpoints by a part of their URL")
            found.append(Example(host_of(endpoint.url), finds))
            found.append(Example(show_id("ep", endpoint.id), say("an endpoint by its id")))
        return tuple(found)


def _delivery_hit(row: DeliveryRow) -> Hit:
    it = row.delivery
    shown, status = show_id("dlv", it.id), row.status.value
    title = say("{type} to {url}", type=row.event_type, url=row.url)
    return Hit(HitKind.DELIVERY, shown, it.tenant, title, status, it.accepted_at)


def _event_hit(it: EventSummary) -> Hit:
    return Hit(HitKind.EVENT, it.key, it.tenant, it.type, at=it.accepted_at)


def _endpoint_hit(it: Endpoint) -> Hit:
    state = it.health.state.value
    return Hit(HitKind.ENDPOINT, show_id("ep", it.id), it.tenant, it.url, state, it.created_at)


def _type_hit(event_type: str) -> Hit:
    return Hit(HitKind.TYPE, event_type, None, event_type)
