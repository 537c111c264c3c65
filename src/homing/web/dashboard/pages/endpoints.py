"""Endpoints: the health of every URL, why it is so, and what a person may do about it."""

from __future__ import annotations

from urllib.parse import urlencode

from msgspec import Struct

from homing.errors import FieldProblem, Invalid, NotFound
from homing.model import Endpoint, Outcome, State, Status, Subscription, Transition, show_id
from homing.policy.explain import explain_change, explain_endpoint
from homing.ports import DeliveryFilter, ReplayFilter
from homing.ports.board import HOUR_MS, EndpointSort, Rollup
from homing.web import commands
from homing.web.answer import Answer
from homing.web.dashboard.figures import SPANS, steps
from homing.web.dashboard.pages.overview import chart, span_of
from homing.web.dashboard.visit import Page, Right, Shown, Visit
from homing.web.query import id_field, moment
from homing.web.show import ENDPOINT, SUBSCRIPTION

PAGE_ROWS = 50
PAGES_MOST = 100
WAITING_MOST = 1_000
WAITING_SHOWN = 10
TRANSITIONS_SHOWN = 50
SUBSCRIPTIONS_LOOK = 200
SPARK_STEP_MS = 120_000


# --- the list -------------------------------------------------------------------------------


class Line(Struct, frozen=True):
    """An endpoint in the list."""

    endpoint: Endpoint
    waiting: int
    spark: list[tuple[int, int]]
    rate: int | None


async def endpoints(visit: Visit) -> Shown:
    views, query, now = visit.parts.views, visit.query, visit.now
    state = query.choice("state", State) if query.text("state") else None
    sort = query.choice("sort", EndpointSort) or EndpointSort.NEWEST
    page = _page_number(query.text("page"))
    rows, more = await views.find_endpoints(
        tenant=visit.tenant(),
        state=state,
        text=query.text("q")[:200],
        sort=sort,
        offset=page * PAGE_ROWS,
        limit=PAGE_ROWS,
    )

    def address(**other: str) -> str:
        """This list with other conditions; from its beginning, unless a page is named."""
        tenant = query.text("tenant")
        asked = {"state": state or "", "q": query.text("q"), "sort": sort, "tenant": tenant}
        return "/endpoints?" + urlencode({k: v for k, v in {**asked, **other}.items() if v})

    ids = [it.id for it in rows]
    waiting = await views.waiting_of(ids, limit=WAITING_MOST)
    sparks = await views.sparks(ids, since=now - HOUR_MS, until=now + 1)
    return visit.show(
        "endpoints.html",
        lines=[_line(it, waiting.get(it.id, 0), sparks.get(it.id, []), now) for it in rows],
        address=address,
        state=state,
        sort=sort,
        text=query.text("q"),
        page=page,
        more=more,
        waiting_most=WAITING_MOST,
        states=tuple(State),
    )


def _page_number(text: str) -> int:
    return min(int(text), PAGES_MOST) if text.isascii() and text.isdigit() else 0


def _line(endpoint: Endpoint, waiting: int, minutes: list[Rollup], now: int) -> Line:
    parts = steps(minutes, since=now - HOUR_MS, until=now + 1, step_ms=SPARK_STEP_MS)
    health = endpoint.health
    return Line(
        endpoint,
        waiting,
        [(it.delivered, it.failed) for it in parts],
        round(100 * health.failures / health.attempts) if health.attempts else None,
    )


# --- one ------------------------------------------------------------------------------------


class Rule(Struct, frozen=True):
    """A counter beside its limit: how far it is, in words and as a part of the way."""

    name: str
    says: str
    then: str
    part: float


class Band(Struct, frozen=True):
    """A stretch of an endpoint's life in one state; places are thousandths of the width."""

    state: State
    left: int
    width: int
    since: int


async def endpoint(visit: Visit) -> Shown:
    found = await _there(visit)
    views, engine, now = visit.parts.views, visit.parts.engine, visit.now
    changes, _ = await views.transitions(found.id, before_id=None, limit=TRANSITIONS_SHOWN)
    pending = DeliveryFilter(endpoint_id=found.id, status=Status.PENDING)
    waiting, _ = await views.deliveries(pending, before_id=None, limit=WAITING_SHOWN)
    span = span_of(visit)
    return visit.show(
        "endpoint.html",
        endpoint=found,
        health=found.health,
        rules=_rules(visit, found),
        every_ms=engine.rules_of(found.tenant).probe_every_ms,
        sentence=explain_endpoint(found, engine.rules_of(found.tenant), now=now),
        changes=[(it, _sentence(it)) for it in changes],
        bands=bands(found, changes, since=now - SPANS[span][1], now=now),
        waiting=waiting,
        waiting_count=await views.waiting(found.id, limit=WAITING_MOST),
        waiting_most=WAITING_MOST,
        subscriptions=await _subscriptions(visit, found),
        span=span,
        spans=SPANS,
    )


async def _there(visit: Visit) -> Endpoint:
    found = await visit.parts.views.endpoint(visit.number(ENDPOINT))
    if found is None:
        raise NotFound("There is no such endpoint.")
    visit.sees(found.tenant)
    return found


async def _subscriptions(visit: Visit, found: Endpoint) -> list[Subscription]:
    rows, _ = await visit.parts.views.subscriptions(
        tenant=found.tenant, before_id=None, limit=SUBSCRIPTIONS_LOOK
    )
    return [it for it in rows if it.endpoint_id == found.id]


def _sentence(change: Transition) -> str:
    return explain_change(change.before, change.after, change.rule, change.numbers, change.by)


