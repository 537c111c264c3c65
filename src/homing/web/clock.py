"""The difference between the wall clock and steady time, as text for people."""

from __future__ import annotations

from homing.policy.explain import span_text
from homing.policy.sentences import At, Part, Sentence, join, say
from homing.ports import ClockState
from homing.web.schemas import ClockShown
from homing.web.show import sentence_text, time_text

DIFFERENCE_MS = 60_000  # a larger difference is reported
STEP_REPORTED_MS = 3_600_000  # how long a step is reported


def clock_differs(clock: ClockState, *, now: int) -> bool:
    """Whether the wall clock differs from steady time, or was stepped within the last hour."""
    until = 0 if clock.stepped_at is None else clock.stepped_at + STEP_REPORTED_MS
    return abs(clock.ahead_ms) > DIFFERENCE_MS or now < until


def clock_detail(clock: ClockState) -> Sentence:
    """What happened to the wall clock, the consequences, and what to do."""
    sentences: list[Part] = []
    if clock.stepped_at is not None:
        way = "forward" if clock.stepped_by_ms > 0 else "back"
        by = span_text(abs(clock.stepped_by_ms))
        stepped_at = At(clock.stepped_at)
        sentences.append(say("The wall clock was set {} by {} at {}. ", way, by, stepped_at))
    if abs(clock.ahead_ms) > DIFFERENCE_MS:
        way = "behind" if clock.ahead_ms > 0 else "ahead of"
        difference = span_text(abs(clock.ahead_ms))
        sentences.append(
            f"Schedules, and the times that the API and the dashboard show, are {difference} {way} "
            "the wall clock; restart the server to correct this. "
        )
    if not sentences:
        return say("The wall clock and steady time agree.")
    sentences.append("Signatures use the wall clock; retries keep their schedule.")
    return join(tuple(sentences))


def clock_shown(clock: ClockState) -> ClockShown:
    """The clock as the API shows it."""
    return ClockShown(
        ahead_ms=clock.ahead_ms,
        steps=clock.steps,
        stepped_at=None if clock.stepped_at is None else time_text(clock.stepped_at),
        stepped_by_ms=clock.stepped_by_ms,
        detail=sentence_text(clock_detail(clock)),
    )
