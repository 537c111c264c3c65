"""Incidents: which URLs fail now, why, since when, how many deliveries wait, and what to do."""

from __future__ import annotations

from urllib.parse import urlencode

from homing.app.causes import Causes
from homing.model import Attempt, Cause
from homing.web.dashboard.pages.endpoints import WAITING_MAX
from homing.web.dashboard.request import Page, PageRequest, Shown
from homing.web.query import show_cursor
from homing.web.show import time_text

ROWS = 25
ENDED_ROWS = 10
SAMPLE_LINES = 6
SAMPLE_CHARS = 400
_MINUTE_MS = 60_000


async def incidents(request: PageRequest) -> Shown:
    query = request.query
    before_id = query.cursor()
    found = await request.app.causes.incidents(
        request.caller,
        tenant=query.tenant(),
        before_id=before_id,
        limit=ROWS,
        ended_max=ENDED_ROWS,
        waiting_max=WAITING_MAX,
    )
    cursor = show_cursor(found.after)
    older = {"cursor": cursor, "tenant": query.text("tenant")}
    return request.show(
        "incidents.html",
        rows=found.open,
        ended=found.ended,
        first=before_id is None,
        older="?" + urlencode({k: v for k, v in older.items() if v}) if cursor else "",
        waiting_max=WAITING_MAX,
        sample=sample,
        replay_since=replay_since,
    )


def sample(attempt: Attempt) -> str:
    """The first lines of a failing response."""
    text = attempt.excerpt.decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip()]
    shown = "\n".join(lines[:SAMPLE_LINES])
    cut = len(lines) > SAMPLE_LINES or len(shown) > SAMPLE_CHARS
    return shown[:SAMPLE_CHARS] + ("…" if cut else "")


def replay_since(cause: Cause) -> str:
    """The minute in which a cause was first seen: a form shows whole minutes."""
    return time_text(cause.first_seen // _MINUTE_MS * _MINUTE_MS)


PAGES = (Page(path="/incidents", handler=incidents, use_case=Causes.incidents),)