def _rules(visit: Visit, found: Endpoint) -> list[Rule]:
    """The counters beside the rules, in the order in which the rules are looked at."""
    rules, health = visit.parts.engine.rules_of(found.tenant), found.health
    percent = 100 * health.failures / health.attempts if health.attempts else 0.0
    row, needed = health.consecutive_failures, rules.rate_after_attempts
    counts = health.attempts > needed
    marks = (health.last_success_at, health.first_attempt_at, health.manual_enable_at)
    alone = visit.now - max((it for it in marks if it is not None), default=visit.now) if row else 0
    hours, hours_most = alone / HOUR_MS, rules.freeze_after_ms / HOUR_MS
    rate_part = min(percent / max(rules.failure_percent, 1), health.attempts / max(needed, 1))
    return [
        Rule(
            "Failure rate",
            f"{percent:.0f} % of {health.attempts:,}",
            f"disabled over {rules.failure_percent} %"
            + ("" if counts else f", once there are more than {needed:,} attempts"),
            rate_part if counts else min(rate_part, 0.99),
        ),
        Rule(
            "Failures in a row",
            f"{row:,} of {rules.consecutive_disable:,}",
            f"disabled at {rules.consecutive_disable:,}",
            row / rules.consecutive_disable,
        ),
        Rule(
            "Without a success",
            f"{hours:,.1f} h of {hours_most:,.0f} h",
            f"frozen after {hours_most:,.0f} h with more than "
            f"{rules.consecutive_freeze:,} failures in a row",
            min(hours / hours_most, row / max(rules.consecutive_freeze, 1)),
        ),
        Rule(
            "Failures in a row, in all",
            f"{row:,} of {rules.consecutive_freeze_always:,}",
            f"frozen at {rules.consecutive_freeze_always:,}",
            row / rules.consecutive_freeze_always,
        ),
    ]


def bands(found: Endpoint, changes: list[Transition], *, since: int, now: int) -> list[Band]:
    """The life of an endpoint as stretches of one state; ``changes`` are newest first."""
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


async def endpoint_chart(visit: Visit) -> Answer:
    found, span, now = await _there(visit), span_of(visit), visit.now
    rollups = await visit.parts.views.rollups(
        endpoint_id=found.id, tenant=None, since=now - SPANS[span][1], until=now + 1
    )
    return visit.json(chart(rollups, span=span, now=now))


# --- what a person does ---------------------------------------------------------------------


def _address(found: Endpoint) -> str:
    return f"/endpoints/{show_id(ENDPOINT, found.id)}"


async def enable(visit: Visit) -> Answer:
    found = await _there(visit)
    await visit.parts.engine.enable(found.id, by=visit.who.name)
    return visit.done("Enabled. What is overdue goes now, slowly at first.", to=_address(found))


async def freeze(visit: Visit) -> Answer:
    found = await _there(visit)
    await visit.parts.engine.freeze(found.id, by=visit.who.name)
    return visit.done("Frozen. Nothing is attempted until it is enabled.", to=_address(found))


async def test_event(visit: Visit) -> Answer:
    found = await _there(visit)
    number = id_field(visit.field("subscription"), "subscription", SUBSCRIPTION)
    if number not in {it.id for it in await _subscriptions(visit, found)}:
        raise NotFound("There is no such subscription at this endpoint.")
    attempt = await visit.parts.engine.test_send(number)
    took = attempt.phases.total_us // 1000
    if attempt.outcome is Outcome.DELIVERED:
        said = f"The test event was answered with {attempt.code} in {took} ms."
    else:
        said = f"The test event failed: {attempt.detail or attempt.code} ({took} ms)."
    return visit.done(said, to=_address(found))


def _dropped(found: Endpoint, since: str, *, as_of: int) -> ReplayFilter:
    if not since:
        raise Invalid(problems=(FieldProblem("since", "must be given"),))
    return ReplayFilter(
        tenant=found.tenant,
        status=Status.DROPPED,
        endpoint_id=found.id,
        since=moment(since, "since", now=as_of),
        as_of=as_of,
    )


async def replay_count(visit: Visit) -> Shown:
    found = await _there(visit)
    as_of = visit.now
    conditions = _dropped(found, visit.query.text("since"), as_of=as_of)
    count, exact = await visit.parts.engine.count_replay(conditions)
    return visit.show("replay_count.html", count=count, exact=exact, endpoint=found, as_of=as_of)


async def replay(visit: Visit) -> Answer:
    found = await _there(visit)
    conditions = _dropped(found, visit.field("since"), as_of=visit.as_of())
    await commands.start_replay(visit.parts, visit.who.caller, conditions)
    said = "The replay has begun: each dropped delivery becomes a new one in the retry lane."
    return visit.done(said, to=_address(found))


_ONE = "/endpoints/{id}"

PAGES = (
    Page(path="/endpoints", handler=endpoints),
    Page(path=_ONE, handler=endpoint),
    Page(path=_ONE + "/chart.json", handler=endpoint_chart),
    Page(path=_ONE + "/replay-count", handler=replay_count, right=Right.MANAGE),
    Page(path=_ONE + "/enable", method="POST", handler=enable, right=Right.MANAGE),
    Page(path=_ONE + "/freeze", method="POST", handler=freeze, right=Right.MANAGE),
    Page(path=_ONE + "/test", method="POST", handler=test_event, right=Right.MANAGE),
    Page(path=_ONE + "/replay", method="POST", handler=replay, right=Right.MANAGE),
)
