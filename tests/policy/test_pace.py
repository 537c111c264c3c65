"""Turns: never more than the rate, and none given away."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.policy.pace import AHEAD_MS, Pace, interval_us, take


def _played(arrivals: list[int], rate: float) -> list[int]:
    """When each went, if it comes back at exactly the time it is told."""
    waiting = [(at, number, False) for number, at in enumerate(arrivals)]
    heapq.heapify(waiting)
    pace, went = Pace(), []
    while waiting:
        now, number, waited = heapq.heappop(waiting)
        pace, again_at = take(pace, interval_us=interval_us(rate), now=now, waited=waited)
        if again_at is None:
            went.append(now)
        else:
            assert now < again_at <= now + AHEAD_MS
            heapq.heappush(waiting, (again_at, number, True))
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


def test_newcomers_do_not_overtake() -> None:
    pace, _ = take(Pace(), interval_us=1_000_000, now=0, waited=False)
    pace, second = take(pace, interval_us=1_000_000, now=10, waited=False)
    assert second == 1_000
    pace, third = take(pace, interval_us=1_000_000, now=1_000, waited=False)
    assert third == 2_000  # The turn at 1,000 belongs to the second.
    _, now = take(pace, interval_us=1_000_000, now=1_000, waited=True)
    assert now is None


def test_whoever_is_a_little_late_still_has_his_turn() -> None:
    pace = Pace()
    for _ in range(3):
        pace, _ = take(pace, interval_us=100_000, now=0, waited=False)
    for late_at, following in ((130, 200), (240, 300)):
        pace, now = take(pace, interval_us=100_000, now=late_at, waited=True)
        assert (now, pace.next_us) == (None, following * 1000)


@pytest.mark.parametrize(("rate", "expected"), [(1, 1_000_000), (3, 333_334), (1000, 1000)])
def test_the_interval_is_rounded_up(rate: float, expected: int) -> None:
    assert interval_us(rate) == expected


def test_turns_are_given_for_a_minute_ahead() -> None:
    pace, answers = Pace(), []
    for _ in range(70):
        pace, at = take(pace, interval_us=1_000_000, now=0, waited=False)
        answers.append(at)
    assert answers[0] is None
    assert answers[1:61] == [n * 1000 for n in range(1, 61)]
    assert set(answers[61:]) == {AHEAD_MS}
