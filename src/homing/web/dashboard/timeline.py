"""The life of a delivery on a logarithmic axis of time: what was tried, and what is ahead.

Retries double their distance, so on this axis they stand evenly: the first minute is as wide as the
last day. Everything is in units of the drawing, from which the template makes an SVG.
"""

from __future__ import annotations

from math import log10

from msgspec import Struct

from homing.app.deliveries import Described
from homing.model import Outcome

WIDTH = 1_000
LEFT, RIGHT = 24, 24
_MARKS = (
    (1, "1 s"),
    (10, "10 s"),
    (60, "1 min"),
    (600, "10 min"),
    (3_600, "1 h"),
    (36_000, "10 h"),
    (172_800, "48 h"),
)


class Point(Struct, frozen=True):
    """Something at a place on the axis."""

    x: float
    word: str  # the outcome, or what it is
    title: str
    number: int = 0


class Timeline(Struct, frozen=True):
    """All that is drawn."""

    marks: list[Point]
    attempts: list[Point]
    ahead: list[Point]
    now: float | None
    end: float


def timeline(described: Described, *, now: int) -> Timeline:
    """Where everything stands, counted from acceptance."""
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
            Point(place(begin + seconds * 1000), text, text)
            for seconds, text in _MARKS
            if begin + seconds * 1000 <= last
        ],
        attempts=[
            Point(place(it.started_at), _word(it.outcome), f"Attempt {it.number}", it.number)
            for it in described.attempts
        ],
        ahead=[Point(place(at), "ahead", f"Retry {n}", n) for n, at in described.ahead],
        now=place(now) if row.finished_at is None else None,
        end=place(delivery.expires_at),
    )


def _word(outcome: Outcome) -> str:
    return outcome.value
