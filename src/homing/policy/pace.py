"""The pace: how many attempts a second, and when the next one may go.

Turns lie one interval apart. Nothing is saved up: a quiet hour earns no burst. So in any span of
time there are never more attempts than the rate allows, and one.
"""

from __future__ import annotations

LATE_US = 100_000  # who comes this late to his turn still takes that turn, and not a new one


def interval_us(rate_per_second: float) -> int:
    """From one turn to the next, rounded up."""
    return -int(-1_000_000 // rate_per_second)


def turn_at(last_us: int, *, interval_us: int) -> int:
    """When the turn after the last one comes, in milliseconds."""
    return -(-(last_us + interval_us) // 1000)


def take(last_us: int, *, interval_us: int, now: int, waited: bool) -> int | None:
    """Take the turn after the last one: its time in microseconds, None if it is still to come.

    ``waited``: somebody waited for it, so that the next turn is counted from when it was due.
    """
    now_us, due_us = now * 1000, last_us + interval_us
    if now_us < due_us:
        return None
    return due_us if waited and now_us - due_us <= LATE_US else now_us
