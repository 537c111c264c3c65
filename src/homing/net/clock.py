"""The clock: steady time, which never jumps, and the wall clock; only this module reads either.

Due times are compared with the clock for two days, so setting the wall clock meanwhile must neither
send a retry early nor expire a backlog. ``now`` is steady time: the wall clock at the start plus
the monotonic clock. If the wall clock differs later (by drift, or because it was set), steady time
approaches it by at most 500 parts per million: a difference of one second takes 34 minutes, and
steady time never stands still, goes back or leaps. In a fleet steady time begins with the clock of
the database and approaches that one: ``follow`` says how far it is ahead.

``wall`` is the wall clock of this machine at that moment. It is used where receivers and people
compare a time with their own clocks, above all in signatures.

``read`` has also what a later process needs to know how much time has passed since then, although
the wall clock may be set meanwhile: this run of the kernel and the time since it began, which
nobody can set, and whether the kernel calls the wall clock synchronised.

``now`` reads the wall clock at most four times a second. A step of more than a minute between two
readings is counted, and ``state`` reports it.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable
from pathlib import Path

from homing.ports import ClockReading, ClockState, DatabaseTime

LOOK_EVERY_NS = 250_000_000
SLEW_DIVISOR = 2_000  # one part in 2,000 is 500 ppm
STEP_NS = 60_000_000_000
_NS_PER_MS = 1_000_000
_TIMEX_BYTES = 1_024  # more than a ``struct timex``; zeros: it is only read
_TIME_ERROR = 5  # The clock is not synchronised.
_BITS = 40  # of a fraction; the rounding error between two readings is below a microsecond

monotonic: Callable[[], float] = time.monotonic
monotonic_ns: Callable[[], int] = time.monotonic_ns
thread_cpu_ns: Callable[[], int] = time.thread_time_ns
wall_ns: Callable[[], int] = time.time_ns


def wall_ms() -> int:
    """The wall clock in Unix milliseconds."""
    return wall_ns() // _NS_PER_MS


def kernel_run() -> tuple[str, int]:
    """A name of this run of the kernel, and how long ago it began (ms); ("", 0): unknown."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        began_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    except (OSError, AttributeError):  # not Linux, or /proc is hidden
        return "", 0
    with contextlib.suppress(OSError):  # An old kernel has no time namespaces.
        name += f" {Path('/proc/self/ns/time').readlink()}"
    return name, began_ns // _NS_PER_MS


