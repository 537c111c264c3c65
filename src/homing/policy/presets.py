"""The built-in schedules, and the check that every other schedule must pass.

``workfront`` is the default: its offsets are counted from the first failure, and its window ends
with the 11th retry. ``workfront-chained`` is the other reading of Workfront's documentation: the
same delays from failure to failure, 11 attempts in all, within 48 hours. ``standard-webhooks``
is the example timetable of the Standard Webhooks specification. ``once`` has no retries: the first
failure drops a delivery.
"""

from __future__ import annotations

from itertools import pairwise

from homing.errors import FieldProblem, Invalid
from homing.model import SPEC
from homing.policy.retry import Anchor, Schedule, exponential

WORKFRONT_BASE_MS = 84_800
RETRIES_MAX = 100
WINDOW_MAX_MS = 30 * 86_400_000
DEADLINE_MIN_MS = int(SPEC["deadline_ms"].min)
DEADLINE_MAX_MS = int(SPEC["deadline_ms"].max)

_SECOND = 1_000
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE

WORKFRONT = Schedule(
    name="workfront",
    delays_ms=exponential(WORKFRONT_BASE_MS, 11),
    anchor=Anchor.FIRST_FAILURE,
    window_ms=exponential(WORKFRONT_BASE_MS, 11)[-1],
)

WORKFRONT_CHAINED = Schedule(
    name="workfront-chained",
    delays_ms=exponential(WORKFRONT_BASE_MS, 10),
    anchor=Anchor.PREVIOUS_FAILURE,
    window_ms=48 * _HOUR,
)

STANDARD_WEBHOOKS = Schedule(
    name="standard-webhooks",
    delays_ms=(
        5 * _SECOND,
        5 * _MINUTE,
        30 * _MINUTE,
        2 * _HOUR,
        5 * _HOUR,
        10 * _HOUR,
        14 * _HOUR,
        20 * _HOUR,
        24 * _HOUR,
    ),
    anchor=Anchor.PREVIOUS_FAILURE,
    window_ms=76 * _HOUR,
)

ONCE = Schedule(
    name="once",
    delays_ms=(),
    anchor=Anchor.FIRST_FAILURE,
    window_ms=WORKFRONT.window_ms,  # how long it may wait for its one attempt
)

PRESETS: dict[str, Schedule] = {
    schedule.name: schedule for schedule in (WORKFRONT, WORKFRONT_CHAINED, STANDARD_WEBHOOKS, ONCE)
}


def check_schedule(schedule: Schedule) -> None:
    """Raises Invalid, with all problems at once."""
    problems = _delay_problems(schedule)
    delays = schedule.delays_ms
    if not 0 < schedule.window_ms <= WINDOW_MAX_MS:
        problems.append(FieldProblem("window_ms", "must be 1 ms to 30 days"))
    elif schedule.anchor is Anchor.FIRST_FAILURE and delays and schedule.window_ms < delays[-1]:
        problems.append(FieldProblem("window_ms", "must not end before the last retry"))
    if not 0.0 <= schedule.jitter <= 1.0:
        problems.append(FieldProblem("jitter", "must be 0 to 1"))
    if not DEADLINE_MIN_MS <= schedule.deadline_ms <= DEADLINE_MAX_MS:
        problems.append(FieldProblem("deadline_ms", "must be 1000 to 30000"))
    if not schedule.name:
        problems.append(FieldProblem("name", "must not be empty"))
    if problems:
        raise Invalid(problems=tuple(problems))


def _delay_problems(schedule: Schedule) -> list[FieldProblem]:
    delays = schedule.delays_ms
    if len(delays) > RETRIES_MAX:
        return [FieldProblem("delays_ms", f"must have at most {RETRIES_MAX} retries")]
    if min(delays, default=1) <= 0:
        return [FieldProblem("delays_ms", "must all be above 0")]
    rising = all(a < b for a, b in pairwise(delays))
    if schedule.anchor is Anchor.FIRST_FAILURE and not rising:
        return [FieldProblem("delays_ms", "must rise: they are offsets from the first failure")]
    return []
