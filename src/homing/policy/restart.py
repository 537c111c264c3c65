"""Makes stored times fit the clock of a new process.

All stored times (due times, windows, holds, probes) are in steady time. While a process runs,
steady time ignores changes of the wall clock; a new process begins with the wall clock. So a start
compares the steady time that the last process would have reached by now with the clock. If they
differ, stored times are moved by the difference, and every wait stays as long as it was. Without
that, retries would wait a day too long after a clock that ran a day ahead, and come a day early
after one that ran behind.

A clock that was set forward while no process ran cannot be detected: it looks like a longer
downtime.
"""

from __future__ import annotations

from msgspec import Struct

STEP_MS = 60_000  # a smaller difference is ignored
GAP_MS = 600_000  # in a longer downtime the clock may have been set


class Resumed(Struct, frozen=True):
    """How a start changes stored times."""

    move_by_ms: int  # 0: they fit already
    move_from_ms: int  # earlier times were stored in another steady time, and stay
    since_ms: int  # after the move, times from then on are all in one steady time


def resume(
    *, steady_ms: int | None, clock_ms: int, since_ms: int, newest_ms: int, now: int
) -> Resumed:
    """The change of stored times, from the mark of the last process and the clock of this one.

    The mark is ``steady_ms`` (None: there is no mark), ``clock_ms`` and ``since_ms``. ``newest_ms``
    is when the newest event was accepted: a clock before that was set back. ``now`` is the clock at
    this start.
    """
    if steady_ms is None:  # The newest event may be old: only one in the future is a sign.
        ahead, since, known = max(newest_ms - now, 0), now, False
    else:
        gap = now - clock_ms
        was = steady_ms + gap if gap >= 0 else max(steady_ms, newest_ms)
        ahead, since, known = was - now, since_ms, gap <= GAP_MS
    if abs(ahead) <= STEP_MS:
        return Resumed(0, 0, since if known else now)
    # A time in the future of this clock was stored by a clock that ran ahead.
    from_ms = min(since, now) if ahead > 0 else since
    return Resumed(-ahead, from_ms, from_ms - ahead if known else now)
