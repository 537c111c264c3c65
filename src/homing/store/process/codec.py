"""Calls and replies as bytes, on the connection between the server and a worker process.

A frame is its length, the number of its call, its kind, and its content. Publish, settle and the
replies with pending deliveries and their endpoints, which carry nearly all of the data, are msgpack
of the model's own structs, several times cheaper than pickling them; everything else is pickled.
Both ends are the same program.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from homing.model import Delivery, Event, Work
from homing.ports import (
    DueRows,
    EndpointStart,
    NewEvent,
    Place,
    Published,
    SettleBatch,
    SettleResult,
    Source,
)

START = 0  # the number of the call that starts a worker; calls of the store begin with 1

_HEAD = struct.Struct("!QQB")
_PICKLED, _PUBLISH, _SETTLE, _DUE, _STARTS = range(5)
_CALLS = {("flow", "publish"): _PUBLISH, ("flow", "settle"): _SETTLE}
_REPLIES = {
    **_CALLS,
    ("flow", "due"): _DUE,
    ("flow", "start_page"): _STARTS,
    ("flow", "endpoints"): _STARTS,
}


class Call(NamedTuple):
    """A method of a store port with its arguments."""

    number: int
    port: str
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Reply(NamedTuple):
    """The result of the call with this number, or the error that it raised."""

    number: int
    is_error: bool
    value: Any


class _Rows(Struct, array_like=True):
    """``DueRows`` without the events."""

    endpoint_id: int
    fresh: list[Delivery]
    retry: list[Delivery]
    more_fresh: bool
    next_due: int | None
    seen: Mapping[Source, Place]


class _Due(Struct, array_like=True):
    """Due rows, each event once however many deliveries it has."""

    events: list[Event]
    rows: list[_Rows]


class _Publish(Struct, array_like=True):
    requests: list[list[NewEvent]]
    number: int
    fence: int = 0


_encode = Encoder().encode
_decode_publish = Decoder(_Publish).decode
_decode_settle = Decoder(SettleBatch).decode
_decode_packed_due = Decoder(_Due).decode


def _encode_due(found: list[DueRows]) -> bytes:
    events: dict[int, Event] = {}
    packed: list[_Rows] = []
    for it in found:
        for work in (*it.fresh, *it.retry):
            events[work.event.id] = work.event
        fresh, retry = [work.delivery for work in it.fresh], [work.delivery for work in it.retry]
        packed.append(_Rows(it.endpoint_id, fresh, retry, it.more_fresh, it.next_due, it.seen))
    return _encode(_Due(list(events.values()), packed))


def _decode_due(content: memoryview) -> list[DueRows]:
    due = _decode_packed_due(content)
    events = {it.id: it for it in due.events}
    return [
        DueRows(
            it.endpoint_id,
            tuple([Work(delivery, events[delivery.event_id]) for delivery in it.fresh]),
            tuple([Work(delivery, events[delivery.event_id]) for delivery in it.retry]),
            it.more_fresh,
            it.next_due,
            it.seen,
        )
        for it in due.rows
    ]


_decode_of: dict[int, Callable[[memoryview], object]] = {  # a reply, by its kind
    _PUBLISH: Decoder(Published).decode,
    _SETTLE: Decoder(SettleResult).decode,
    _DUE: _decode_due,
    _STARTS: Decoder(list[EndpointStart]).decode,
}


def _frame(number: int, kind: int, content: bytes) -> bytes:
    return _HEAD.pack(len(content), number, kind) + content


def encode_call(call: Call) -> bytes:
    number, port, method, args, kwargs = call
    kind = _CALLS.get((port, method), _PICKLED)
    if kind == _PUBLISH:
        return _frame(number, kind, _encode(_Publish(*args, **kwargs)))
    if kind == _SETTLE:
        return _frame(number, kind, _encode(*args, **kwargs))
    return _frame(number, kind, pickle.dumps(call[1:], protocol=5))


def _decode_call(number: int, kind: int, content: memoryview) -> Call:
    if kind == _PUBLISH:
        it = _decode_publish(content)
        numbers = {"number": it.number, "fence": it.fence}
        return Call(number, "flow", "publish", (it.requests,), numbers)
    if kind == _SETTLE:
        return Call(number, "flow", "settle", (_decode_settle(content),), {})
    return Call(number, *pickle.loads(content))  # noqa: S301 - the parent process wrote it


def encode_reply(call: Call, value: object) -> bytes:
    kind = _REPLIES.get((call.port, call.method), _PICKLED)
    if kind == _PICKLED:
        return _frame(call.number, kind, pickle.dumps((False, value), protocol=5))
    if kind == _DUE:
        return _frame(call.number, kind, _encode_due(cast("list[DueRows]", value)))
    return _frame(call.number, kind, _encode(value))


def encode_error(number: int, error: Exception) -> bytes:
    return _frame(number, _PICKLED, pickle.dumps((True, error), protocol=5))


def _decode_reply(number: int, kind: int, content: memoryview) -> Reply:
    if kind != _PICKLED:
        return Reply(number, False, _decode_of[kind](content))
    return Reply(number, *pickle.loads(content))  # noqa: S301 - the worker process wrote it


class Frames:
    """The bytes received so far, from which complete frames are taken."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        self._data += data

    def calls(self) -> Iterator[Call]:
        for frame in self._whole():
            yield _decode_call(*frame)

    def replies(self) -> Iterator[Reply]:
        for frame in self._whole():
            yield _decode_reply(*frame)

    def _whole(self) -> Iterator[tuple[int, int, memoryview]]:
        """Complete frames; their contents are copies, because decoded values may refer to them."""
        while len(self._data) >= _HEAD.size:
            length, number, kind = _HEAD.unpack_from(self._data)
            end = _HEAD.size + length
            if len(self._data) < end:
                return
            content = bytes(memoryview(self._data)[_HEAD.size : end])
            del self._data[:end]
            yield number, kind, memoryview(content)
