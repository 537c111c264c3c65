"""The pace: how many attempts a second, and whose turn is when.

Turns lie one interval apart. Whoever finds the present one free takes it; whoever does not is told
the next turn that nobody has, and comes back then. Nothing is saved up: a quiet hour earns no
burst. So in any span of time there are never more attempts than the rate allows, and one.

Turns are given for a minute ahead and no further: who would come later asks again in a minute, so
that a rate that was set too low by mistake is soon forgotten once it is corrected.
"""

from __future__ import annotations

from msgspec import Struct

RATE_LEAST = 0.01
RATE_MOST = 1_000
AHEAD_MS = 60_000
LATE_US = 100_000  # who comes this late to his turn still takes that turn, and not a new one


class Pace(Struct, frozen=True, gc=False):
    """The next turn that may be taken, and the next that may be given, in microseconds."""

    next_us: int = 0
    free_us: int = 0


def interval_us(rate_per_second: float) -> int:
    """From one turn to the next, rounded up."""
    return -int(-1_000_000 // rate_per_second)


def take(pace: Pace, *, interval_us: int, now: int, waited: bool) -> tuple[Pace, int | None]:
    """Go now (None), or come back at that time. ``waited``: it comes back, or is a retry."""
    now_us = now * 1000
    if now_us >= pace.next_us and (waited or pace.free_us <= now_us):
        at_turn = pace.free_us > pace.next_us and now_us - pace.next_us <= LATE_US
        next_us = (pace.next_us if at_turn else now_us) + interval_us
        return Pace(next_us, max(pace.free_us, next_us)), None
    turn_us = max(pace.free_us, pace.next_us)
    if turn_us > now_us + AHEAD_MS * 1000:
        return pace, now + AHEAD_MS
    return Pace(pace.next_us, turn_us + interval_us), max(-(-turn_us // 1000), now + 1)
