"""Slow start: an endpoint begins with one slot and earns more by successes in a row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.policy.health import Ramp, ramp_break, ramp_reset, ramp_up


def succeed(ramp: Ramp, times: int, *, limit: int = 16) -> Ramp:
    for _ in range(times):
        ramp = ramp_up(ramp, limit=limit)
    return ramp


@pytest.mark.parametrize(
    ("successes", "slots"),
    [
        pytest.param(0, 1, id="at first one"),
        pytest.param(1, 2, id="one success doubles one slot"),
        pytest.param(2, 2, id="one more is not yet as many as it has slots"),
        pytest.param(3, 4, id="two in a row double two slots"),
        pytest.param(6, 4, id="three in a row are too few for four"),
        pytest.param(7, 8, id="four in a row double four slots"),
        pytest.param(14, 8, id="seven in a row are too few for eight"),
        pytest.param(15, 16, id="eight in a row reach the limit"),
        pytest.param(1_000, 16, id="and there it stays"),
    ],
)
def test_successes_in_a_row_double_the_slots(successes: int, slots: int) -> None:
    assert succeed(ramp_reset(), successes).slots == slots


def test_a_limit_that_is_no_power_of_two_is_reached_exactly() -> None:
    assert succeed(ramp_reset(), 100, limit=5).slots == 5


def test_a_limit_of_one_means_one() -> None:
    assert succeed(ramp_reset(), 100, limit=1) == Ramp(1, 0)


def test_at_the_limit_nothing_is_counted() -> None:
    assert ramp_up(Ramp(16), limit=16) == Ramp(16)


def test_a_lowered_limit_holds_from_the_next_success_on() -> None:
    assert ramp_up(Ramp(16), limit=4) == Ramp(4)


def test_a_timeout_or_connect_failure_puts_it_back_to_one() -> None:
    assert ramp_reset() == Ramp(slots=1, streak=0)


def test_any_other_failure_ends_the_row_and_keeps_the_slots() -> None:
    ramp = succeed(ramp_reset(), 5)
    assert ramp == Ramp(4, 2)
    assert ramp_break(ramp) == Ramp(4, 0)
    assert succeed(ramp_break(ramp), 3).slots == 4
    assert succeed(ramp_break(ramp), 4).slots == 8


@given(st.lists(st.sampled_from(["up", "break", "reset"])), st.integers(1, 20))
def test_slots_stay_between_one_and_the_limit(moves: list[str], limit: int) -> None:
    ramp = Ramp()
    for move in moves:
        if move == "up":
            ramp = ramp_up(ramp, limit=limit)
        else:
            ramp = ramp_reset() if move == "reset" else ramp_break(ramp)
        assert 1 <= ramp.slots <= limit
        assert 0 <= ramp.streak < ramp.slots
