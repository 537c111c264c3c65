"""Replays or cancels all deliveries that match a search: first the counts, then the progress."""

from __future__ import annotations

import re
from urllib.parse import urlencode

from msgspec.structs import replace

from homing.app.deliveries import Deliveries, counted_by
from homing.app.replays import Replays
from homing.errors import FieldProblem, FormOutdated, Invalid
from homing.languages.sentences import say
from homing.model import Status, show_id
from homing.policy.bulk import REPLAYED, SHOWN_MAX, Counted, status_or_default
from homing.policy.causes import title
from homing.ports import ReplayFilter
from homing.web.dashboard.pages.deliveries import searched
from homing.web.dashboard.request import Page, PageRequest, Shown, other_tenant
from homing.web.dashboard.search import Search
from homing.web.response import Response
from homing.web.show import REPLAY

CANCELLED_AT_ONCE = 200
_COUNT = re.compile("[0-9]{1,12}")
_NONE = Counted(0, exact=True)


async def ask(request: PageRequest) -> Shown:
    """Shows which deliveries a replay and a cancellation would affect."""
    as_of = request.now
    search = searched(request, request.query.text("q"), as_of=as_of)
    return await _asked(request, search, request.query.text("take"), as_of=as_of)


async def _asked(
    request: PageRequest, search: Search, take: str, *, as_of: int, problem: str = ""
) -> Shown:
    conditions = search.replay(as_of=as_of)
    found = chosen = _NONE
    if conditions is not None:
        found = await request.app.replays.count(request.caller, conditions)
        status = _taken(conditions, take).status or Status.DROPPED
        chosen = found if conditions.status or conditions.reason else found.of(status)
    pending = await request.app.deliveries.count_pending(
        request.caller, counted_by(search.conditions, as_of=as_of)
    )
    return request.show(
        "bulk.html",
        status=422 if problem else 200,
        as_of=as_of,
        search=search,
        take=take,
        can_replay=conditions is not None,
        choices=_choices(search, found) if conditions and not conditions.status else [],
        chosen=chosen,
        pending=pending,
        problem=problem,
        causes=_causes,
        shown_max=SHOWN_MAX,
    )


async def failed(request: PageRequest) -> Shown:
    """What did not arrive of the deliveries that match, by cause: dropped, and still pending."""
    as_of = request.now
    search = searched(request, request.query.text("q"), as_of=as_of)
    conditions = search.replay(as_of=as_of)
    dropped = pending = _NONE
    if conditions is not None:
        conditions = replace(conditions, status=Status.DROPPED)
        dropped = await request.app.replays.count(request.caller, conditions)
    if search.conditions.status is None:
        pending = await request.app.deliveries.count_pending(
            request.caller, counted_by(search.conditions, as_of=as_of)
        )
    counts: dict[str, list[int]] = {}
    for place, counted in enumerate((dropped, pending)):
        for name, count in _causes(counted):
            counts.setdefault(name, [0, 0])[place] += count
    rows = sorted(counts.items(), key=lambda it: -sum(it[1]))
    return request.show("span_causes.html", rows=rows[:SHOWN_MAX], more=rows[SHOWN_MAX:])


def _causes(counted: Counted) -> list[tuple[str, int]]:
    return [(title(key) if key else say("no failed attempt"), n) for key, n in counted.by_cause]


def _choices(search: Search, found: Counted) -> list[tuple[Status, int, str]]:
    """Each status with its count and the address of this page for it; dropped is first."""
    counts = dict(found.by_status)
    return [
        (status, counts.get(status, 0), "/bulk?" + urlencode({"q": search.text, "take": status}))
        for status in REPLAYED
    ]


def _taken(conditions: ReplayFilter, take: str) -> ReplayFilter:
    """The conditions with the status that the person chose, if the search names none."""
    chosen = Status(take) if take in REPLAYED else None
    status = status_or_default(conditions.status or chosen, reason=conditions.reason)
    return replace(conditions, status=status)


async def replay(request: PageRequest) -> Response | Shown:
    as_of, take = request.as_of(), request.field("take")
    search = searched(request, request.field("q"), as_of=as_of)
    conditions = search.replay(as_of=as_of)
    if conditions is None:
        reason = say("must not ask for pending deliveries: only finished ones can be replayed")
        raise Invalid(problems=(FieldProblem("q", reason),))
    try:
        job = await request.app.replays.start(
            request.caller, _taken(conditions, take), typed=request.field("confirm")
        )
    except Invalid as error:
        if request.is_partial:
            raise
        problem = request.reasons(error.problems)
        return await _asked(request, search, take, as_of=as_of, problem=problem)
    return request.done(say("Replay started."), to=f"/replays/{show_id(REPLAY, job.id)}")


async def job(request: PageRequest) -> Shown:
    found = await request.app.replays.get(request.caller, request.number(REPLAY))
    waits = await request.app.replays.waits(found)
    return request.show("replay.html", job=found, waits=waits)


async def stop(request: PageRequest) -> Response:
    found = await request.app.replays.cancel(request.caller, request.number(REPLAY))
    message = say("Replay stopped. Deliveries that were already replayed are kept.")
    return request.done(message, to=f"/replays/{show_id(REPLAY, found.id)}")


async def cancel(request: PageRequest) -> Response | Shown:
    """Cancels a bounded number of deliveries; the page that follows sends the form again."""
    text, done, as_of = request.field("q"), _count(request.field("done")), request.as_of()
    search = searched(request, text, as_of=as_of)
    try:
        cancelled, more = await request.app.deliveries.cancel_some(
            request.caller,
            search.conditions,
            as_of=as_of,
            limit=CANCELLED_AT_ONCE,
            typed=None if done else request.field("confirm"),
        )
    except Invalid as error:
        if request.is_partial:
            raise
        problem = request.reasons(error.problems)
        return await _asked(request, search, "", as_of=as_of, problem=problem)
    done += cancelled
    if more:
        values = {"q": text, "done": done, "as_of": as_of}
        values["shown"] = request.caller.scope(None) or ""
        return request.see_other("/bulk/cancelling?" + urlencode(values))
    message = say("Deliveries cancelled: {count}.", count=done)
    return request.done(message, to="/deliveries?" + urlencode({"q": text}))


async def cancelling(request: PageRequest) -> Shown:
    """Shows how many were cancelled so far; the page sends the form for the next ones itself."""
    made_for, shown = request.query.text("shown") or None, request.caller.scope(None)
    if made_for != shown:
        raise FormOutdated(other_tenant(made_for, shown))
    as_of = _count(request.query.text("as_of")) or request.now
    return request.show(
        "cancelling.html",
        search=searched(request, request.query.text("q"), as_of=as_of),
        as_of=as_of,
        done=_count(request.query.text("done")),
    )


def _count(text: str) -> int:
    return int(text) if _COUNT.fullmatch(text) else 0


PAGES = (
    Page(path="/bulk", handler=ask, use_case=Replays.count),
    Page(path="/bulk/failed", handler=failed, use_case=Replays.count),
    Page(path="/bulk/replay", handler=replay, method="POST", use_case=Replays.start),
    Page(path="/bulk/cancel", handler=cancel, method="POST", use_case=Deliveries.cancel_some),
    Page(path="/bulk/cancelling", handler=cancelling, use_case=Deliveries.cancel_some),
    Page(path="/replays/{id}", handler=job, use_case=Replays.get),
    Page(path="/replays/{id}/stop", handler=stop, method="POST", use_case=Replays.cancel),
)