def is_synchronised() -> bool:
    """Whether the kernel says that the wall clock follows a time server; False if it cannot say."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError, MemoryError):  # not Linux, or the service may not ask
        return False
    return 0 <= int(state) < _TIME_ERROR


class SystemClock:
    """The wall clock at the start plus the monotonic clock, slowly approaching the wall clock."""

    def __init__(
        self,
        *,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        kernel_run: Callable[[], tuple[str, int]] = kernel_run,
        is_synchronised: Callable[[], bool] = is_synchronised,
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._kernel_run, self._is_synchronised = kernel_run, is_synchronised
        self._followed_ns, self._apart = 0, False  # that clock minus the monotonic one
        self._steps, self._stepped_by_ms = 0, 0
        self._stepped_ms: int | None = None
        self._follows = False  # True: another clock than the wall clock of this machine
        self._ahead_ns = 0  # how far the followed clock is ahead of the wall clock
        wall = wall_ns()
        self._go_on_from(monotonic_ns(), wall, wall)

    def begin_at(self, now_ms: int) -> None:
        """Begin with another clock and follow it; called before the first ``now``."""
        self._follows = True
        mono, steady, wall = self._monotonic_ns(), now_ms * _NS_PER_MS, self._wall_ns()
        self._ahead_ns, self._followed_ns = steady - wall, steady - mono
        self._go_on_from(mono, steady, wall)

    def begin_with(self, time: DatabaseTime) -> None:
        """Begin with the database's clock and follow it; called before the first ``now``."""
        self._apart = time.apart
        self.begin_at(time.ms + self._ms_since(time))

    def go_on_at(self, now_ms: int) -> None:
        """Begin where steady time was, and approach the clock that it follows from there."""
        self._go_on_from(self._monotonic_ns(), now_ms * _NS_PER_MS, self._wall_ns())

    def follow(self, ahead_ms: int) -> None:
        """Approach a clock that is so far ahead of steady time now."""
        self._look(self._monotonic_ns() - self._looked_ns)
        before, steady = self._offset_ns, self._steady_ns
        self._ahead_ns = ahead_ms * _NS_PER_MS - self._wall_ahead_ns
        self._followed_ns = steady + ahead_ms * _NS_PER_MS - self._looked_ns
        self._go_on_from(self._looked_ns, steady, steady + self._wall_ahead_ns)
        self._note_step(self._offset_ns - before)

    def follow_database(self, time: DatabaseTime) -> None:
        """Approach the database's clock."""
        self.follow(time.ms + self._ms_since(time) - self.now())

    def _ms_since(self, time: DatabaseTime) -> int:
        return (self._monotonic_ns() - time.at_ns) // _NS_PER_MS

    def now(self) -> int:
        """Steady time: Unix milliseconds UTC."""
        passed = self._monotonic_ns() - self._looked_ns
        if passed < LOOK_EVERY_NS:  # The hot path: few steps, with small integers.
            return self._ms + (passed * self._pace + self._part >> _BITS)
        return self._look(passed)

    def wall(self) -> int:
        """The wall clock of this machine: Unix milliseconds UTC."""
        return self._wall_ns() // _NS_PER_MS

    def stepped_at(self) -> int | None:
        """When a step of a clock by more than a minute was last seen, in steady time."""
        self.now()
        return self._stepped_ms

    def state(self) -> ClockState:
        """How far the wall clock is ahead of steady time, and the steps seen since the start."""
        now = self.now()
        return ClockState(
            ahead_ms=self.wall() - now,
            steps=self._steps,
            stepped_at=self._stepped_ms,
            stepped_by_ms=self._stepped_by_ms,
        )

    def read(self) -> ClockReading:
        """Steady time, and what this machine's clocks show at the same moment."""
        steady, wall, mono = self.now(), self._wall_ns(), self._monotonic_ns()
        boot_id, boot_ms = self._kernel_run()
        return ClockReading(
            steady_ms=steady,
            clock_ms=(mono + self._followed_ns if self._follows else wall) // _NS_PER_MS,
            wall_ms=wall // _NS_PER_MS,
            boot_id=boot_id,
            boot_ms=boot_ms,
            synchronised=self._is_synchronised(),
            apart=self._apart,
        )

    def _look(self, passed: int) -> int:
        """Read the wall clock and go on from there; returns steady time in milliseconds."""
        most = passed // SLEW_DIVISOR
        drawn = max(
            -most, min(most, self._offset_ns)
        )  # at most the difference, and at most the slew rate
        steady, wall = self._steady_ns + passed + drawn, self._wall_ns()
        stepped = wall - steady - (self._wall_ahead_ns - drawn)
        if self._follows and abs(stepped) > STEP_NS:
            self._ahead_ns -= stepped  # The wall clock was set, the followed clock was not.
        self._go_on_from(self._looked_ns + passed, steady, wall)
        self._note_step(stepped)
        return self._ms

    def _note_step(self, by_ns: int) -> None:
        if abs(by_ns) > STEP_NS:
            self._steps += 1
            self._stepped_ms, self._stepped_by_ms = self._ms, by_ns // _NS_PER_MS

    def _go_on_from(self, mono: int, steady: int, wall: int) -> None:
        self._looked_ns = mono  # the monotonic clock at the last reading of the wall clock
        self._steady_ns = steady  # steady time at that reading …
        self._ms, part_ns = divmod(steady, _NS_PER_MS)  # … in whole milliseconds, and the rest
        self._part = (part_ns << _BITS) // _NS_PER_MS
        self._wall_ahead_ns = wall - steady  # how far the wall clock was ahead then …
        self._offset_ns = wall + self._ahead_ns - steady  # … and the followed clock
        most = LOOK_EVERY_NS // SLEW_DIVISOR
        steady_ns = LOOK_EVERY_NS + max(-most, min(most, self._offset_ns))  # until the next reading
        self._pace = (steady_ns << _BITS) // (LOOK_EVERY_NS * _NS_PER_MS)  # in ms per ns
