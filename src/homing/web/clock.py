"""The wall clock against steady time, as people are told of it."""

from __future__ import annotations

from homing.policy.explain import span_text
from homing.ports import ClockState
from homing.web.schemas import ClockShown
from homing.web.show import time_text

AWAY_MS = 60_000  # so far away from steady time the wall clock is worth a word
TOLD_MS = 3_600_000  # and so long a step is: nothing expires in that time


def clock_differs(clock: ClockState, *, now: int) -> bool:
    """Whether the wall clock is away from steady time, or was stepped within the last hour."""
    told_until = 0 if clock.stepped_at is None else clock.stepped_at + TOLD_MS
    return abs(clock.ahead_ms) > AWAY_MS or now < told_until


def clock_detail(clock: ClockState) -> str:
    """What happened to the wall clock, what it means and what to do; for people."""
    said = []
    if clock.stepped_at is not None:
        way = "forward" if clock.stepped_by_ms > 0 else "back"
        by = span_text(abs(clock.stepped_by_ms))
        said.append(f"The wall clock was set {way} by {by} at {time_text(clock.stepped_at)}.")
    if abs(clock.ahead_ms) > AWAY_MS:
        way = "behind" if clock.ahead_ms > 0 else "ahead of"
        away = span_text(abs(clock.ahead_ms))
        said.append(
            f"Schedules, and the times that the API and the dashboard show, are {away} {way} the "
            "wall clock; a restart brings them together."
        )
    if not said:
        return "The wall clock and steady time agree."
    said.append("Signatures carry the wall clock, retries keep their schedule.")
    return " ".join(said)


def clock_shown(clock: ClockState) -> ClockShown:
    """The clock as the API shows it."""
    return ClockShown(
        ahead_ms=clock.ahead_ms,
        steps=clock.steps,
        stepped_at=None if clock.stepped_at is None else time_text(clock.stepped_at),
        stepped_by_ms=clock.stepped_by_ms,
        detail=clock_detail(clock),
    )
