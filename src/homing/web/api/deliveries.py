"""Deliveries: list them, explain one, replay and cancel."""

from __future__ import annotations

from msgspec.structs import asdict

from homing.app.deliveries import Deliveries
from homing.errors import (
    AlreadyFinished,
    Conflict,
    Gone,
    Invalid,
    NotFound,
    StillPending,
    StoreUnavailable,
    SubscriptionGone,
)
from homing.model import Reason, Status, show_id
from homing.policy.moments import TIME_MAX
from homing.ports import DeliveryFilter
from homing.web.operation import FAILURE, PAGE, TENANT, Call, Operation, Param, choice
from homing.web.query import show_cursor
from homing.web.response import Headers, Response, json_response
from homing.web.schemas import DeliveryDetail, DeliveryPage, PolicyView, RetryView
from homing.web.show import (
    DELIVERY,
    ENDPOINT,
    SUBSCRIPTION,
    attempt_view,
    delivery_view,
    sentence_parts,
    time_text,
)


async def list_deliveries(call: Call) -> Response:
    query, now = call.query, call.now
    within = query.duration_ms("expiring_within")
    conditions = DeliveryFilter(
        tenant=query.tenant(),
        status=query.choice("status", Status),
        endpoint_id=query.id("endpoint", ENDPOINT),
        subscription_id=query.id("subscription", SUBSCRIPTION),
        reason=query.choice("reason", Reason),
        type=query.event_type(),
        url=query.url_part(),
        failure=query.failure(),
        code=query.code(),
        since=query.since("since", now=now),
        until=query.since("until", now=now),
        finished_since=query.since("finished_since", now=now),
        expires_before=None if within is None else min(now + within, TIME_MAX),
    )
    rows, after = await call.app.deliveries.page(
        call.caller,
        conditions,
        event=query.event_key(),
        before_id=query.cursor(),
        limit=query.limit(),
    )
    return json_response(DeliveryPage([delivery_view(row) for row in rows], show_cursor(after)))


async def get(call: Call) -> Response:
    return await _detail(call, call.number(DELIVERY))


async def replay(call: Call) -> Response:
    new = await call.app.deliveries.replay(call.caller, call.number(DELIVERY))
    location = f"/v1/deliveries/{show_id(DELIVERY, new.id)}".encode()
    return await _detail(call, new.id, status=201, headers=((b"location", location),))


async def try_now(call: Call) -> Response:
    number = call.number(DELIVERY)
    await call.app.deliveries.try_now(call.caller, number)
    return await _detail(call, number)


async def cancel(call: Call) -> Response:
    number = call.number(DELIVERY)
    await call.app.deliveries.cancel(call.caller, number)
    return await _detail(call, number)


async def _detail(call: Call, number: int, *, status: int = 200, headers: Headers = ()) -> Response:
    described = await call.app.deliveries.get(call.caller, number)
    schedule = described.schedule
    detail = DeliveryDetail(
        **asdict(delivery_view(described.row)),
        explanation=str(described.explanation),
        explanation_parts=sentence_parts(described.explanation),
        superseded_by=described.superseded_by or None,
        waits_for=None if described.waits_for is None else show_id(DELIVERY, described.waits_for),
        attempts=[attempt_view(attempt) for attempt in described.attempts],
        policy=PolicyView(schedule.name, schedule.on_gone, schedule.retry_after),
        schedule=[RetryView(n, time_text(at)) for n, at in described.ahead],
    )
    return json_response(detail, status=status, headers=headers)


_ONE = "/v1/deliveries/{id}"

OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/deliveries",
        id="listDeliveries",
        use_case=Deliveries.page,
        summary="Deliveries, pending and finished, newest first.",
        handler=list_deliveries,
        response=DeliveryPage,
        params=(
            TENANT,
            choice("status", "Only deliveries with this status.", Status),
            choice("reason", "Only deliveries dropped or cancelled for this reason.", Reason),
            Param("endpoint", "Only deliveries to this endpoint."),
            Param("subscription", "Only deliveries of this subscription."),
            Param(
                "event",
                "Only deliveries of this event of `tenant`, the key's tenant or `default`.",
            ),
            Param("type", "Only deliveries of events of this type."),
            Param("url", "Only deliveries to URLs that contain this text."),
            *FAILURE,
            Param("since", "Accepted since: RFC 3339, or a duration back from now like 2h."),
            Param("until", "Accepted before; same format as since."),
            Param(
                "finished_since",
                "Delivered, dropped or cancelled since; same format as since.",
            ),
            Param(
                "expiring_within", "Only pending deliveries that expire within this time, like 6h."
            ),
            *PAGE,
        ),
        errors=(Invalid,),
    ),
    Operation(
        method="GET",
        path=_ONE,
        id="getDelivery",
        use_case=Deliveries.get,
        summary="A delivery with its attempts, scheduled retries and an explanation of its state.",
        handler=get,
        response=DeliveryDetail,
        errors=(NotFound,),
    ),
    Operation(
        method="POST",
        path=_ONE + "/replay",
        id="replayDelivery",
        use_case=Deliveries.replay,
        summary="Replay a finished delivery; the response is the new delivery.",
        handler=replay,
        status=201,
        response=DeliveryDetail,
        errors=(NotFound, StillPending, SubscriptionGone, Gone, StoreUnavailable),
    ),
    Operation(
        method="POST",
        path=_ONE + "/try",
        id="tryDelivery",
        use_case=Deliveries.try_now,
        summary="Make the next retry of a pending delivery now; its endpoint must be enabled.",
        handler=try_now,
        response=DeliveryDetail,
        errors=(NotFound, AlreadyFinished, Conflict, StoreUnavailable),
    ),
    Operation(
        method="POST",
        path=_ONE + "/cancel",
        id="cancelDelivery",
        use_case=Deliveries.cancel,
        summary="Cancel a pending delivery.",
        handler=cancel,
        response=DeliveryDetail,
        errors=(NotFound, AlreadyFinished, StoreUnavailable),
    ),
)
