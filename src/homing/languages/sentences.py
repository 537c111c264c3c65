"""Sentences that can be said in every language.

A ``Sentence`` is a string: its English text, which the API, the command line and the log use. It
remembers the message and the values that it was made from, so that a page or a notice can say it in
another language (``language.Language``). The message is the key of its translations. It must be
written as a literal in the call of ``say`` or ``many``: ``make languages`` collects the messages
from there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol, assert_never

from msgspec import Struct

_PLACE = re.compile(r"\{([a-z_0-9]+)\}")


class At(Struct, frozen=True):
    """A time in a sentence; each page shows it in the time zone of its reader."""

    ms: int


class Span(Struct, frozen=True):
    """A duration in a sentence: ``640 ms``, ``4 min 14 s``, ``48 h 13 min``."""

    ms: int


class Number(Struct, frozen=True):
    """A number in a sentence with this many digits after the point; an ``int`` needs no Number."""

    value: float
    digits: int


class Capital(Struct, frozen=True):
    """A sentence that stands at the beginning of another: its first letter is a capital."""

    sentence: Sentence


# What may stand in place of a ``{name}``. A plain string is data, the same in every language.
Value = str | int | At | Span | Number | Capital


class Speaker(Protocol):
    """What a language does to say a sentence."""

    def message(self, one: str, other: str, count: int) -> str: ...
    def number(self, value: float, digits: int = 0) -> str: ...


class English:
    """The language that all messages are written in."""

    def message(self, one: str, other: str, count: int) -> str:
        return other if other and count != 1 else one

    def number(self, value: float, digits: int = 0) -> str:
        return grouped(value, digits)


def grouped(value: float, digits: int) -> str:
    """``1,204.5``; an int of any size is written whole."""
    return f"{value:,}" if isinstance(value, int) and not digits else f"{value:,.{digits}f}"


class Sentence(str):
    """Text in English that can be said in every language."""

    __slots__ = ("_count", "_one", "_other", "_values")
    _one: str
    _other: str  # empty: there is only one form
    _count: int
    _values: Mapping[str, Value]

    def __new__(cls, one: str, other: str, count: int, values: Mapping[str, Value]) -> Sentence:
        text = "".join(
            rfc3339(it.ms) if isinstance(it, At) else it
            for it in _pieces(one, other, count, values, _ENGLISH)
        )
        made = super().__new__(cls, text)
        made._one, made._other, made._count, made._values = one, other, count, values
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Sentence, (self._one, self._other, self._count, self._values)

    def pieces(self, speaker: Speaker) -> list[str | At]:
        """The text in the language of the speaker, with its times as values between the texts."""
        joined: list[str | At] = []
        for it in _pieces(self._one, self._other, self._count, self._values, speaker):
            if isinstance(it, str) and joined and isinstance(joined[-1], str):
                joined[-1] += it
            elif it != "":
                joined.append(it)
        return joined

    def text(self, show: Callable[[int], str], speaker: Speaker | None = None) -> str:
        """The text in the language of the speaker, with its times as ``show`` writes them."""
        pieces = self.pieces(speaker or _ENGLISH)
        return "".join(show(it.ms) if isinstance(it, At) else it for it in pieces)

    # --- in the database ----------------------------------------------------------------------

    def pack(self) -> dict[str, Any]:
        """The sentence as values that JSON can hold; ``unpack`` reads it."""
        values = {name: _packed(value) for name, value in self._values.items()}
        return {"say": self._one, "or": self._other, "count": self._count, "values": values}


_ENGLISH = English()


def say(message: str, /, **values: Value) -> Sentence:
    """The message with the values in place of each ``{name}``; no value is read as a message."""
    return Sentence(message, "", 0, values)


def many(one: str, other: str, /, count: int, **values: Value) -> Sentence:
    """The message for a count, which is ``{count}`` in it; languages have other forms than two."""
    return Sentence(one, other, count, {"count": count, **values})


def unpack(packed: object) -> str:
    """What ``pack`` wrote; a string that was stored as text stays as it is."""
    if not isinstance(packed, dict):
        return str(packed)
    values = {name: _unpacked(value) for name, value in packed["values"].items()}
    return Sentence(packed["say"], packed["or"], packed["count"], values)


def rfc3339(at_ms: int) -> str:
    """The time in UTC with milliseconds: ``2026-01-31T12:00:00.000Z``."""
    at = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


def span_sentence(ms: int) -> Sentence:
    """``640 ms``, ``5 s``, ``4 min 14 s``, ``72 h``, ``48 h 13 min``."""
    if ms < 1000:
        return say("{n} ms", n=max(ms, 0))
    seconds = ms // 1000
    if seconds < 60:
        return say("{n} s", n=seconds)
    minutes, second = divmod(seconds, 60)
    if minutes < 60:
        return say("{m} min {s} s", m=minutes, s=second) if second else say("{n} min", n=minutes)
    hours, minute = divmod(minutes, 60)
    return say("{h} h {m} min", h=hours, m=minute) if minute else say("{n} h", n=hours)


def _pieces(
    one: str, other: str, count: int, values: Mapping[str, Value], speaker: Speaker
) -> Iterator[str | At]:
    message = speaker.message(one, other, count)
    if not values:
        yield message
        return
    end = 0
    for place in _PLACE.finditer(message):
        yield message[end : place.start()]
        yield from _shown(values[place[1]], speaker)
        end = place.end()
    yield message[end:]


def _shown(value: Value, speaker: Speaker) -> Iterator[str | At]:
    match value:
        case Sentence():
            yield from value.pieces(speaker)
        case At() | str():
            yield value
        case int():
            yield speaker.number(value)
        case Span():
            yield from span_sentence(value.ms).pieces(speaker)
        case Number():
            yield speaker.number(value.value, value.digits)
        case Capital():
            first = True
            for piece in value.sentence.pieces(speaker):
                if first and isinstance(piece, str) and piece:
                    yield piece[0].upper() + piece[1:]
                    first = False
                else:
                    yield piece
        case _ as never:
            assert_never(never)


def _packed(value: Value) -> Any:
    match value:
        case Sentence():
            return value.pack()
        case At():
            return {"at": value.ms}
        case Span():
            return {"span": value.ms}
        case Number():
            return {"number": value.value, "digits": value.digits}
        case Capital():
            return {"capital": value.sentence.pack()}
        case str() | int():
            return value
        case _ as never:
            assert_never(never)


def _unpacked(value: Any) -> Value:
    match value:
        case {"say": _}:
            return unpack(value)
        case {"at": ms}:
            return At(ms)
        case {"span": ms}:
            return Span(ms)
        case {"number": number, "digits": digits}:
            return Number(number, digits)
        case {"capital": sentence}:
            found = unpack(sentence)
            assert isinstance(found, Sentence)
            return Capital(found)
        case int() | str():
            return value
        case _:
            raise ValueError(f"not a part of a sentence: {value!r}")
