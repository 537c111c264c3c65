"""JSON with exact numbers: read without rounding, and written as they were read.

Integers are read as ``int``, all other numbers as ``Decimal``: numbers compare exactly as they were
written, without the rounding of a binary float.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from decimal import Decimal, InvalidOperation
from json import decoder as json_decoder
from typing import Any, TypeVar

import msgspec

Number = int | float | Decimal

_INT_CHARS_MAX = 4_300  # Python refuses to read a longer text as an integer
_EXPONENT_MAX = 10**17
_FLAT_BYTES = 64 * 1024  # read in one go, whatever their structure
_ONE_GO_NS = 8_000_000
_SLICE_STEPS = 1_000
_TOKEN = re.compile(
    r'[\s,:]*(?:(["\[\]{}])|(-?[0-9]+)(\.[0-9]+)?([eE][+-]?[0-9]+)?|(true|false|null))'
).match
_WORDS = {"true": True, "false": False, "null": None}
_UNNAMED = object()
_scan = json_decoder.scanstring  # type: ignore[attr-defined]
_T = TypeVar("_T")


def read_decimal(text: str) -> Decimal:
    """The value of a JSON number; an exponent out of range is replaced by the limit."""
    try:
        return Decimal(text)
    except InvalidOperation:
        digits, _, exponent = text.lower().partition("e")
        limit = -_EXPONENT_MAX if exponent.startswith("-") else _EXPONENT_MAX
        return Decimal(f"{digits}e{limit}")


def read_integer(text: str) -> int | Decimal:
    """The value of an integer of any length."""
    return int(text) if len(text) <= _INT_CHARS_MAX else Decimal(text)


_decoders: dict[object, msgspec.json.Decoder[Any]] = {}


def decoder(kind: type[_T]) -> msgspec.json.Decoder[_T]:
    """A decoder of this type, with exact numbers where the type allows any value."""
    found = _decoders.get(kind)
    if found is None:
        found = _decoders[kind] = msgspec.json.Decoder(kind, float_hook=read_decimal)
    return found


_any = msgspec.json.Decoder(float_hook=read_decimal)
_encoder = msgspec.json.Encoder(decimal_format="number")
encode = _encoder.encode


def decode(data: bytes | str) -> Any:
    """The JSON value of a text that is known to be JSON; raises ValueError if it is not."""
    try:
        return _any.decode(data)
    except (msgspec.DecodeError, RecursionError):  # Very deep, or a very long integer.
        return _read_whole(data)


def _read_whole(data: bytes | str) -> Any:
    walk = JsonWalk(data)
    while not walk.complete:
        walk.read(_SLICE_STEPS)
    return walk.value


def decoding(data: bytes, steps: int) -> Generator[None, int, tuple[Any, int]]:
    """As ``decode``, in slices if it takes long: returns the value, and the steps left.

    A text that is not JSON is null.
    """
    if not _is_heavy(data):
        try:
            return decode(data), steps - len(data) // 128
        except ValueError:
            return None, steps
    walk = JsonWalk(data)
    while not walk.complete:
        if steps <= 0:
            steps = yield
        try:
            steps -= walk.read(steps)
        except ValueError:
            return None, steps
    return walk.value, steps


def _is_heavy(data: bytes) -> bool:
    """Whether the fast decoder would block the event loop for long; counting is fast."""
    if len(data) <= _FLAT_BYTES:
        return False
    containers = data.count(b"[") + data.count(b"{")
    return (100 * containers + 20 * data.count(b",") + 250 * data.count(b":")) > _ONE_GO_NS


class JsonWalk:
    """Reads JSON of any depth, some tokens at a time; ``value`` is whole when ``complete``."""

    def __init__(self, data: bytes | str) -> None:
        self._text = data if isinstance(data, str) else data.decode("utf-8", "replace")
        self._at = 0
        self._root: list[Any] = []
        self._stack: list[list[Any] | dict[str, Any]] = [self._root]
        self._names: list[Any] = [None]  # of each open object: the name that waits for its value
        self.complete = False

    @property
    def value(self) -> Any:
        return self._root[0]

    def read(self, count: int) -> int:
        """Read up to ``count`` tokens; returns how many were read. Raises ValueError."""
        for done in range(1, count + 1):
            found = _TOKEN(self._text, self._at)
            if found is None:
                raise ValueError("this is not JSON")
            self._at = found.end()
            mark = found[1]
            if mark == '"':
                self._string()
            elif mark in {"[", "{"}:
                self._open(mark)
            elif mark is not None:
                self._close()
            else:
                self._put(_scalar(found))
            if self.complete:
                return done
        return count

    def _string(self) -> None:
        value, self._at = _scan(self._text, self._at, False)
        if self._names[-1] is _UNNAMED:
            self._names[-1] = value
        else:
            self._put(value)

    def _open(self, mark: str) -> None:
        value: Any = {} if mark == "{" else []
        self._put(value)
        self.complete = False
        self._stack.append(value)
        self._names.append(_UNNAMED if mark == "{" else None)

    def _close(self) -> None:
        self._stack.pop()
        self._names.pop()
        if not self._stack:
            raise ValueError("this is not JSON")
        self.complete = len(self._stack) == 1

    def _put(self, value: Any) -> None:
        top = self._stack[-1]
        if isinstance(top, list):
            top.append(value)
            self.complete = top is self._root
        else:
            top[self._names[-1]] = value
            self._names[-1] = _UNNAMED


def _scalar(found: re.Match[str]) -> Any:
    _, integer, fraction, exponent, word = found.groups()
    if word is not None:
        return _WORDS[word]
    if fraction is None and exponent is None:
        return read_integer(integer)
    return read_decimal(f"{integer}{fraction or ''}{exponent or ''}")
