"""Subscriptions without a URL: read their events, acknowledge them, list and remove readers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Raw, Struct
from msgspec.json import Encoder

from homing.app.pull import LIMIT_MAX, WAIT_MS_MAX, Pull, Pulled, PulledEvent, ReaderShown
from homing.errors import (
    BadRequest,
    Conflict,
    Gone,
    Invalid,
    NotFound,
    StoreUnavailable,
    TooMany,
)
from homing.policy.pull import DEFAULT_READER
from homing.web.operation import Call, Operation, Param, choice
from homing.web.response import JSON, Response, json_response
from homing.web.schemas import Time
from homing.web.show import SUBSCRIPTION, time_or_none, time_text

LIMIT_DEFAULT = 100
PART_BYTES = 64 * 1024
EVENT_STREAM = b"text/event-stream"

_encode = Encoder().encode  # The data of an event is written as it is.

PullCursor = Annotated[str, Meta(description="Opaque, and valid for this subscription only.")]


class Begin(StrEnum):
    """Where a new reader begins."""

    OLDEST = "oldest"
    NOW = "now"


class PulledEventView(Struct, frozen=True, gc=False):
    """An event that was read."""

    id: str
    type: str
    time: str
    accepted_at: Time
    data: Raw
    cursor: Annotated[str, Meta(description="Acknowledges this event and those before it.")]
    key: Annotated[str | None, Meta(description="The object that it is about.")]


class PulledPage(Struct, frozen=True):
    """The next events, in the order of acceptance."""

    events: list[PulledEventView]
    cursor: Annotated[str, Meta(description="Acknowledges this page; read on after it.")]
    lag: Annotated[int, Meta(description="How many events follow this page.")]


class AckIn(Struct, frozen=True, forbid_unknown_fields=True):
    """Acknowledges events."""

    cursor: PullCursor
    reader: Annotated[str, Meta(description="The name of the reader.")] = DEFAULT_READER


class ReaderView(Struct, frozen=True):
    """A reader of a subscription, and how far it has acknowledged."""

    name: str
    cursor: PullCursor
    lag: Annotated[int, Meta(description="How many events it has not acknowledged.")]
    created_at: Time
    acked_at: Time | None


class ReaderList(Struct, frozen=True):
    """By name."""

    items: list[ReaderView]


def _event(it: PulledEvent) -> PulledEventView:
    event = it.event
    return PulledEventView(
        event.key,
        event.type,
        event.time,
        time_text(event.accepted_at),
        Raw(event.data),
        it.cursor,
        event.order_key or None,
    )


def reader_view(it: ReaderShown) -> ReaderView:
    return ReaderView(
        it.name, it.cursor, it.lag, time_text(it.created_at), time_or_none(it.acked_at)
    )


def _reader(call: Call) -> str:
    return call.query.text("reader") or DEFAULT_READER


def _from_now(call: Call) -> bool:
    return call.query.choice("from", Begin) is Begin.NOW


async def read(call: Call) -> Response:
    query = call.query
    found = await call.app.pull.read(
        call.caller,
        call.number(SUBSCRIPTION),
        reader=_reader(call),
        after=query.text("after") or None,
        from_now=_from_now(call),
        limit=query.count("limit", default=LIMIT_DEFAULT, maximum=LIMIT_MAX),
        wait_ms=query.duration_ms("wait") or 0,
    )
    return page_response(found)


def page_response(found: Pulled) -> Response:
    """A page as JSON. One that is large lives until its client has read it."""
    body = _encode(PulledPage([_event(it) for it in found.events], found.cursor, found.lag))
    if len(body) <= PART_BYTES:
        return Response(200, body, JSON)
    size = (b"content-length", b"%d" % len(body))
    return Response(200, content_type=JSON, headers=(size,), stream=_parts(found, body))


async def _parts(_held: Pulled, body: bytes) -> AsyncIterator[bytes]:
    for begin in range(0, len(body), PART_BYTES):
        yield body[begin : begin + PART_BYTES]


async def stream(call: Call) -> Response:
    query = call.query
    after = call.headers.get(b"last-event-id", b"").decode("latin-1")
    pages = await call.app.pull.stream(
        call.caller,
        call.number(SUBSCRIPTION),
        reader=_reader(call),
        after=after or query.text("after") or None,
        from_now=_from_now(call),
        limit=query.count("limit", default=LIMIT_DEFAULT, maximum=LIMIT_MAX),
    )
    return Response(200, content_type=EVENT_STREAM, stream=_messages(pages))


async def _messages(pages: AsyncIterator[Pulled]) -> AsyncIterator[bytes]:
    """Each event is a message whose id is its cursor; a comment keeps a quiet stream open.

    A page is sent in parts, so that a slow client has little of it waiting in its connection.
    """
    async for page in pages:
        if not page.events:
            yield b": waiting for events\n\n"
        part = b""
        for it in page.events:
            part += b"id: %b\ndata: %b\n\n" % (it.cursor.encode(), _one_line(_encode(_event(it))))
            if len(part) >= PART_BYTES:
                yield part
                part = b""
        if part:
            yield part
        del page


def _one_line(text: bytes) -> bytes:
    """JSON on one line: a line break in it can only be white space between values."""
    return text.replace(b"\r", b" ").replace(b"\n", b" ")


async def ack(call: Call) -> Response:
    given = call.content(AckIn)
    found = await call.app.pull.ack(
        call.caller, call.number(SUBSCRIPTION), reader=given.reader, cursor=given.cursor
    )
    return json_response(reader_view(found))


async def list_readers(call: Call) -> Response:
    found = await call.app.pull.readers(call.caller, call.number(SUBSCRIPTION))
    return json_response(ReaderList([reader_view(it) for it in found]))


async def remove_reader(call: Call) -> Response:
    await call.app.pull.remove_reader(call.caller, call.number(SUBSCRIPTION), _reader(call))
    return Response(204)


_ONE = "/v1/subscriptions/{id}"
_READER = Param("reader", f"The name of the reader; default: {DEFAULT_READER}.")
_PLACE = (
    _READER,
    Param("after", "A cursor; default: the events that the reader has not acknowledged."),
    choice(
        "from",
        "Where a new reader begins: with the oldest event (the default), or with the next one.",
        Begin,
    ),
    Param(
        "limit",
        f"The maximum number of events; default {LIMIT_DEFAULT}.",
        {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT},
    ),
)
_ERRORS = (Conflict, Gone, Invalid, NotFound, TooMany, StoreUnavailable)

OPERATIONS = (
    Operation(
        method="GET",
        path=_ONE + "/events",
        id="readEvents",
        use_case=Pull.read,
        summary="Read the next events of a subscription without a URL, in order of acceptance.",
        handler=read,
        response=PulledPage,
        params=(
            *_PLACE,
            Param(
                "wait",
                "How long to wait for an event if there is none, like 20s; "
                f"at most {WAIT_MS_MAX // 1000}s. Default: not at all.",
            ),
        ),
        errors=_ERRORS,
    ),
    Operation(
        method="GET",
        path=_ONE + "/stream",
        id="streamEvents",
        use_case=Pull.stream,
        summary="The same as server-sent events; Last-Event-ID continues after a cursor.",
        handler=stream,
        response=PulledEventView,
        response_type=EVENT_STREAM.decode(),
        params=_PLACE,
        errors=_ERRORS,
    ),
    Operation(
        method="POST",
        path=_ONE + "/ack",
        id="acknowledgeEvents",
        use_case=Pull.ack,
        summary="Acknowledge all events up to a cursor; a reader never moves backward.",
        handler=ack,
        request=AckIn,
        response=ReaderView,
        errors=(BadRequest, Conflict, Invalid, NotFound, StoreUnavailable),
    ),
    Operation(
        method="GET",
        path=_ONE + "/readers",
        id="listReaders",
        use_case=Pull.readers,
        summary="The readers of a subscription without a URL, and how far each is.",
        handler=list_readers,
        response=ReaderList,
        errors=(Conflict, Invalid, NotFound),
    ),
    Operation(
        method="DELETE",
        path=_ONE + "/readers",
        id="removeReader",
        use_case=Pull.remove_reader,
        summary="Remove a reader; read again, it begins with the oldest event.",
        handler=remove_reader,
        status=204,
        params=(_READER,),
        errors=(Conflict, Invalid, NotFound, StoreUnavailable),
    ),
)
