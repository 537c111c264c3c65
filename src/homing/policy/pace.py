"""Rate limits: how many attempts per second, and when the next one may start.

Turns are one interval apart. Unused turns are not saved: a quiet hour allows no burst. So in any
span of time there is at most one attempt more than the rate allows.
"""

from __future__ import annotations

LATE_US = 100_000  # an attempt that is at most this late takes its own turn, not a new one


def interval_us(rate_per_second: float) -> int:
    """The time from one turn to the next, rounded up."""
    return -int(-1_000_000 // rate_per_second)


def turn_at(last_us: int, *, interval_us: int) -> int:
    """The time of the turn after the last one, in milliseconds."""
    return -(-(last_us + interval_us) // 1000)


def take(last_us: int, *, interval_us: int, now: int, waited: bool) -> int | None:
    """Take the turn after the last one: its time in microseconds, None if it has not come yet.

    ``waited``: an attempt waited for this turn, so the next one is counted from its due time.
    """
    now_us, due_us = now * 1000, last_us + interval_us
    if now_us < due_us:
        return None
    return due_us if waited and now_us - due_us <= LATE_US else now_us
