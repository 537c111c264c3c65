"""Endpoints: the health of every URL with its reasons, and the commands to change it."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from msgspec import Struct

from homing.app.endpoints import Endpoints, EndpointSummary
from homing.app.exports import Exports
from homing.app.figures import Figures
from homing.app.replays import Replays
from homing.errors import FieldProblem, Invalid
from homing.languages.sentences import Number, Sentence, say
from homing.model import Cause, Endpoint, Outcome, State, Transition, show_id
from homing.policy.causes import key_of, title
from homing.policy.explain import explain_change, explain_endpoint
from homing.policy.health import HealthRules
from homing.policy.moments import moment
from homing.ports import ReplayFilter
from homing.ports.views import HOUR_MS, AttemptFilter, EndpointSort
from homing.web.dashboard.export import export_pages, export_response
from homing.web.dashboard.figures import SPANS, steps
from homing.web.dashboard.pages.overview import chart, span_of
from homing.web.dashboard.request import Page, PageRequest, Shown
from homing.web.query import id_field
from homing.web.response import Response
from homing.web.schemas import EndpointView
from homing.web.show import ENDPOINT, SUBSCRIPTION, endpoint_view

PAGE_ROWS = 50
PAGES_MAX = 100
WAITING_MAX = 1_000
WAITING_SHOWN = 10
ENDED_SHOWN = 5
ATTEMPTS_SHOWN = 10
TRANSITIONS_MAX = 50
SPARK_STEP_MS = 120_000


# --- the list -------------------------------------------------------------------------------


class Line(Struct, frozen=True):
    """An endpoint in the list."""

    endpoint: Endpoint
    waiting: int
    spark: list[tuple[int, int]]
    rate: int | None
    causes: list[Cause]  # open, the latest failure first


async def endpoints(request: PageRequest) -> Shown:
    query, now = request.query, request.now
    state = query.choice("state", State) if query.text("state") else None
    sort = query.choice("sort", EndpointSort) or EndpointSort.ATTENTION
    page = _page_number(query.text("page"))
    rows, more = await request.app.endpoints.find(
        request.caller,
        tenant=query.tenant(),
        state=state,
        text=query.text("q")[:200],
        sort=sort,
        offset=page * PAGE_ROWS,
        limit=PAGE_ROWS,
        waiting_max=WAITING_MAX,
    )

    def address(**other: str) -> str:
        """The address of this list with other conditions; page 1 unless ``page`` is given."""
        tenant = query.text("tenant")
        asked = {"state": state or "", "q": query.text("q"), "sort": sort, "tenant": tenant}
        return "/endpoints?" + urlencode({k: v for k, v in {**asked, **other}.items() if v})

    return request.show(
        "endpoints.html",
        lines=[_line(it, now) for it in rows],
        address=address,
        state=state,
        sort=sort,
        text=query.text("q"),
        page=page,
        more=more,
        waiting_max=WAITING_MAX,
        states=tuple(State),
    )


async def export(request: PageRequest, form: str) -> Response:
    query, now = request.query, request.now
    state = query.choice("state", State) if query.text("state") else None
    rules_of = request.app.endpoints.rules_of
    pages = await request.app.exports.endpoints(
        request.caller, tenant=query.tenant(), state=state, text=query.text("q")[:200]
    )
    return export_response(
        "endpoints",
        form,
        pages,
        lambda it: endpoint_view(it.endpoint, rules_of(it.endpoint.tenant), it.causes, now=now),
        EndpointView,
    )


def _page_number(text: str) -> int:
    return min(int(text), PAGES_MAX) if text.isascii() and text.isdigit() else 0


def _line(summary: EndpointSummary, now: int) -> Line:
    parts = steps(summary.minutes, since=now - HOUR_MS, until=now + 1, step_ms=SPARK_STEP_MS)
    health = summary.endpoint.health
    return Line(
        summary.endpoint,
        summary.waiting,
        [(it.delivered, it.failed) for it in parts],
        round(100 * health.failures / health.attempts) if health.attempts else None,
        summary.causes,
    )


# --- one ------------------------------------------------------------------------------------


class Rule(Struct, frozen=True):
    """A counter of a health rule next to its limit."""

    name: Sentence
    value: Sentence
    consequence: Sentence
    progress: float  # towards the limit; 1 is the limit


class Band(Struct, frozen=True):
    """A time that an endpoint spent in one state; positions are thousandths of the width."""

    state: State
    left: int
    width: int
    since: int


async def endpoint(request: PageRequest) -> Shown:
    number, now, span = request.number(ENDPOINT), request.now, span_of(request)
    described = await request.app.endpoints.describe(
        request.caller,
        number,
        transitions_max=TRANSITIONS_MAX,
        waiting_max=WAITING_MAX,
        deliveries_max=WAITING_SHOWN,
    )
    found, rules, changes = described.endpoint, described.rules, described.transitions
    ended, _ = await request.app.causes.page(
        request.caller,
        tenant=None,
        endpoint_id=number,
        is_open=False,
        before_id=None,
        limit=ENDED_SHOWN,
        waiting_max=1,
    )
    attempts, _ = await request.app.endpoints.attempts(
        request.caller, number, AttemptFilter(), cursor=None, limit=ATTEMPTS_SHOWN
    )
    return request.show(
        "endpoint.html",
        endpoint=found,
        health=found.health,
        rules=_rules(found, rules, now=now),
        every_ms=rules.probe_every_ms,
        sentence=explain_endpoint(found, rules, now=now, causes=described.causes),
        shares=shares(described.causes),
        ended=[it.row.cause for it in ended],
        attempts=attempts,
        changes=[(it, _sentence(it)) for it in changes],
        bands=bands(found, changes, since=now - SPANS[span][1], now=now),
        waiting=described.deliveries,
        waiting_count=described.waiting,
        waiting_max=WAITING_MAX,
        subscriptions=await request.app.endpoints.subscriptions(request.caller, number),
        may_simulate=request.app.simulations.available,
        span=span,
        spans=SPANS,
    )


def shares(causes: Sequence[Cause]) -> list[tuple[Cause, int]]:
    """Open causes with their percentages of the failed attempts, the largest first."""
    whole = max(sum(it.attempts for it in causes), 1)
    found = sorted(causes, key=lambda it: it.attempts, reverse=True)
    return [(it, round(100 * it.attempts / whole)) for it in found]


async def _endpoint(request: PageRequest) -> Endpoint:
    return await request.app.endpoints.get(request.caller, request.number(ENDPOINT))


def _sentence(change: Transition) -> str:
    return explain_change(change.before, change.after, change.rule, change.numbers, change.by)


def _rules(found: Endpoint, rules: HealthRules, *, now: int) -> list[Rule]:
    """The counters and limits of the health rules, in the order in which they are checked."""
    health = found.health
    percent = 100 * health.failures / health.attempts if health.attempts else 0.0
    row, needed = health.consecutive_failures, rules.rate_after_attempts
    counts = health.attempts > needed
    marks = (health.last_success_at, health.first_attempt_at, health.manual_enable_at)
    alone = now - max((it for it in marks if it is not None), default=now) if row else 0
    hours, hours_max = alone / HOUR_MS, rules.freeze_after_ms / HOUR_MS
    limit = Number(hours_max, 0)
    rate_part = min(percent / max(rules.failure_percent, 1), health.attempts / max(needed, 1))
    return [
        Rule(
            say("Failure rate"),
            say("{percent} % of {attempts}", percent=Number(percent, 0), attempts=health.attempts),
            say("disabled above {percent} %", percent=rules.failure_percent)
            if counts
            else say(
                "disabled above {percent} %, counted after more than {needed} attempts",
                percent=rules.failure_percent,
                needed=needed,
            ),
            rate_part if counts else min(rate_part, 0.99),
        ),
        Rule(
            say("Failures in a row"),
            say("{failures} of {limit}", failures=row, limit=rules.consecutive_disable),
            say("disabled at {limit}", limit=rules.consecutive_disable),
            row / rules.consecutive_disable,
        ),
        Rule(
            say("Time without a success"),
            say("{hours} h of {limit} h", hours=Number(hours, 1), limit=limit),
            say(
                "frozen after {limit} h with more than {failures} failures in a row",
                limit=limit,
                failures=rules.consecutive_freeze,
            ),
            min(hours / hours_max, row / max(rules.consecutive_freeze, 1)),
        ),
        Rule(
            say("Failures in a row, freeze limit"),
            say("{failures} of {limit}", failures=row, limit=rules.consecutive_freeze_always),
            say("frozen at {limit}", limit=rules.consecutive_freeze_always),
            row / rules.consecutive_freeze_always,
        ),
    ]


def bands(found: Endpoint, changes: list[Transition], *, since: int, now: int) -> list[Band]:
    """The states of an endpoint over time; ``changes`` are newest first."""
    begin = max(since, found.created_at) if found.created_at < now else since
    cuts = [it for it in reversed(changes) if it.at > begin]
    state = cuts[0].before if cuts else found.health.state
    result: list[Band] = []
    length = max(now - since, 1)

    def add(state: State, start: int, end: int) -> None:
        left = 1000 * (start - since) // length
        width = max(1000 * (end - since) // length - left, 2)
        result.append(Band(state, left, width, start))

    for cut in cuts:
        add(state, begin, cut.at)
        state, begin = cut.after, cut.at
    add(state, begin, now)
    return result


async def endpoint_chart(request: PageRequest) -> Response:
    span = span_of(request)
    rollups = await request.app.figures.rollups(
        request.caller,
        tenant=None,
        endpoint_id=request.number(ENDPOINT),
        span_ms=SPANS[span][1],
    )
    return request.json(chart(rollups, span=span, now=request.now))


# --- commands -------------------------------------------------------------------------------


def _done(request: PageRequest, message: str, endpoint_id: int) -> Response:
    """Back to the page with the form: that of the endpoint, or the incidents."""
    to = (
        "/incidents"
        if request.is_at("/incidents")
        else f"/endpoints/{show_id(ENDPOINT, endpoint_id)}"
    )
    return request.done(message, to=to)


async def enable(request: PageRequest) -> Response:
    found = await request.app.endpoints.enable(request.caller, request.number(ENDPOINT))
    message = say("Enabled. Overdue deliveries are sent now, slowly at first.")
    return _done(request, message, found.id)


async def freeze(request: PageRequest) -> Response:
    found = await request.app.endpoints.freeze(request.caller, request.number(ENDPOINT))
    message = say("Frozen. No attempt is made until the endpoint is enabled.")
    return _done(request, message, found.id)


async def test_event(request: PageRequest) -> Response:
    number = request.number(ENDPOINT)
    chosen = request.field("subscription")
    subscription = id_field(chosen, "subscription", SUBSCRIPTION) if chosen else None
    attempt = await request.app.endpoints.test(request.caller, number, subscription)
    took = say("{n} ms", n=attempt.phases.total_us // 1000)
    if attempt.outcome is Outcome.DELIVERED:
        code = str(attempt.code)
        message = say("The receiver responded with {code} in {took}.", code=code, took=took)
    else:
        why = title(key_of(attempt.failure, attempt.detail, attempt.code))
        message = say("The test event failed: {why} ({took}).", why=why, took=took)
    return _done(request, message, number)


def _dropped(request: PageRequest, found: Endpoint, since: str, *, as_of: int) -> ReplayFilter:
    if not since:
        raise Invalid(problems=(FieldProblem("since", say("must be given")),))
    at = moment(since, "since", now=as_of)
    return request.app.replays.dropped(found, since=at, as_of=as_of)


async def replay_count(request: PageRequest) -> Shown:
    found = await _endpoint(request)
    as_of = request.now
    conditions = _dropped(request, found, request.query.text("since"), as_of=as_of)
    counted = await request.app.replays.count(request.caller, conditions)
    return request.show("replay_count.html", counted=counted, endpoint=found, as_of=as_of)


async def replay(request: PageRequest) -> Response:
    found = await _endpoint(request)
    conditions = _dropped(request, found, request.field("since"), as_of=request.as_of())
    await request.app.replays.start(request.caller, conditions, typed=request.field("confirm"))
    message = say("Replay started. Each dropped delivery becomes a new one in the retry lane.")
    return _done(request, message, found.id)


_ONE = "/endpoints/{id}"

PAGES = (
    Page(path="/endpoints", handler=endpoints, use_case=Endpoints.find),
    *export_pages("/endpoints", export, Exports.endpoints),
    Page(path=_ONE, handler=endpoint, use_case=Endpoints.describe),
    Page(path=_ONE + "/chart.json", handler=endpoint_chart, use_case=Figures.rollups),
    Page(path=_ONE + "/replay-count", handler=replay_count, use_case=Replays.count),
    Page(path=_ONE + "/enable", method="POST", handler=enable, use_case=Endpoints.enable),
    Page(path=_ONE + "/freeze", method="POST", handler=freeze, use_case=Endpoints.freeze),
    Page(path=_ONE + "/test", method="POST", handler=test_event, use_case=Endpoints.test),
    Page(path=_ONE + "/replay", method="POST", handler=replay, use_case=Replays.start),
)
