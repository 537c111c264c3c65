"""Deliveries: search, explain the state of each, replay and cancel."""

from __future__ import annotations

from base64 import b64encode
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from homing.app.deliveries import Deliveries
from homing.app.exports import Exports
from homing.errors import Gone, Invalid, NotFound
from homing.languages.sentences import say
from homing.model import Attempt, show_id
from homing.policy.changed_text import Line, header_changes, line_changes
from homing.policy.nesting import is_deep
from homing.policy.sent_headers import logged_lines
from homing.policy.sent_request import INLINE_BYTES_MAX, SentRequest, curl_command, variable_of
from homing.web.dashboard.export import export_pages, export_response
from homing.web.dashboard.request import Page, PageRequest, Shown
from homing.web.dashboard.search import Search, find, read_search
from homing.web.dashboard.timeline import timeline
from homing.web.query import show_cursor
from homing.web.response import Response
from homing.web.schemas import DeliveryView
from homing.web.show import DELIVERY, delivery_view

ROWS = 50
SHOWN_BYTES_MAX = 64 * 1024
SHOWN_DEPTH_MAX = 32  # of data that is shown with line breaks,
PRETTY_BYTES_MAX = 4 * SHOWN_BYTES_MAX  # and its size then: most of more would be indentation
BYTES = b"application/octet-stream"
_CHOICES = ("", "pending", "delivered", "dropped", "cancelled", "superseded")


def searched(request: PageRequest, text: str, *, as_of: int | None = None) -> Search:
    """The search; durations count back from ``as_of``, by default now. Raises Invalid."""
    return read_search(text, now=as_of or request.now)


async def deliveries(request: PageRequest) -> Shown:
    text = request.query.text("q")
    before_id = request.query.cursor()
    try:
        search = searched(request, text)
    except Invalid as error:
        problem = request.reasons(error.problems)
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


async def export(request: PageRequest, form: str) -> Response:
    search = searched(request, request.query.text("q"))
    pages = await request.app.exports.deliveries(request.caller, search.conditions)
    return export_response("deliveries", form, pages, delivery_view, DeliveryView)


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
        data_path=data_path(row.delivery.tenant, row.event_key),
        base64=lambda it: b64encode(it).decode(),
        event_kept=found is not None,
        lines=header_lines,
        request_lines=lambda it: header_lines(logged_lines(it)),
    )


def data_path(tenant: str, key: str) -> str:
    """The address of the data of an event."""
    return f"/event-data/{quote(tenant)}/{quote(key, safe='')}"


def pretty(data: bytes) -> str:
    """JSON with line breaks; the text unchanged if it is too large, too deep or not JSON."""
    if len(data) <= SHOWN_BYTES_MAX and not is_deep(data, SHOWN_DEPTH_MAX):
        try:
            text = msgspec.json.format(data, indent=2)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return _text(data)
        if len(text) <= PRETTY_BYTES_MAX:
            return text.decode("utf-8", "replace")
    return _text(data)


def _text(data: bytes) -> str:
    text = data[:SHOWN_BYTES_MAX].decode("utf-8", "replace")
    return text + "…" if len(data) > SHOWN_BYTES_MAX else text


def header_lines(block: bytes) -> str:
    """Logged header lines as text."""
    return block.decode("latin-1").replace("\r\n", "\n").strip()


async def sent(request: PageRequest) -> Shown:
    """The request of an attempt as a curl command."""
    found = await _sent_request(request)
    file = _body_file(request)
    return request.show(
        "sent.html",
        sent=found,
        command_text=curl_command(found, body_file=file),
        variables=[(name, variable_of(name)) for name in found.masked],
        file=file if len(found.body) > INLINE_BYTES_MAX else "",
    )


async def sent_body(request: PageRequest) -> Response:
    """The body of an attempt's request as a file."""
    found = await _sent_request(request)
    name = f'attachment; filename="{_body_file(request)}"'
    return Response(200, found.body, BYTES, ((b"content-disposition", name.encode()),))


async def _sent_request(request: PageRequest) -> SentRequest:
    text = request.part("number")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    return await request.app.deliveries.sent_request(
        request.caller, request.number(DELIVERY), number
    )


def _body_file(request: PageRequest) -> str:
    return f"{show_id(DELIVERY, request.number(DELIVERY))}-{request.part('number')}.body"


async def compare(request: PageRequest) -> Shown:
    """Two attempts side by side: facts, headers and bodies, with what differs marked."""
    described = await request.app.deliveries.get(request.caller, request.number(DELIVERY))
    by_number = {str(it.number): it for it in described.attempts}
    chosen = [by_number.get(request.query.text(name)) for name in ("first", "second")]
    first, second = chosen
    if first is None or second is None:
        raise NotFound(say("The delivery has no such attempt. Choose two on its page."))
    return request.show(
        "compare.html",
        it=described.row,
        numbers=[it.number for it in described.attempts],
        first=first,
        second=second,
        request_headers=header_changes(
            header_lines(logged_lines(first)), header_lines(logged_lines(second))
        ),
        response_headers=header_changes(
            header_lines(first.response_headers), header_lines(second.response_headers)
        ),
        body=await _body_changes(request, first, second),
        excerpt=line_changes(pretty(first.excerpt), pretty(second.excerpt)),
    )


async def _body_changes(
    request: PageRequest, first: Attempt, second: Attempt
) -> tuple[int, list[Line]] | None:
    """The size of the first body and what changed in it; None if the event is not kept."""
    bodies = []
    for it in (first, second):
        try:
            sent = await request.app.deliveries.sent_request(
                request.caller, it.delivery_id, it.number
            )
        except Gone:
            return None
        bodies.append(sent.body)
    return len(bodies[0]), line_changes(*(pretty(it) for it in bodies))


async def replay(request: PageRequest) -> Response:
    new = await request.app.deliveries.replay(request.caller, request.number(DELIVERY))
    message = say("Replayed. This page shows the new delivery.")
    return request.done(message, to=_at(new.id))


async def try_now(request: PageRequest) -> Response:
    tried = await request.app.deliveries.try_now(request.caller, request.number(DELIVERY))
    message = say("The next attempt is made as soon as a slot is free.")
    return request.done(message, to=_at(tried.id))


async def cancel(request: PageRequest) -> Response:
    cancelled = await request.app.deliveries.cancel(request.caller, request.number(DELIVERY))
    return request.done(say("Delivery cancelled."), to=_at(cancelled.id))


def _at(number: int) -> str:
    return f"/deliveries/{show_id(DELIVERY, number)}"


_ONE = "/deliveries/{id}"
_SENT = _ONE + "/attempts/{number}/request"

PAGES = (
    Page(path="/deliveries", handler=deliveries, use_case=Deliveries.page),
    *export_pages("/deliveries", export, Exports.deliveries),
    Page(path=_ONE, handler=delivery, use_case=Deliveries.get),
    Page(path=_ONE + "/compare", handler=compare, use_case=Deliveries.get),
    Page(path=_SENT, handler=sent, use_case=Deliveries.sent_request),
    Page(path=_SENT + "/body", handler=sent_body, use_case=Deliveries.sent_request),
    Page(path=_ONE + "/replay", handler=replay, method="POST", use_case=Deliveries.replay),
    Page(path=_ONE + "/try", handler=try_now, method="POST", use_case=Deliveries.try_now),
    Page(path=_ONE + "/cancel", handler=cancel, method="POST", use_case=Deliveries.cancel),
)
