"""Events: list them and show one. Publishing is in ``publish``."""

from __future__ import annotations

from homing.app.events import Events
from homing.app.publishing import Publishing
from homing.errors import (
    BadRequest,
    EventConflict,
    Invalid,
    NotFound,
    StoreUnavailable,
    TooLarge,
)
from homing.model import show_id
from homing.web.api.cloudevents import BATCHED, STRUCTURED
from homing.web.api.publish import NDJSON
from homing.web.operation import PAGE, TENANT, TENANT_ONE, Call, Operation, Param
from homing.web.query import show_cursor
from homing.web.response import Response, json_response
from homing.web.schemas import EventDetail, EventIn, EventPage, Published, UnmatchedView
from homing.web.show import SUBSCRIPTION, event_detail, event_view


async def list_events(call: Call) -> Response:
    query = call.query
    rows, after = await call.app.events.page(
        call.caller,
        tenant=query.tenant(),
        event_type=query.event_type(),
        before_id=query.cursor(),
        limit=query.limit(),
    )
    return json_response(EventPage([event_view(row) for row in rows], show_cursor(after)))


async def get_event(call: Call) -> Response:
    found = await call.app.events.get(call.caller, call.key(), tenant=call.query.tenant())
    unmatched = [
        UnmatchedView(show_id(SUBSCRIPTION, one.id), one.url, str(why))
        for one, why in found.unmatched
    ]
    detail = event_detail(
        found.event,
        found.deliveries,
        unmatched,
        more=found.more,
        unmatched_more=found.unmatched_more,
    )
    return json_response(detail)


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/events",
        id="publishEvents",
        use_case=Publishing.publish,
        summary="Publish one event, an array of events, or one per line (NDJSON); all or none. "
        "Also CloudEvents 1.0, structured, batched, or in binary mode (`ce-*` headers). "
        "An event whose id was published before has `duplicate: true`: nothing new is sent.",
        handler=None,
        status=202,
        request=EventIn,
        request_types=("application/json", NDJSON, STRUCTURED, BATCHED),
        response=Published,
        errors=(BadRequest, EventConflict, TooLarge, Invalid, StoreUnavailable),
    ),
    Operation(
        method="GET",
        path="/v1/events",
        id="listEvents",
        use_case=Events.page,
        summary="Events, newest first, without their data.",
        handler=list_events,
        response=EventPage,
        params=(TENANT, Param("type", "Only events of this type."), *PAGE),
        errors=(Invalid,),
    ),
    Operation(
        method="GET",
        path="/v1/events/{id}",
        id="getEvent",
        use_case=Events.get,
        summary="An event with its data and its deliveries.",
        handler=get_event,
        response=EventDetail,
        params=(TENANT_ONE,),
        errors=(NotFound, Invalid),
    ),
)
