"""Histograms count every value in the first bucket whose bound is not below it."""

from __future__ import annotations

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from homing.engine.latency import LONG_S, SHORT_S, Histogram


def test_a_value_at_a_bound_is_within_it() -> None:
    histogram = Histogram((0.01, 1), per_second=1_000)
    histogram.add([0, 10, 11, 1_000, 1_001])
    histogram.add([])
    found = histogram.now()
    assert (found.bounds_s, found.counts, found.sum_s) == ((0.01, 1), (2, 2, 1), 2.022)


@given(
    st.sampled_from([SHORT_S, LONG_S]),
    st.lists(st.lists(st.integers(0, 200_000_000))),
    st.sampled_from([1_000, 1_000_000]),
)
def test_it_counts_what_it_is_given(
    bounds: tuple[float, ...], batches: list[list[int]], per_second: int
) -> None:
    histogram = Histogram(bounds, per_second=per_second)
    for batch in batches:
        histogram.add(batch)
    values = [it for batch in batches for it in batch]
    found = histogram.now()
    want = [0] * (len(bounds) + 1)
    for value in values:
        want[bisect_left(bounds, value / per_second)] += 1
    assert list(found.counts) == want
    assert found.sum_s == sum(values) / per_second
