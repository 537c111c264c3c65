"""Replays or cancels all deliveries that match a search: first a count, then the progress."""

from __future__ import annotations

import re
from urllib.parse import urlencode

from homing.app.deliveries import Deliveries
from homing.app.replays import Replays
from homing.errors import FieldProblem, Invalid
from homing.model import show_id
from homing.web.dashboard.pages.deliveries import searched
from homing.web.dashboard.request import Page, PageRequest, Shown
from homing.web.response import Response
from homing.web.show import REPLAY

CANCELLED_AT_ONCE = 200
COUNTED_MAX = 1_000
_COUNT = re.compile("[0-9]{1,12}")


async def ask(request: PageRequest) -> Shown:
    """Shows how many deliveries a replay and a cancellation would affect."""
    as_of = request.now
    search = searched(request, request.query.text("q"), as_of=as_of)
    conditions = search.replay(as_of=as_of)
    replays, exact = 0, True
    if conditions is not None:
        replays, exact = await request.app.replays.count(request.caller, conditions)
    pending = await request.app.deliveries.count_pending(
        request.caller, search.conditions, limit=COUNTED_MAX
    )
    return request.show(
        "bulk.html",
        as_of=as_of,
        search=search,
        can_replay=conditions is not None,
        replays=replays,
        exact=exact,
        pending=min(pending, COUNTED_MAX),
        pending_more=pending > COUNTED_MAX,
        done=0,
        cancelling=False,
    )


async def replay(request: PageRequest) -> Response:
    as_of = request.as_of()
    conditions = searched(request, request.field("q"), as_of=as_of).replay(as_of=as_of)
    if conditions is None:
        reason = "must not ask for pending deliveries: only finished ones can be replayed"
        raise Invalid(problems=(FieldProblem("q", reason),))
    job = await request.app.replays.start(request.caller, conditions)
    return request.done("Replay started.", to=f"/replays/{show_id(REPLAY, job.id)}")


async def job(request: PageRequest) -> Shown:
    found = await request.app.replays.get(request.caller, request.number(REPLAY))
    return request.show("replay.html", job=found)


async def stop(request: PageRequest) -> Response:
    found = await request.app.replays.cancel(request.caller, request.number(REPLAY))
    message = "Replay stopped. Deliveries that were already replayed are kept."
    return request.done(message, to=f"/replays/{show_id(REPLAY, found.id)}")


async def cancel(request: PageRequest) -> Response:
    """Cancels a bounded number of deliveries; the page that follows sends the form again."""
    text, done = request.field("q"), _count(request.field("done"))
    cancelled, more = await request.app.deliveries.cancel_some(
        request.caller, searched(request, text).conditions, limit=CANCELLED_AT_ONCE
    )
    done += cancelled
    if more:
        return request.see_other("/bulk/cancelling?" + urlencode({"q": text, "done": done}))
    message = f"Deliveries cancelled: {done:,}."
    return request.done(message, to="/deliveries?" + urlencode({"q": text}))


async def cancelling(request: PageRequest) -> Shown:
    """Shows how many were cancelled so far; the page sends the form for the next ones itself."""
    return request.show(
        "bulk.html",
        search=searched(request, request.query.text("q")),
        can_replay=False,
        replays=0,
        exact=True,
        pending=0,
        pending_more=False,
        done=_count(request.query.text("done")),
        cancelling=True,
    )


def _count(text: str) -> int:
    return int(text) if _COUNT.fullmatch(text) else 0


PAGES = (
    Page(path="/bulk", handler=ask, use_case=Replays.count),
    Page(path="/bulk/replay", handler=replay, method="POST", use_case=Replays.start),
    Page(path="/bulk/cancel", handler=cancel, method="POST", use_case=Deliveries.cancel_some),
    Page(path="/bulk/cancelling", handler=cancelling, use_case=Deliveries.cancel_some),
    Page(path="/replays/{id}", handler=job, use_case=Replays.get),
    Page(path="/replays/{id}/stop", handler=stop, method="POST", use_case=Replays.cancel),
)
