"""Events: publish (in ``publish``), list, look at one."""

from __future__ import annotations

from homing.errors import (
    BadRequest,
    EventConflict,
    Invalid,
    NotFound,
    StoreUnavailable,
    TooLarge,
)
from homing.model import show_id
from homing.policy.admission import is_key
from homing.web.answer import Answer, json_answer
from homing.web.api.publish import NDJSON
from homing.web.auth import PUBLISHERS, READERS
from homing.web.describe import unmatched
from homing.web.operation import PAGE, TENANT, TENANT_ONE, Call, Operation, Param
from homing.web.query import LIMIT_MOST, show_cursor
from homing.web.schemas import EventDetail, EventIn, EventPage, Published
from homing.web.schemas_filters import UnmatchedView
from homing.web.show import SUBSCRIPTION, event_detail, event_view


async def list_events(call: Call) -> Answer:
    query = call.query
    rows, after = await call.parts.views.events(
        tenant=query.tenant(),
        event_type=query.event_type(),
        before_id=query.cursor(),
        limit=query.limit(),
    )
    return json_answer(EventPage([event_view(row) for row in rows], show_cursor(after)))


async def get_event(call: Call) -> Answer:
    tenant, key = call.query.tenant_or_default(), call.key()
    row = await call.parts.views.event(key, tenant=tenant) if is_key(key) else None
    if row is None:
        raise NotFound("The tenant has no such event.")
    rows = await call.parts.views.event_deliveries(row.event.id, limit=LIMIT_MOST + 1)
    others, others_more = await unmatched(call.parts, row.event, rows, now=call.now)
    detail = event_detail(
        row.event,
        rows[:LIMIT_MOST],
        [UnmatchedView(show_id(SUBSCRIPTION, one.id), one.url, why) for one, why in others],
        more=len(rows) > LIMIT_MOST,
        unmatched_more=others_more,
    )
    return json_answer(detail)


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/events",
        id="publishEvents",
        roles=PUBLISHERS,
        summary="Publish one event, an array of events, or one per line (NDJSON); all or none. "
        "An event whose id was published before has `duplicate: true`: nothing new is sent.",
        handler=None,
        status=202,
        request=EventIn,
        request_types=("application/json", NDJSON),
        answer=Published,
        errors=(BadRequest, EventConflict, TooLarge, Invalid, StoreUnavailable),
    ),
    Operation(
        method="GET",
        path="/v1/events",
        id="listEvents",
        roles=READERS,
        summary="Events, newest first, without their data.",
        handler=list_events,
        answer=EventPage,
        params=(TENANT, Param("type", "Only of this type."), *PAGE),
        errors=(Invalid,),
    ),
    Operation(
        method="GET",
        path="/v1/events/{id}",
        id="getEvent",
        roles=READERS,
        summary="An event with its data and its deliveries.",
        handler=get_event,
        answer=EventDetail,
        params=(TENANT_ONE,),
        errors=(NotFound, Invalid),
    ),
)
