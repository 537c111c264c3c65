"""The latest attempts of this process, and the attempts of one endpoint."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from homing.app.deliveries import Deliveries
from homing.app.endpoints import Endpoints
from homing.errors import Invalid, NotFound
from homing.model import Attempt, Decided, Failure, Lane, Outcome, show_id
from homing.ports import DeliveryRow
from homing.ports.views import AttemptCursor, AttemptFilter
from homing.web.operation import FAILURE, LIMIT, PAGE, TENANT, Call, Operation, Param, choice
from homing.web.query import show_cursor, show_place
from homing.web.response import Response, json_response
from homing.web.schemas import Cursor, Time
from homing.web.show import DELIVERY, ENDPOINT, SUBSCRIPTION, time_or_none, time_text


class AttemptLine(Struct, frozen=True, kw_only=True):
    """An attempt, as the list of latest attempts shows it."""

    delivery: str
    number: int
    lane: Lane
    outcome: Outcome
    code: int | None
    failure: Failure | None
    detail: str
    started_at: Time
    finished_at: Time
    total_us: int
    tenant: str
    event: str
    type: str
    endpoint: str
    subscription: str
    url: str
    decided: Decided
    retry: int | None
    due_at: Time | None


class AttemptPage(Struct, frozen=True):
    """Oldest first. ``next_cursor`` is never null: use it to get later attempts."""

    items: list[AttemptLine]
    next_cursor: str
    missed: Annotated[int, Meta(description="Attempts after the cursor that are no longer kept.")]


class EndpointAttemptPage(Struct, frozen=True):
    """Newest first."""

    items: list[AttemptLine]
    next_cursor: Cursor


async def list_attempts(call: Call) -> Response:
    query = call.query
    recent = await call.app.deliveries.recent_attempts(
        call.caller,
        tenant=query.tenant(),
        endpoint_id=query.id("endpoint", ENDPOINT),
        subscription_id=query.id("subscription", SUBSCRIPTION),
        failure=query.failure(),
        code=query.code(),
        until=query.since("until", now=call.now),
        after=query.cursor(),
        limit=query.limit(),
    )
    lines = [_line(attempt, row, row.delivery.tenant, row.url) for attempt, row in recent.attempts]
    return json_response(AttemptPage(lines, show_cursor(recent.last) or "", recent.missed))


async def list_endpoint_attempts(call: Call) -> Response:
    query, now = call.query, call.now
    conditions = AttemptFilter(
        outcome=query.choice("outcome", Outcome),
        failure=query.failure(),
        code=query.code(),
        since=query.since("since", now=now),
        until=query.since("until", now=now),
    )
    found, after = await call.app.endpoints.attempts(
        call.caller,
        call.number(ENDPOINT),
        conditions,
        cursor=query.place(AttemptCursor),
        limit=query.limit(),
    )
    lines = [_line(it.attempt, it.row, it.endpoint.tenant, it.endpoint.url) for it in found]
    return json_response(EndpointAttemptPage(lines, show_place(after)))


def _line(attempt: Attempt, row: DeliveryRow | None, tenant: str, url: str) -> AttemptLine:
    return AttemptLine(
        delivery=show_id(DELIVERY, attempt.delivery_id),
        number=attempt.number,
        lane=attempt.lane,
        outcome=attempt.outcome,
        code=attempt.code,
        failure=attempt.failure,
        detail=attempt.detail,
        started_at=time_text(attempt.started_at),
        finished_at=time_text(attempt.finished_at),
        total_us=attempt.phases.total_us,
        tenant=tenant,
        event="" if row is None else row.event_key,
        type="" if row is None else row.event_type,
        endpoint=show_id(ENDPOINT, attempt.endpoint_id),
        subscription=show_id(SUBSCRIPTION, attempt.subscription_id),
        url=url,
        decided=attempt.decided,
        retry=attempt.retry or None,
        due_at=time_or_none(attempt.due_at),
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/attempts",
        id="listAttempts",
        use_case=Deliveries.recent_attempts,
        summary=(
            "The latest attempts of this process, oldest first; use next_cursor to get "
            "later attempts."
        ),
        handler=list_attempts,
        response=AttemptPage,
        params=(
            TENANT,
            Param("endpoint", "Only attempts to this endpoint."),
            Param("subscription", "Only attempts of this subscription."),
            *FAILURE,
            Param("until", "Finished before: RFC 3339, or a duration back from now like 2h."),
            Param("cursor", "The next_cursor of an earlier response; without one, the latest."),
            LIMIT,
        ),
        errors=(Invalid,),
    ),
    Operation(
        method="GET",
        path="/v1/endpoints/{id}/attempts",
        id="listEndpointAttempts",
        use_case=Endpoints.attempts,
        summary="The attempts of an endpoint, newest first.",
        handler=list_endpoint_attempts,
        response=EndpointAttemptPage,
        params=(
            choice("outcome", "Only attempts with this outcome.", Outcome),
            *FAILURE,
            Param("since", "Started since: RFC 3339, or a duration back from now like 2h."),
            Param("until", "Started before; same format as since."),
            *PAGE,
        ),
        errors=(Invalid, NotFound),
    ),
)
