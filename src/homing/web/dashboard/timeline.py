"""The attempts and scheduled retries of a delivery on a logarithmic time axis.

The time between retries doubles, so on this axis they are evenly spaced: the first minute is as
wide as the last day. Positions are in units of the SVG that the template draws.
"""

from __future__ import annotations

from math import log10

from msgspec import Struct

from homing.app.deliveries import Described
from homing.languages.sentences import Sentence, say, span_sentence

WIDTH = 1_000
LEFT, RIGHT = 24, 24
_MARKS_S = (1, 10, 60, 600, 3_600, 36_000, 172_800)  # seconds: 1 s, 10 s, 1 min … 48 h


class Point(Struct, frozen=True):
    """A mark, an attempt or a retry at a position on the axis."""

    x: float
    label: str  # the outcome of an attempt, "ahead" for a retry, the text of a mark
    title: Sentence
    number: int = 0


class Timeline(Struct, frozen=True):
    """Everything that is drawn."""

    marks: list[Point]
    attempts: list[Point]
    ahead: list[Point]
    now: float | None
    end: float


def timeline(described: Described, *, now: int) -> Timeline:
    """The timeline of a delivery; it begins when the delivery was accepted."""
    delivery, row = described.row.delivery, described.row
    begin = delivery.accepted_at
    last = max(
        [
            delivery.expires_at,
            begin + 60_000,
            *(it.finished_at for it in described.attempts),
            *(at for _, at in described.ahead),
        ]
    )
    whole = log10(1 + (last - begin) / 1000)

    def place(at_ms: int) -> float:
        part = log10(1 + max(at_ms - begin, 0) / 1000) / whole
        return round(LEFT + part * (WIDTH - LEFT - RIGHT), 1)

    return Timeline(
        marks=[
            _mark(place(begin + seconds * 1000), seconds)
            for seconds in _MARKS_S
            if begin + seconds * 1000 <= last
        ],
        attempts=[
            Point(
                place(it.started_at),
                it.outcome.value,
                say("Attempt {number}", number=it.number),
                it.number,
            )
            for it in described.attempts
        ],
        ahead=[
            Point(place(at), "ahead", say("Retry {number}", number=n), n)
            for n, at in described.ahead
        ],
        now=place(now) if row.finished_at is None else None,
        end=place(delivery.expires_at),
    )


def _mark(x: float, seconds: int) -> Point:
    text = span_sentence(seconds * 1000)
    return Point(x, text, text)
