"""Histograms of latencies in memory: counts per bucket and a sum, for the metrics of a process."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from functools import partial

from msgspec import Struct

SHORT_S = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30)
LONG_S = (0.01, 0.05, 0.25, 1, 5, 60, 600, 3_600, 86_400)


class Latencies(Struct, frozen=True):
    """A histogram at one moment."""

    bounds_s: tuple[float, ...]
    counts: tuple[int, ...]  # per bucket, not cumulative; the last one has no bound
    sum_s: float


class Histogram:
    """Counts latencies. A value is counted in the first bucket whose bound is not below it.

    Values are integers; ``per_second`` says how many of their units make a second. They are added
    once per commit, with two loops that run in C, because this is part of the hot path.
    """

    def __init__(self, bounds_s: tuple[float, ...], *, per_second: int) -> None:
        self._bounds_s, self._per_second = bounds_s, per_second
        self._bucket = partial(bisect_left, [round(it * per_second) for it in bounds_s])
        self._counts: Counter[int] = Counter()
        self._sum = 0

    def add(self, values: Sequence[int]) -> None:
        self._counts.update(map(self._bucket, values))
        self._sum += sum(values)

    def now(self) -> Latencies:
        counts = tuple(self._counts[it] for it in range(len(self._bounds_s) + 1))
        return Latencies(self._bounds_s, counts, self._sum / self._per_second)
