"""Values for charts: rollups summed into equal time steps, and percentiles of histograms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from homing.languages.sentences import Sentence, say
from homing.ports.views import BOUNDS_MS, HOUR_MS, MINUTE_MS, Rollup

DAY_MS = 24 * HOUR_MS
# The time ranges of a chart: label, duration, and duration of one step.
SPANS: dict[str, tuple[Sentence, int, int]] = {
    "1h": (say("Hour"), HOUR_MS, MINUTE_MS),
    "24h": (say("Day"), DAY_MS, 10 * MINUTE_MS),
    "7d": (say("Week"), 7 * DAY_MS, 2 * HOUR_MS),
    "30d": (say("Month"), 30 * DAY_MS, 6 * HOUR_MS),
}
_LOWEST_MS = 0.5  # lower end of the first bucket
_LONGEST_MS = 3 * HOUR_MS


def steps(
    rollups: Iterable[Rollup], *, since: int, until: int, step_ms: int, offset: int = 0
) -> list[Rollup]:
    """One rollup for each step from ``since`` to ``until``; empty for steps without attempts."""
    first = since - since % step_ms + offset
    sums: dict[int, list[Rollup]] = {}
    for one in rollups:
        sums.setdefault(one.at - one.at % step_ms, []).append(one)
    return [total(sums.get(at, ()), at=at) for at in range(first, until, step_ms)]


def total(rollups: Sequence[Rollup], *, at: int = 0) -> Rollup:
    """The sum of the rollups, as one rollup at this time."""
    if not rollups:
        return Rollup(at)
    return Rollup(
        at,
        sum(it.delivered for it in rollups),
        sum(it.failed for it in rollups),
        sum(it.sender_errors for it in rollups),
        sum(it.dropped for it in rollups),
        tuple(map(sum, zip(*(it.took for it in rollups), strict=True))),
    )


def percentile_ms(took: Sequence[int], part: float) -> float | None:
    """An estimate of a percentile, interpolated within its bucket on a logarithmic scale."""
    count = sum(took)
    if not count:
        return None
    wanted, passed = part * count, 0
    lows = (_LOWEST_MS, *BOUNDS_MS)
    highs = (*BOUNDS_MS, _LONGEST_MS)
    for low, high, here in zip(lows, highs, took, strict=True):
        if here and passed + here >= wanted:
            inside = (wanted - passed) / here
            return float(low * (high / low) ** inside)
        passed += here
    return float(highs[-1])
