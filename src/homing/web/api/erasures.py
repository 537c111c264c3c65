"""Erasures: erase an event, events by a payload field, or a tenant; show the progress."""

from __future__ import annotations

from homing.app.erasures import ErasureDraft, Erasures
from homing.errors import BadRequest, Invalid, NotFound, StoreUnavailable, TooMany
from homing.model import show_id
from homing.web.operation import PAGE, TENANT, Call, Operation
from homing.web.query import show_cursor
from homing.web.response import Response, json_response
from homing.web.schemas import ErasureIn, ErasurePage, ErasureView
from homing.web.show import ERASURE, erasure_view


async def erase(call: Call) -> Response:
    given = call.content(ErasureIn)
    draft = ErasureDraft(given.event, given.field, given.value, given.everything, given.tenant)
    erasure = await call.app.erasures.erase(call.caller, draft)
    location = f"/v1/erasures/{show_id(ERASURE, erasure.id)}".encode()
    return json_response(erasure_view(erasure), status=202, headers=((b"location", location),))


async def get(call: Call) -> Response:
    erasure = await call.app.erasures.get(call.caller, call.number(ERASURE))
    return json_response(erasure_view(erasure))


async def list_erasures(call: Call) -> Response:
    query = call.query
    page, after = await call.app.erasures.page(
        call.caller, tenant=query.tenant(), before_id=query.cursor(), limit=query.limit()
    )
    return json_response(ErasurePage([erasure_view(it) for it in page], show_cursor(after)))


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/erasures",
        id="erase",
        use_case=Erasures.erase,
        summary="Erase an event, the events with a value at a payload field, or a whole tenant."
        " From the response on nothing of it is shown or sent.",
        handler=erase,
        status=202,
        request=ErasureIn,
        response=ErasureView,
        errors=(BadRequest, Invalid, NotFound, TooMany, StoreUnavailable),
    ),
    Operation(
        method="GET",
        path="/v1/erasures",
        id="listErasures",
        use_case=Erasures.page,
        summary="Erasures and their progress, newest first.",
        handler=list_erasures,
        response=ErasurePage,
        params=(TENANT, *PAGE),
        errors=(Invalid,),
    ),
    Operation(
        method="GET",
        path="/v1/erasures/{id}",
        id="getErasure",
        use_case=Erasures.get,
        summary="An erasure and its progress.",
        handler=get,
        response=ErasureView,
        errors=(NotFound,),
    ),
)
