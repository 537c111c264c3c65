"""Deliveries: find any, see why it is where it is, replay or cancel it."""

from __future__ import annotations

import shlex
from typing import Any
from urllib.parse import urlencode

import msgspec

from homing.errors import Invalid, NotFound
from homing.model import show_id
from homing.policy import exact
from homing.ports import DeliveryRow
from homing.web import commands
from homing.web.answer import Answer
from homing.web.dashboard.search import Search, find, read_search
from homing.web.dashboard.timeline import timeline
from homing.web.dashboard.visit import Page, Right, Shown, Visit
from homing.web.describe import Described, describe
from homing.web.query import show_cursor
from homing.web.show import DELIVERY

ROWS = 50
SHOWN_BYTES_MOST = 64 * 1024
SHOWN_DEPTH_MOST = 32  # of data that is shown with line breaks
_CHOICES = ("", "pending", "delivered", "dropped", "cancelled")


def searched(visit: Visit, text: str, *, as_of: int | None = None) -> Search:
    """The search as it was understood at that moment, by default now; raises Invalid."""
    return read_search(text, tenant=visit.who.tenant, now=as_of or visit.now)


async def deliveries(visit: Visit) -> Shown:
    text = visit.query.text("q")
    before_id = visit.query.cursor()
    try:
        search = searched(visit, text)
    except Invalid as error:
        problem = " ".join(f"{it.field} {it.reason}." for it in error.problems)
        return visit.show("deliveries.html", **_nothing(text, problem))
    rows, after = await find(visit.parts.views, search, before_id=before_id, limit=ROWS)
    cursor = show_cursor(after)
    return visit.show(
        "deliveries.html",
        text=text,
        problem="",
        rows=rows,
        first=before_id is None,
        older="" if cursor is None else "?" + urlencode({"q": text, "cursor": cursor}),
        choices=[(word, _with_status(text, word)) for word in _CHOICES],
        chosen=search.conditions.status,
        replayable=search.replay(as_of=visit.now) is not None,
    )


def _nothing(text: str, problem: str) -> dict[str, Any]:
    return {
        "text": text,
        "problem": problem,
        "rows": [],
        "first": True,
        "older": "",
        "choices": [(word, _with_status(text, word)) for word in _CHOICES],
        "chosen": None,
        "replayable": False,
    }


def _with_status(text: str, word: str) -> str:
    """The address of the same search with another status."""
    others = [it for it in text.split() if not it.startswith("status:")]
    if word:
        others.insert(0, f"status:{word}")
    return "/deliveries?" + urlencode({"q": " ".join(others)}) if others else "/deliveries"


async def there(visit: Visit) -> DeliveryRow:
    """The delivery of the path; raises NotFound."""
    row = await visit.parts.views.delivery(visit.number(DELIVERY))
    if row is None:
        raise NotFound("There is no such delivery, or it is past retention.")
    visit.sees(row.delivery.tenant)
    return row


async def delivery(visit: Visit) -> Shown:
    row = await there(visit)
    described = await describe(visit.parts, row, now=visit.now)
    event = await visit.parts.views.event(row.event_key, tenant=row.delivery.tenant)
    data = b"" if event is None else event.event.data
    return visit.show(
        "delivery.html",
        it=row,
        described=described,
        line=timeline(described, now=visit.now),
        pretty=pretty(data),
        raw=_text(data),
        event_kept=event is not None,
        curl=_curl(described, data),
        lines=_lines,
    )


def pretty(data: bytes) -> str:
    """JSON with line breaks; as it is where it is too large or too deep, or no JSON."""
    if len(data) > SHOWN_BYTES_MOST:
        return _text(data)
    try:
        if _is_deep(exact.decode(data)):
            return _text(data)
        return msgspec.json.format(data, indent=2).decode("utf-8", "replace")
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _text(data)


def _is_deep(value: object) -> bool:
    """Whether its lines would be mostly indentation: 64 KiB of brackets become 25 MiB."""
    level = [value]
    for _ in range(SHOWN_DEPTH_MOST):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def _text(data: bytes) -> str:
    text = data[:SHOWN_BYTES_MOST].decode("utf-8", "replace")
    return text + "…" if len(data) > SHOWN_BYTES_MOST else text


def _lines(block: bytes) -> str:
    return block.decode("latin-1").replace("\r\n", "\n").strip()


def _curl(described: Described, data: bytes) -> str:
    """The last request again, from a shell; what is masked has to be filled in."""
    if not described.attempts or len(data) > SHOWN_BYTES_MOST:
        return ""
    last = described.attempts[-1]
    parts = ["curl -i -X POST " + shlex.quote(described.row.url)]
    parts += [
        "-H " + shlex.quote(line)
        for line in _lines(last.request_headers).split("\n")
        if not line.startswith("webhook-signature")
    ]
    parts.append("--data-binary " + shlex.quote(_text(data)))
    return " \\\n  ".join(parts)


async def replay(visit: Visit) -> Answer:
    row = await there(visit)
    new = await commands.replay(visit.parts, visit.who.caller, row.delivery)
    return visit.done("Replayed: this is the new delivery.", to=_at(new.id))


async def cancel(visit: Visit) -> Answer:
    row = await there(visit)
    await visit.parts.engine.cancel(row.delivery.id)
    return visit.done("Cancelled.", to=_at(row.delivery.id))


def _at(number: int) -> str:
    return f"/deliveries/{show_id(DELIVERY, number)}"


_ONE = "/deliveries/{id}"

PAGES = (
    Page(path="/deliveries", handler=deliveries),
    Page(path=_ONE, handler=delivery),
    Page(path=_ONE + "/replay", handler=replay, method="POST", right=Right.MANAGE),
    Page(path=_ONE + "/cancel", handler=cancel, method="POST", right=Right.MANAGE),
)
