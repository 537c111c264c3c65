"""The difference between the wall clock and steady time, as text for people."""

from __future__ import annotations

from homing.languages.sentences import At, Sentence, Span, say
from homing.ports import ClockState
from homing.web.schemas import ClockShown
from homing.web.show import time_text

AGREE_MS = 10  # With a larger difference the clocks do not agree.
DIFFERENCE_MS = 60_000  # a larger difference is reported everywhere
STEP_REPORTED_MS = 3_600_000  # how long a step is reported


def clock_differs(clock: ClockState, *, now: int) -> bool:
    """Whether the wall clock differs from steady time, or was stepped within the last hour."""
    until = 0 if clock.stepped_at is None else clock.stepped_at + STEP_REPORTED_MS
    return abs(clock.ahead_ms) > DIFFERENCE_MS or now < until


def clock_detail(clock: ClockState) -> Sentence:
    """What happened to the wall clock, the consequences, and what to do."""
    step, difference = _step(clock), _difference(clock)
    end = say("Signatures use the wall clock; retries keep their schedule.")
    if step is not None and difference is not None:
        return say("{first} {second} {third}", first=step, second=difference, third=end)
    if first := step or difference:
        return say("{first} {second}", first=first, second=end)
    return say("The wall clock and steady time agree.")


def _step(clock: ClockState) -> Sentence | None:
    if clock.stepped_at is None:
        return None
    at, by = At(clock.stepped_at), Span(abs(clock.stepped_by_ms))
    if clock.stepped_by_ms > 0:
        return say("The wall clock was set forward by {by} at {at}.", by=by, at=at)
    return say("The wall clock was set back by {by} at {at}.", by=by, at=at)


def _difference(clock: ClockState) -> Sentence | None:
    if abs(clock.ahead_ms) <= AGREE_MS:
        return None
    difference = Span(abs(clock.ahead_ms))
    if abs(clock.ahead_ms) <= DIFFERENCE_MS:
        return say("The wall clock and steady time differ by {difference}.", difference=difference)
    if clock.ahead_ms > 0:
        return say(
            "Schedules, and the times that the API and the dashboard show, are {difference} behind "
            "the wall clock; restart the server to correct this.",
            difference=difference,
        )
    return say(
        "Schedules, and the times that the API and the dashboard show, are {difference} ahead of "
        "the wall clock; restart the server to correct this.",
        difference=difference,
    )


def clock_shown(clock: ClockState) -> ClockShown:
    """The clock as the API shows it."""
    return ClockShown(
        ahead_ms=clock.ahead_ms,
        steps=clock.steps,
        stepped_at=None if clock.stepped_at is None else time_text(clock.stepped_at),
        stepped_by_ms=clock.stepped_by_ms,
        detail=str(clock_detail(clock)),
    )
