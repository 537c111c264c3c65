"""Deliveries: search, explain the state of each, replay and cancel."""

from __future__ import annotations

import shlex
from typing import Any
from urllib.parse import urlencode

import msgspec

from homing.app.deliveries import Deliveries, Described
from homing.errors import Invalid
from homing.model import show_id
from homing.policy import exact
from homing.policy.sent_headers import logged_lines
from homing.web.dashboard.request import Page, PageRequest, Shown
from homing.web.dashboard.search import Search, find, read_search
from homing.web.dashboard.timeline import timeline
from homing.web.query import show_cursor
from homing.web.response import Response
from homing.web.show import DELIVERY

ROWS = 50
SHOWN_BYTES_MAX = 64 * 1024
SHOWN_DEPTH_MAX = 32  # of data that is shown with line breaks
_CHOICES = ("", "pending", "delivered", "dropped", "cancelled")


def searched(request: PageRequest, text: str, *, as_of: int | None = None) -> Search:
    """The search; durations count back from ``as_of``, by default now. Raises Invalid."""
    return read_search(text, now=as_of or request.now)


async def deliveries(request: PageRequest) -> Shown:
    text = request.query.text("q")
    before_id = request.query.cursor()
    try:
        search = searched(request, text)
    except Invalid as error:
        problem = " ".join(f"{it.field} {it.reason}." for it in error.problems)
        return request.show("deliveries.html", **_no_rows(text, problem))
    rows, after = await find(
        request.app.deliveries, request.caller, search, before_id=before_id, limit=ROWS
    )
    cursor = show_cursor(after)
    return request.show(
        "deliveries.html",
        text=text,
        problem="",
        rows=rows,
        first=before_id is None,
        older="" if cursor is None else "?" + urlencode({"q": text, "cursor": cursor}),
        choices=_choices(text),
        chosen=search.conditions.status,
        replayable=search.replay(as_of=request.now) is not None,
    )


def _no_rows(text: str, problem: str) -> dict[str, Any]:
    return {
        "text": text,
        "problem": problem,
        "rows": [],
        "first": True,
        "older": "",
        "choices": _choices(text),
        "chosen": None,
        "replayable": False,
    }


def _choices(text: str) -> list[tuple[str, str]]:
    """Each status with the address of this search for it; an empty status is any."""
    return [(status, _with_status(text, status)) for status in _CHOICES]


def _with_status(text: str, status: str) -> str:
    others = [it for it in text.split() if not it.startswith("status:")]
    if status:
        others.insert(0, f"status:{status}")
    return "/deliveries?" + urlencode({"q": " ".join(others)}) if others else "/deliveries"


async def delivery(request: PageRequest) -> Shown:
    described = await request.app.deliveries.get(request.caller, request.number(DELIVERY))
    row = described.row
    found = await request.app.events.data(request.caller, row.event_key, tenant=row.delivery.tenant)
    data = found or b""
    return request.show(
        "delivery.html",
        it=row,
        described=described,
        line=timeline(described, now=request.now),
        pretty=pretty(data),
        raw=_text(data),
        event_kept=found is not None,
        curl=_curl(described, data),
        lines=_lines,
        request_lines=lambda it: _lines(logged_lines(it)),
    )


def pretty(data: bytes) -> str:
    """JSON with line breaks; the text unchanged if it is too large, too deep or not JSON."""
    if len(data) > SHOWN_BYTES_MAX:
        return _text(data)
    try:
        if _is_deep(exact.decode(data)):
            return _text(data)
        return msgspec.json.format(data, indent=2).decode("utf-8", "replace")
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _text(data)


def _is_deep(value: object) -> bool:
    """Whether most of the output would be indentation: 64 KiB of brackets become 25 MiB."""
    level = [value]
    for _ in range(SHOWN_DEPTH_MAX):
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
    text = data[:SHOWN_BYTES_MAX].decode("utf-8", "replace")
    return text + "…" if len(data) > SHOWN_BYTES_MAX else text


def _lines(block: bytes) -> str:
    return block.decode("latin-1").replace("\r\n", "\n").strip()


def _curl(described: Described, data: bytes) -> str:
    """A curl command that repeats the last request; masked values have to be filled in."""
    if not described.attempts or len(data) > SHOWN_BYTES_MAX:
        return ""
    last = described.attempts[-1]
    parts = ["curl -i -X POST " + shlex.quote(described.row.url)]
    parts += [
        "-H " + shlex.quote(line)
        for line in _lines(logged_lines(last)).split("\n")
        if not line.startswith("webhook-signature")
    ]
    parts.append("--data-binary " + shlex.quote(_text(data)))
    return " \\\n  ".join(parts)


async def replay(request: PageRequest) -> Response:
    new = await request.app.deliveries.replay(request.caller, request.number(DELIVERY))
    return request.done("Replayed. This page shows the new delivery.", to=_at(new.id))


async def cancel(request: PageRequest) -> Response:
    cancelled = await request.app.deliveries.cancel(request.caller, request.number(DELIVERY))
    return request.done("Delivery cancelled.", to=_at(cancelled.id))


def _at(number: int) -> str:
    return f"/deliveries/{show_id(DELIVERY, number)}"


_ONE = "/deliveries/{id}"

PAGES = (
    Page(path="/deliveries", handler=deliveries, use_case=Deliveries.page),
    Page(path=_ONE, handler=delivery, use_case=Deliveries.get),
    Page(path=_ONE + "/replay", handler=replay, method="POST", use_case=Deliveries.replay),
    Page(path=_ONE + "/cancel", handler=cancel, method="POST", use_case=Deliveries.cancel),
)
