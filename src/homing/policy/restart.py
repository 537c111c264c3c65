"""How stored times fit the clock of a new process.

All stored times (due times, windows, holds, probes) are in steady time. While a process runs,
steady time does not follow a wall clock that is set; a new process begins with the wall clock. So a
start compares: steady time as it would be by now, had the last process gone on, and the clock as it
is. Where they differ, stored times are moved by the difference, and every wait stays as long as it
was. Without that, retries would wait a day too long after a clock that ran a day ahead, and come
early after one that was a day behind.

What cannot be known: whether the clock was set forward while no process ran. That looks like a
longer downtime.
"""

from __future__ import annotations

from msgspec import Struct

STEP_MS = 60_000  # a smaller difference is left alone
GAP_MS = 600_000  # of a longer downtime nobody can say that the clock was not set in it


class Resumed(Struct, frozen=True):
    """What a start does to stored times."""

    move_by_ms: int  # 0: they fit
    move_from_ms: int  # earlier ones were stored in another steady time, and stay
    since_ms: int  # from here on all are in one steady time, after the move


def resume(
    *, steady_ms: int | None, clock_ms: int, since_ms: int, newest_ms: int, now: int
) -> Resumed:
    """``steady_ms``, ``clock_ms`` and ``since_ms`` were marked by the last process.

    ``steady_ms`` is None where it left no mark. ``newest_ms`` is when the newest event was
    accepted: a clock that is behind that was set back. ``now`` is the clock at this start.
    """
    if steady_ms is None:  # The newest event may be old: only one that lies ahead tells something.
        ahead, since, known = max(newest_ms - now, 0), now, False
    else:
        gap = now - clock_ms
        was = steady_ms + gap if gap >= 0 else max(steady_ms, newest_ms)
        ahead, since, known = was - now, since_ms, gap <= GAP_MS
    if abs(ahead) <= STEP_MS:
        return Resumed(0, 0, since if known else now)
    # A time that lies ahead of the clock was surely stored by one that ran ahead.
    from_ms = min(since, now) if ahead > 0 else since
    return Resumed(-ahead, from_ms, from_ms - ahead if known else now)
