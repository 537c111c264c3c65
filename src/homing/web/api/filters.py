"""Tries filters on given data or on a stored event."""

from __future__ import annotations

from msgspec import UnsetType

from homing.app.events import Events
from homing.errors import BadRequest, Invalid, NotFound
from homing.policy.exact import encode
from homing.policy.filters_run import Step
from homing.web.operation import TENANT_ONE, Call, Operation
from homing.web.response import Response, json_response
from homing.web.schemas import ConditionView, FilterTried, FilterTryIn


async def try_filters(call: Call) -> Response:
    given = call.content(FilterTryIn)
    verdict, event = await call.app.events.try_filters(
        call.caller,
        encode(given.filters).decode(),
        given.connector,
        tenant=call.query.tenant(),
        data=None if isinstance(given.data, UnsetType) else bytes(given.data),
        key=given.event,
        event_type=given.type,
    )
    tried = FilterTried(
        matches=verdict.matches,
        sentence=str(verdict.sentence),
        conditions=[_condition(step) for step in verdict.steps],
        event=None if event is None else event.key,
    )
    return json_response(tried)


def _condition(step: Step) -> ConditionView:
    one = step.condition
    return ConditionView(
        one.at, one.field, one.op, one.side, one.value, step.holds, step.decided, str(step.sentence)
    )


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/filters/try",
        id="tryFilters",
        use_case=Events.try_filters,
        summary="Try filters on given data, an event or the newest event, and explain the result.",
        handler=try_filters,
        request=FilterTryIn,
        response=FilterTried,
        params=(TENANT_ONE,),
        errors=(BadRequest, NotFound, Invalid),
    ),
)
