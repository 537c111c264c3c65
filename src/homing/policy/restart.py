"""Makes stored times fit the clock of a new process.

All stored times (due times, windows, holds, probes) are in steady time. While a process runs,
steady time ignores changes of the wall clock; a new process begins with the wall clock, in a fleet
with the database's. So a start asks how far steady time has come since the last process marked it,
and compares the result with the clock. A small difference is a matter of where steady time begins;
for a large one, stored times are moved. Either way every wait stays as long as it was. Without
that, retries would wait a day too long after a clock that ran a day ahead, and come a day early
after one that ran behind.

How much time has passed is told by the kernel, where the machine was not restarted meanwhile: it
counts from its own start, and nobody can set that. Else it is told by a wall clock that the kernel
called synchronised both times, or by the clocks of two machines, this one's and the database's,
that say the same. Where nothing tells it, no time has passed: a clock that was set looks like a
downtime, and retries that are late by the downtime are better than early ones, or than deliveries
that are dropped without their attempts.
"""

from __future__ import annotations

from msgspec import Struct

STEP_MS = 60_000  # For a larger difference stored times are moved.
AGREE_MS = 60_000  # Clocks whose times since the mark differ by no more than that agree.


class ClockReading(Struct, frozen=True):
    """Steady time, and what this machine's clocks show at the same moment."""

    steady_ms: int
    clock_ms: int  # that steady time follows: the wall clock; in a fleet the database's
    wall_ms: int
    boot_id: str = ""  # names this run of the kernel; "": unknown
    boot_ms: int = 0  # since the kernel started, with the time that the machine was suspended
    synchronised: bool = False  # The kernel says that the wall clock is right.
    apart: bool = False  # ``clock_ms`` is from another machine than ``wall_ms``.


class Resumed(Struct, frozen=True):
    """How a start makes its clock and stored times fit."""

    ahead_ms: int  # of its clock: where steady time has come to
    beside_ms: int  # the same, if processes ran all the time: they follow the clock
    move_by_ms: int  # 0: steady time begins ``ahead_ms`` ahead; else it begins with the clock
    move_from_ms: int  # earlier times were stored in another steady time, and stay
    since_ms: int  # after the move, times from then on are all in one steady time
    is_told: bool  # False: the clock says that time has passed, and nothing confirms it


def passed_ms(then: ClockReading, now: ClockReading) -> int | None:
    """How much time has really passed between two readings; None: that cannot be told."""
    if then.boot_id and then.boot_id == now.boot_id and now.boot_ms >= then.boot_ms:
        return now.boot_ms - then.boot_ms
    by_wall, by_clock = now.wall_ms - then.wall_ms, now.clock_ms - then.clock_ms
    if then.synchronised and now.synchronised and by_wall >= 0:
        return by_wall
    if then.apart and now.apart and abs(by_wall - by_clock) <= AGREE_MS:
        least = min(by_wall, by_clock)
        return least if least >= 0 else None
    return None


def resume(
    *, mark: ClockReading | None, since_ms: int, newest_ms: int, now: ClockReading
) -> Resumed:
    """What a start does, by the last process's mark and what the clocks show now.

    The mark is a reading and ``since_ms``; None: there is no mark. ``newest_ms`` is when the newest
    event was accepted: steady time was at least that.
    """
    clock, is_told = now.steady_ms, True
    if mark is None:  # The newest event may be old: only one in the future is a sign.
        since_ms, steady = clock, max(newest_ms, clock)
        beside = steady
    else:
        passed, by_clock = passed_ms(mark, now), now.clock_ms - mark.clock_ms
        at_least, is_told = max(mark.steady_ms, newest_ms), passed is not None
        steady = at_least if passed is None else mark.steady_ms + passed
        beside = at_least if by_clock < 0 else mark.steady_ms + by_clock
    ahead = steady - clock
    if abs(ahead) <= STEP_MS:
        return Resumed(ahead, beside - clock, 0, 0, since_ms, is_told)
    # A time in the future of this clock was stored by a clock that ran ahead.
    from_ms = min(since_ms, clock) if ahead > 0 else since_ms
    since = clock if mark is None else from_ms - ahead
    return Resumed(ahead, beside - clock, -ahead, from_ms, since, is_told)
