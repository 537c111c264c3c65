"""Trying filters: on data that is given, or on an event that is kept."""

from __future__ import annotations

from msgspec import UnsetType

from homing.errors import BadRequest, FieldProblem, Invalid, NotFound
from homing.model import Event
from homing.policy.admission import TYPE_RULE, is_key, is_type
from homing.policy.exact import encode
from homing.policy.filters import read_affordable
from homing.policy.filters_run import Step
from homing.web.answer import Answer, json_answer
from homing.web.auth import READERS
from homing.web.operation import TENANT_ONE, Call, Operation
from homing.web.schemas_filters import ConditionView, FilterTried, FilterTryIn


async def try_filters(call: Call) -> Answer:
    given = call.content(FilterTryIn)
    filters = read_affordable(encode(given.filters).decode(), given.connector)
    event = await _event(call, given)
    data = bytes(given.data) if not isinstance(given.data, UnsetType) else b"null"
    verdict = await call.parts.slices.run(filters, data if event is None else event.data)
    tried = FilterTried(
        matches=verdict.matches,
        sentence=verdict.sentence,
        conditions=[_condition(step) for step in verdict.steps],
        event=None if event is None else event.key,
    )
    return json_answer(tried)


def _condition(step: Step) -> ConditionView:
    one = step.condition
    return ConditionView(
        one.at, one.field, one.op, one.side, one.value, step.holds, step.decided, step.sentence
    )


async def _event(call: Call, given: FilterTryIn) -> Event | None:
    """The event to try on; None where data is given. Raises Invalid or NotFound."""
    kinds = [
        name
        for name, there in (
            ("data", not isinstance(given.data, UnsetType)),
            ("event", given.event is not None),
            ("type", given.type is not None),
        )
        if there
    ]
    if len(kinds) > 1:
        reason = f"must not be given beside {kinds[0]}"
        raise Invalid(problems=tuple(FieldProblem(name, reason) for name in kinds[1:]))
    if kinds == ["data"]:
        return None
    tenant = call.query.tenant_or_default()
    if given.event is not None:
        there = is_key(given.event)
        row = await call.parts.views.event(given.event, tenant=tenant) if there else None
        if row is None:
            raise NotFound(f"Tenant {tenant} has no such event.")
        return row.event
    if given.type is not None and not is_type(given.type):
        raise Invalid(problems=(FieldProblem("type", TYPE_RULE),))
    rows, _ = await call.parts.views.events(
        tenant=tenant, event_type=given.type, before_id=None, limit=1
    )
    if not rows:
        raise NotFound(f"Tenant {tenant} has no such event among its latest: give data.")
    return rows[0].event


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/filters/try",
        id="tryFilters",
        roles=READERS,
        summary="Try filters on given data, an event, or the newest; says what decided.",
        handler=try_filters,
        request=FilterTryIn,
        answer=FilterTried,
        params=(TENANT_ONE,),
        errors=(BadRequest, NotFound, Invalid),
    ),
)
