"""Many deliveries at once: how many there are, then replay or cancel them, with progress."""

from __future__ import annotations

import re
from urllib.parse import urlencode

from msgspec.structs import replace

from homing.errors import AlreadyFinished, FieldProblem, Invalid, NotFound
from homing.model import Status, show_id
from homing.ports import ReplayJob
from homing.web import commands
from homing.web.answer import Answer
from homing.web.dashboard.pages.deliveries import searched
from homing.web.dashboard.search import Search, find
from homing.web.dashboard.visit import Page, Right, Shown, Visit
from homing.web.show import REPLAY

CANCELLED_AT_ONCE = 200
COUNTED_MOST = 1_000
_COUNT = re.compile("[0-9]{1,12}")


async def ask(visit: Visit) -> Shown:
    """What would be done: the count first."""
    as_of = visit.now
    search = searched(visit, visit.query.text("q"), as_of=as_of)
    conditions = search.replay(as_of=as_of)
    replays, exact = 0, True
    if conditions is not None:
        replays, exact = await visit.parts.engine.count_replay(conditions)
    pending = await _pending(visit, search)
    return visit.show(
        "bulk.html",
        as_of=as_of,
        search=search,
        can_replay=conditions is not None,
        replays=replays,
        exact=exact,
        pending=min(pending, COUNTED_MOST),
        pending_more=pending > COUNTED_MOST,
        done=0,
        cancelling=False,
    )


async def _pending(visit: Visit, search: Search) -> int:
    if search.conditions.status not in {None, Status.PENDING}:
        return 0
    count, before = 0, None
    only = _only_pending(search)
    while count <= COUNTED_MOST:
        rows, before = await find(visit.parts.views, only, before_id=before, limit=200)
        count += len(rows)
        if before is None:
            break
    return count


def _only_pending(search: Search) -> Search:
    return replace(search, conditions=replace(search.conditions, status=Status.PENDING))


async def replay(visit: Visit) -> Answer:
    as_of = visit.as_of()
    conditions = searched(visit, visit.field("q"), as_of=as_of).replay(as_of=as_of)
    if conditions is None:
        reason = "asks for pending deliveries: only finished ones are replayed"
        raise Invalid(problems=(FieldProblem("q", reason),))
    job = await commands.start_replay(visit.parts, visit.who.caller, conditions)
    return visit.done("The replay has begun.", to=f"/replays/{show_id(REPLAY, job.id)}")


async def _there(visit: Visit) -> ReplayJob:
    """One that goes over all tenants is there for those only who see all."""
    found = await visit.parts.engine.replay_job(visit.number(REPLAY))
    if visit.who.tenant is not None and visit.who.tenant != found.filter.tenant:
        raise NotFound
    return found


async def job(visit: Visit) -> Shown:
    return visit.show("replay.html", job=await _there(visit))


async def stop(visit: Visit) -> Answer:
    found = await _there(visit)
    await visit.parts.engine.cancel_replay(found.id)
    said = "Stopped: what was replayed stays."
    return visit.done(said, to=f"/replays/{show_id(REPLAY, found.id)}")


async def cancel(visit: Visit) -> Shown | Answer:
    """A bounded number of them, and the page goes on with the next by itself."""
    search = searched(visit, visit.field("q"))
    rows, after = await find(
        visit.parts.views, _only_pending(search), before_id=None, limit=CANCELLED_AT_ONCE
    )
    done = int(visit.field("done")) if _COUNT.fullmatch(visit.field("done")) else 0
    for row in rows:
        try:
            await visit.parts.engine.cancel(row.delivery.id)
            done += 1
        except (AlreadyFinished, NotFound):
            continue  # It came through meanwhile.
    if not rows and after is None:
        to = "/deliveries?" + urlencode({"q": visit.field("q")})
        return visit.done(f"Cancelled: {done:,}.", to=to)
    return visit.show(
        "bulk.html",
        search=search,
        can_replay=False,
        replays=0,
        exact=True,
        pending=0,
        pending_more=False,
        done=done,
        cancelling=True,
    )


PAGES = (
    Page(path="/bulk", handler=ask, right=Right.MANAGE),
    Page(path="/bulk/replay", handler=replay, method="POST", right=Right.MANAGE),
    Page(path="/bulk/cancel", handler=cancel, method="POST", right=Right.MANAGE),
    Page(path="/replays/{id}", handler=job),
    Page(path="/replays/{id}/stop", handler=stop, method="POST", right=Right.MANAGE),
)
