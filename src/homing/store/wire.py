"""How calls and answers are written on the line between the engine and the writer's process.

A frame is its length, its kind, and its content. Publish and settle, which carry nearly all there
is, are msgpack of the model's own structs, several times cheaper than pickling them; everything
else is pickled. Both ends are the same program.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from typing import Any, cast

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from homing.ports import NewEvent, Receipt, Refusal, SettleBatch

Call = tuple[str, str, tuple[Any, ...], dict[str, Any]]  # port, method, arguments

_HEAD = struct.Struct("!QB")
_PICKLED, _PUBLISH, _SETTLE, _PUBLISH_ERROR = range(4)
_OF_PUBLISH = {_PUBLISH, _PUBLISH_ERROR}


class _Publish(Struct, array_like=True):
    requests: list[list[NewEvent]]
    catalog_version: int
    number: int


_encode = Encoder().encode
_read_publish = Decoder(_Publish).decode
_read_settle = Decoder(SettleBatch).decode
_read_receipts = Decoder(list[list[Receipt] | Refusal]).decode
_read_ids = Decoder(frozenset[int]).decode


def _frame(kind: int, content: bytes) -> bytes:
    return _HEAD.pack(len(content), kind) + content


def write_call(call: Call) -> bytes:
    """The frame of a call."""
    port, method, args, kwargs = call
    if port == "flow" and method == "publish":
        return _frame(_PUBLISH, _encode(_Publish(*args, **kwargs)))
    if port == "flow" and method == "settle":
        return _frame(_SETTLE, _encode(*args, **kwargs))
    return _frame(_PICKLED, pickle.dumps(call, protocol=5))


def _read_call(kind: int, content: memoryview) -> Call:
    if kind == _PUBLISH:
        asked = _read_publish(content)
        told = {"catalog_version": asked.catalog_version, "number": asked.number}
        return "flow", "publish", (asked.requests,), told
    if kind == _SETTLE:
        return "flow", "settle", (_read_settle(content),), {}
    return cast("Call", pickle.loads(content))  # noqa: S301 - our parent


def write_answer(call: Call, value: object) -> bytes:
    """The frame of what a call returned."""
    if call[0] == "flow" and call[1] == "publish":
        return _frame(_PUBLISH, _encode(value))
    if call[0] == "flow" and call[1] == "settle":
        return _frame(_SETTLE, _encode(value))
    return _frame(_PICKLED, pickle.dumps((True, value), protocol=5))


def write_error(error: Exception, call: Call | None = None) -> bytes:
    """The frame of what a call raised."""
    kind = _PUBLISH_ERROR if call is not None and is_publish(call) else _PICKLED
    return _frame(kind, pickle.dumps((False, error), protocol=5))


def is_publish(call: Call) -> bool:
    """Return whether it is a publish: those are answered in their own order, before the rest."""
    return call[1] == "publish"


def _read_answer(kind: int, content: memoryview) -> tuple[bool, Any]:
    if kind == _PUBLISH:
        return True, _read_receipts(content)
    if kind == _SETTLE:
        return True, _read_ids(content)
    return cast("tuple[bool, Any]", pickle.loads(content))  # noqa: S301 - our child


class Frames:
    """The bytes that have come; whole frames are taken off them."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        self._data += data

    def calls(self) -> Iterator[Call]:
        for kind, content in self._whole():
            yield _read_call(kind, content)

    def answers(self) -> Iterator[tuple[bool, bool, Any]]:
        """Whether it answers a publish; then: fine, and the value; or not, and the error."""
        for kind, content in self._whole():
            yield kind in _OF_PUBLISH, *_read_answer(kind, content)

    def _whole(self) -> Iterator[tuple[int, memoryview]]:
        """Contents are copies: what is decoded may refer to them."""
        while len(self._data) >= _HEAD.size:
            length, kind = _HEAD.unpack_from(self._data)
            end = _HEAD.size + length
            if len(self._data) < end:
                return
            content = bytes(memoryview(self._data)[_HEAD.size : end])
            del self._data[:end]
            yield kind, memoryview(content)
