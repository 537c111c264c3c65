"""Turns: never more than the rate, and none given away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.policy.pace import interval_us, take, turn_at


def _played(arrivals: list[int], rate: float) -> list[int]:
    """When each went, if all that wait come back when the next turn comes."""
    interval = interval_us(rate)
    last_us, went = -interval, []
    clock = 0
    for at in sorted(arrivals):
        now = max(at, clock)
        taken = take(last_us, interval_us=interval, now=now, waited=now > at)
        if taken is None:
            now = turn_at(last_us, interval_us=interval)
            taken = take(last_us, interval_us=interval, now=now, waited=True)
        assert taken is not None
        last_us, clock = taken, now
        went.append(now)
    return went


@given(
    st.lists(st.integers(0, 20_000), min_size=1, max_size=60),
    st.sampled_from((0.5, 1.0, 3.0, 7.0, 50.0, 300.0)),
)
def test_never_more_than_the_rate_in_any_span_and_one(arrivals: list[int], rate: float) -> None:
    went = _played(arrivals, rate)
    assert len(went) == len(arrivals)
    for first in range(len(went)):
        for last in range(first, len(went)):
            span_ms = went[last] - went[first] + 1  # A turn within a millisecond goes at its end.
            assert last - first + 1 <= rate * span_ms / 1000 + 1


def test_a_burst_goes_at_exactly_the_rate() -> None:
    assert _played([0] * 8, 4) == [0, 250, 500, 750, 1000, 1250, 1500, 1750]


def test_a_quiet_hour_earns_no_burst() -> None:
    assert _played([0, 3_600_000, 3_600_000], 1) == [0, 3_600_000, 3_601_000]


def test_whoever_is_a_little_late_still_has_his_turn() -> None:
    last_us = 0
    for late_at, counted_from in ((130, 100), (240, 200)):
        taken = take(last_us, interval_us=100_000, now=late_at, waited=True)
        assert taken == counted_from * 1000
        last_us = taken


def test_whoever_is_very_late_begins_anew() -> None:
    assert take(0, interval_us=100_000, now=5_000, waited=True) == 5_000_000


def test_a_turn_that_is_still_to_come_is_not_taken() -> None:
    assert take(0, interval_us=1_000_000, now=999, waited=True) is None
    assert turn_at(0, interval_us=1_000_000) == 1_000
    assert turn_at(1, interval_us=1_000_000) == 1_001  # never before its time


@pytest.mark.parametrize(("rate", "expected"), [(1, 1_000_000), (3, 333_334), (1000, 1000)])
def test_the_interval_is_rounded_up(rate: float, expected: int) -> None:
    assert interval_us(rate) == expected
