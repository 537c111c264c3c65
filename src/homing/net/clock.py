"""The clock: time that never jumps, and the only file of the project that reads time.

Due times are compared with the clock for two days on end, so a wall clock that is set while we run
must neither send a retry early nor expire a backlog. Our time is the wall clock at the start plus
the monotonic clock. Where the wall clock has moved away since (drift, or somebody set it), ours is
drawn after it by at most 500 parts per million: a second of difference takes 34 minutes, and no
reader ever sees time stand still, go back or leap. In a fleet it is the database's clock that ours
begins with and is drawn after: ``follow`` says how far that one is ahead.

The wall clock is looked at inside ``now``, at most four times a second: no timer runs for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LOOK_EVERY_NS = 250_000_000
SLEW_DIVISOR = 2_000  # one part in 2,000 is 500 ppm
STEP_NS = 60_000_000_000
_NS_PER_MS = 1_000_000
_BITS = 40  # of a fraction; what is rounded off is less than a microsecond between two looks

monotonic: Callable[[], float] = time.monotonic


class SystemClock:
    """Wall clock at the start plus monotonic, drawn slowly towards the wall clock."""

    def __init__(
        self,
        *,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._stepped_ms: int | None = None
        self._ahead_ns = 0  # of the wall clock: the clock that we follow
        self._go_on_from(monotonic_ns(), wall_ns(), 0)

    def begin_at(self, now_ms: int) -> None:
        """Follow another clock from the start, before anything has read ours."""
        self._ahead_ns = now_ms * _NS_PER_MS - self._wall_ns()
        self._go_on_from(self._monotonic_ns(), now_ms * _NS_PER_MS, self._offset_ns)

    def follow(self, ahead_ms: int) -> None:
        """The clock that we follow is so far ahead of ours."""
        self._ahead_ns = self.now() * _NS_PER_MS + ahead_ms * _NS_PER_MS - self._wall_ns()

    def now(self) -> int:
        """Unix milliseconds UTC."""
        passed = self._monotonic_ns() - self._looked_ns
        if passed < LOOK_EVERY_NS:  # It is hot: few steps, with short whole numbers.
            return self._ms + (passed * self._pace + self._part >> _BITS)
        return self._look(passed)

    def stepped_at(self) -> int | None:
        """When the wall clock was last seen to have been set by more than a minute, in our time."""
        self.now()
        return self._stepped_ms

    def _look(self, passed: int) -> int:
        """At the wall clock: how far it is ahead of ours."""
        most = passed // SLEW_DIVISOR
        drawn = max(-most, min(most, self._offset_ns))  # no more than is missing, nor faster
        ours, expected = self._ours_ns + passed + drawn, self._offset_ns - drawn
        offset = self._wall_ns() + self._ahead_ns - ours
        if abs(offset - expected) > STEP_NS:
            self._stepped_ms = ours // _NS_PER_MS
        self._go_on_from(self._looked_ns + passed, ours, offset)
        return self._ms

    def _go_on_from(self, mono: int, ours: int, offset: int) -> None:
        self._looked_ns = mono  # monotonic, at the last look at the wall clock
        self._ours_ns = ours  # our time at the last look …
        self._ms, part_ns = divmod(ours, _NS_PER_MS)  # … in whole milliseconds, and the rest
        self._part = (part_ns << _BITS) // _NS_PER_MS
        self._offset_ns = offset  # how far the wall clock was ahead of ours then
        most = LOOK_EVERY_NS // SLEW_DIVISOR
        ours_ns = LOOK_EVERY_NS + max(-most, min(most, offset))  # until the next look
        self._pace = (ours_ns << _BITS) // (LOOK_EVERY_NS * _NS_PER_MS)  # in ms per ns
