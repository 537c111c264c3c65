"""Bulk replays: count, start, show progress, cancel."""

from __future__ import annotations

from msgspec.structs import replace

from homing.app.replays import ONLY_FINISHED, Replays
from homing.errors import BadRequest, Conflict, FieldProblem, Invalid, NotFound, StoreUnavailable
from homing.model import Status, show_id
from homing.policy.admission import (
    KEY_RULE,
    TYPE_RULE,
    is_key,
    is_type,
    read_time,
    tenant_problem,
)
from homing.policy.bulk import Counted
from homing.policy.causes import code_problem, failure_problem, title
from homing.policy.moments import moment
from homing.ports import ReplayFilter
from homing.web.operation import Call, Operation
from homing.web.query import id_field, url_part_problem
from homing.web.response import Response, json_response
from homing.web.schemas import (
    BackfillCount,
    BackfillIn,
    NamedCount,
    ReplayCount,
    ReplayFilterIn,
    ReplayIn,
    ReplayJobView,
)
from homing.web.show import ENDPOINT, REPLAY, SUBSCRIPTION, replay_view, time_text

NAMED_MAX = 100  # tenants, and causes, of a count


async def start(call: Call) -> Response:
    given, now = call.content(ReplayIn), call.now
    conditions, event = _read(given.filter, now=now), given.filter.event
    replays = call.app.replays
    if given.dry_run:
        as_of = now if conditions.as_of is None else conditions.as_of
        conditions = replace(conditions, as_of=as_of)
        counted = await replays.count(call.caller, conditions, event=event)
        return json_response(_count_view(counted, as_of))
    job = await replays.start(call.caller, conditions, event=event)
    location = f"/v1/replays/{show_id(REPLAY, job.id)}".encode()
    return json_response(replay_view(job), status=202, headers=((b"location", location),))


def _count_view(counted: Counted, as_of: int) -> ReplayCount:
    causes = [("" if key is None else str(title(key)), count) for key, count in counted.by_cause]
    return ReplayCount(
        count=counted.count,
        exact=counted.exact,
        by_status=[NamedCount(*it) for it in counted.by_status],
        by_tenant=[NamedCount(*it) for it in counted.by_tenant[:NAMED_MAX]],
        by_cause=[NamedCount(*it) for it in causes[:NAMED_MAX]],
        as_of=time_text(as_of),
    )


async def backfill(call: Call) -> Response:
    given, number = call.content(BackfillIn), call.number(SUBSCRIPTION)
    since = moment(given.since, "from", now=call.now)
    replays = call.app.replays
    if given.dry_run:
        count, exact = await replays.count_past(call.caller, number, since=since)
        return json_response(BackfillCount(count, exact))
    job = await replays.backfill(call.caller, number, since=since, per_second=given.per_second)
    location = f"/v1/replays/{show_id(REPLAY, job.id)}".encode()
    return json_response(replay_view(job), status=202, headers=((b"location", location),))


async def get(call: Call) -> Response:
    replays = call.app.replays
    job = await replays.get(call.caller, call.number(REPLAY))
    return json_response(replay_view(job, waits=await replays.waits(job)))


async def cancel(call: Call) -> Response:
    job = await call.app.replays.cancel(call.caller, call.number(REPLAY))
    return json_response(replay_view(job))


def _read(given: ReplayFilterIn, *, now: int) -> ReplayFilter:
    """The conditions; raises Invalid with every wrong field."""
    problems: list[FieldProblem] = []
    as_of = None if given.as_of is None else read_time(given.as_of)
    if given.as_of is not None and (as_of is None or as_of > now):
        reason = "must be an RFC 3339 time that is not in the future"
        problems.append(FieldProblem("filter.as_of", reason))
    back_from = now if as_of is None else as_of

    def time(value: str | None, name: str) -> int | None:
        try:
            return None if value is None else moment(value, f"filter.{name}", now=back_from)
        except Invalid as error:
            problems.extend(error.problems)
            return None

    def number(value: str | None, name: str, prefix: str) -> int | None:
        try:
            return None if value is None else id_field(value, f"filter.{name}", prefix)
        except Invalid as error:
            problems.extend(error.problems)
            return None

    conditions = ReplayFilter(
        tenant=given.tenant,
        status=given.status,
        reason=given.reason,
        endpoint_id=number(given.endpoint, "endpoint", ENDPOINT),
        subscription_id=number(given.subscription, "subscription", SUBSCRIPTION),
        type=given.type,
        url=given.url or None,
        failure=given.failure,
        code=given.code,
        as_of=as_of,
        since=time(given.since, "since"),
        until=time(given.until, "until"),
        finished_since=time(given.finished_since, "finished_since"),
    )
    problems.extend(_wrong(given))
    if problems:
        raise Invalid(problems=tuple(problems))
    return conditions


def _wrong(given: ReplayFilterIn) -> list[FieldProblem]:
    """The problems of the fields that are not converted."""
    problems: list[FieldProblem] = []
    if given.tenant is not None:
        problems.extend(tenant_problem(given.tenant, "filter.tenant"))
    if given.type is not None and not is_type(given.type):
        problems.append(FieldProblem("filter.type", TYPE_RULE))
    if given.event is not None and not is_key(given.event):
        problems.append(FieldProblem("filter.event", KEY_RULE))
    if given.url is not None and (problem := url_part_problem(given.url)):
        problems.append(FieldProblem("filter.url", problem))
    if given.failure is not None and (problem := failure_problem(given.failure)):
        problems.append(FieldProblem("filter.failure", problem))
    if given.code is not None and (problem := code_problem(given.code)):
        problems.append(FieldProblem("filter.code", problem))
    if given.status is Status.PENDING:
        problems.append(FieldProblem("filter.status", ONLY_FINISHED))
    return problems


_ONE = "/v1/replays/{id}"

OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/replays",
        id="startReplay",
        use_case=Replays.start,
        summary="Replay all finished deliveries that match; with dry_run, only count them.",
        handler=start,
        status=202,
        request=ReplayIn,
        response=ReplayJobView,
        also={200: ReplayCount},
        errors=(BadRequest, Conflict, Invalid, StoreUnavailable),
    ),
    Operation(
        method="POST",
        path="/v1/subscriptions/{id}/backfill",
        id="backfillSubscription",
        use_case=Replays.backfill,
        summary=(
            "Deliver past events that it has no delivery of, by a job like a replay; with dry_run, "
            "only count them."
        ),
        handler=backfill,
        status=202,
        request=BackfillIn,
        response=ReplayJobView,
        also={200: BackfillCount},
        errors=(BadRequest, Conflict, Invalid, NotFound, StoreUnavailable),
    ),
    Operation(
        method="GET",
        path=_ONE,
        id="getReplay",
        use_case=Replays.get,
        summary="A bulk replay and its progress.",
        handler=get,
        response=ReplayJobView,
        errors=(NotFound,),
    ),
    Operation(
        method="POST",
        path=_ONE + "/cancel",
        id="cancelReplay",
        use_case=Replays.cancel,
        summary="Stop a bulk replay; deliveries that were already replayed are kept.",
        handler=cancel,
        response=ReplayJobView,
        errors=(NotFound, StoreUnavailable),
    ),
)
