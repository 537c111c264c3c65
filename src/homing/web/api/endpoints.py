"""Endpoints: list them, show their health, enable and freeze."""

from __future__ import annotations

from msgspec.structs import asdict

from homing.app.endpoints import Endpoints
from homing.errors import Invalid, NotFound, StoreUnavailable
from homing.model import State
from homing.web.operation import PAGE, TENANT, Call, Operation, choice
from homing.web.query import show_cursor
from homing.web.response import Response, json_response
from homing.web.schemas import EndpointDetail, EndpointPage
from homing.web.show import ENDPOINT, endpoint_view, transition_view

WAITING_MAX = 10_000
TRANSITIONS_MAX = 50


async def list_endpoints(call: Call) -> Response:
    query, endpoints, now = call.query, call.app.endpoints, call.now
    rows, after = await endpoints.page(
        call.caller,
        tenant=query.tenant(),
        state=query.choice("state", State),
        before_id=query.cursor(),
        limit=query.limit(),
    )
    items = [
        endpoint_view(it.endpoint, endpoints.rules_of(it.endpoint.tenant), it.causes, now=now)
        for it in rows
    ]
    return json_response(EndpointPage(items, show_cursor(after)))


async def get(call: Call) -> Response:
    return await _detail(call, call.number(ENDPOINT))


async def enable(call: Call) -> Response:
    await call.app.endpoints.enable(call.caller, call.number(ENDPOINT))
    return await _detail(call, call.number(ENDPOINT))


async def freeze(call: Call) -> Response:
    await call.app.endpoints.freeze(call.caller, call.number(ENDPOINT))
    return await _detail(call, call.number(ENDPOINT))


async def _detail(call: Call, number: int) -> Response:
    found = await call.app.endpoints.describe(
        call.caller, number, transitions_max=TRANSITIONS_MAX, waiting_max=WAITING_MAX + 1
    )
    view = endpoint_view(found.endpoint, found.rules, found.causes, now=call.now)
    return json_response(
        EndpointDetail(
            **asdict(view),
            waiting=min(found.waiting, WAITING_MAX),
            waiting_more=found.waiting > WAITING_MAX,
            transitions=[transition_view(change) for change in found.transitions],
        )
    )


_ONE = "/v1/endpoints/{id}"

OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/endpoints",
        id="listEndpoints",
        use_case=Endpoints.page,
        summary="Endpoints with their health, newest first.",
        handler=list_endpoints,
        response=EndpointPage,
        params=(TENANT, choice("state", "Only endpoints in this state.", State), *PAGE),
        errors=(Invalid,),
    ),
    Operation(
        method="GET",
        path=_ONE,
        id="getEndpoint",
        use_case=Endpoints.describe,
        summary="An endpoint: its state with the reason, and its number of waiting deliveries.",
        handler=get,
        response=EndpointDetail,
        errors=(NotFound,),
    ),
    Operation(
        method="POST",
        path=_ONE + "/enable",
        id="enableEndpoint",
        use_case=Endpoints.enable,
        summary="Enable an endpoint in any state: reset its counters and send overdue deliveries.",
        handler=enable,
        response=EndpointDetail,
        errors=(NotFound, StoreUnavailable),
    ),
    Operation(
        method="POST",
        path=_ONE + "/freeze",
        id="freezeEndpoint",
        use_case=Endpoints.freeze,
        summary="Freeze an endpoint: no attempt is made until it is enabled.",
        handler=freeze,
        response=EndpointDetail,
        errors=(NotFound, StoreUnavailable),
    ),
)
