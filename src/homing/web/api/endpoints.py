"""Endpoints: their health, and what a person may do about it."""

from __future__ import annotations

from msgspec.structs import asdict

from homing.errors import Invalid, NotFound, StoreUnavailable
from homing.model import Endpoint, State
from homing.web.answer import Answer, json_answer
from homing.web.auth import MANAGERS, READERS
from homing.web.operation import PAGE, TENANT, Call, Operation, choice
from homing.web.query import show_cursor
from homing.web.schemas import EndpointDetail, EndpointPage
from homing.web.show import ENDPOINT, endpoint_view, transition_view

WAITING_MOST = 10_000
TRANSITIONS_SHOWN = 50


async def list_endpoints(call: Call) -> Answer:
    query, engine, now = call.query, call.parts.engine, call.now
    rows, after = await call.parts.views.endpoints(
        tenant=query.tenant(),
        state=query.choice("state", State),
        before_id=query.cursor(),
        limit=query.limit(),
    )
    items = [endpoint_view(row, engine.rules_of(row.tenant), now=now) for row in rows]
    return json_answer(EndpointPage(items, show_cursor(after)))


async def get(call: Call) -> Answer:
    return await _detail(call, await _there(call))


async def enable(call: Call) -> Answer:
    number = (await _there(call)).id
    return await _detail(call, await call.parts.engine.enable(number, by=call.who.name))


async def freeze(call: Call) -> Answer:
    number = (await _there(call)).id
    return await _detail(call, await call.parts.engine.freeze(number, by=call.who.name))


async def _there(call: Call) -> Endpoint:
    endpoint = await call.parts.views.endpoint(call.number(ENDPOINT))
    if endpoint is None or not call.who.sees(endpoint.tenant):
        raise NotFound("There is no such endpoint.")
    return endpoint


async def _detail(call: Call, endpoint: Endpoint) -> Answer:
    views, engine = call.parts.views, call.parts.engine
    waiting = await views.waiting(endpoint.id, limit=WAITING_MOST + 1)
    changes, _ = await views.transitions(endpoint.id, before_id=None, limit=TRANSITIONS_SHOWN)
    view = endpoint_view(endpoint, engine.rules_of(endpoint.tenant), now=call.now)
    fields = asdict(view)
    return json_answer(
        EndpointDetail(
            **fields,
            waiting=min(waiting, WAITING_MOST),
            waiting_more=waiting > WAITING_MOST,
            transitions=[transition_view(change) for change in changes],
        )
    )


_ONE = "/v1/endpoints/{id}"

OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/endpoints",
        id="listEndpoints",
        roles=READERS,
        summary="Endpoints with their health, newest first.",
        handler=list_endpoints,
        answer=EndpointPage,
        params=(TENANT, choice("state", "Only in this state.", State), *PAGE),
        errors=(Invalid,),
    ),
    Operation(
        method="GET",
        path=_ONE,
        id="getEndpoint",
        roles=READERS,
        summary="One endpoint: since when and why it is in its state, and what waits for it.",
        handler=get,
        answer=EndpointDetail,
        errors=(NotFound,),
    ),
    Operation(
        method="POST",
        path=_ONE + "/enable",
        id="enableEndpoint",
        roles=MANAGERS,
        summary="Enable it from any state; its counters start again, what is overdue goes.",
        handler=enable,
        answer=EndpointDetail,
        errors=(NotFound, StoreUnavailable),
    ),
    Operation(
        method="POST",
        path=_ONE + "/freeze",
        id="freezeEndpoint",
        roles=MANAGERS,
        summary="Freeze it: nothing is attempted until it is enabled.",
        handler=freeze,
        answer=EndpointDetail,
        errors=(NotFound, StoreUnavailable),
    ),
)
