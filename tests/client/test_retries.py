"""Retries of a call: which failures are retried, how long the pauses are, and the deadline."""

from __future__ import annotations

import pytest

from homing_client.errors import (
    BadResponse,
    HomingClientError,
    Problem,
    TimedOut,
    Unreachable,
    refusal,
)
from homing_client.retries import PAUSE_MAX_S, RetryOptions, RetryRule, RetryState

UNSENT = Unreachable("refused", maybe_done=False)
LOST = TimedOut(maybe_done=True)
BUSY = refusal(503, Problem(), retry_after_s=None)
ALL = [UNSENT, LOST, BUSY]


def state(rule: RetryRule, timeout_s: float = 30.0) -> RetryState:
    return RetryState(rule, RetryOptions(timeout_s, 10.0), now=100.0)


def repeats(rule: RetryRule, error: HomingClientError) -> bool:
    try:
        state(rule).pause_s(error, now=100.0, random_fraction=0.5)
    except type(error):
        return False
    return True


@pytest.mark.parametrize(
    ("rule", "repeated"),
    [(RetryRule.ALWAYS, ALL), (RetryRule.UNSENT, [UNSENT]), (RetryRule.NEVER, [])],
)
def test_a_call_is_repeated_only_where_that_cannot_do_it_twice(
    rule: RetryRule, repeated: list[HomingClientError]
) -> None:
    assert [error for error in ALL if repeats(rule, error)] == repeated


@pytest.mark.parametrize("status", [400, 401, 404, 409, 410, 413, 422, 500])
def test_a_refusal_that_would_come_again_is_not_repeated(status: int) -> None:
    assert not repeats(RetryRule.ALWAYS, refusal(status, Problem(), retry_after_s=None))
    assert not repeats(RetryRule.ALWAYS, BadResponse())


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_refusal_that_may_pass_is_repeated(status: int) -> None:
    assert repeats(RetryRule.ALWAYS, refusal(status, Problem(), retry_after_s=None))


def test_no_call_is_repeated_if_retries_are_off() -> None:
    options = RetryOptions(retry=False)
    with pytest.raises(Unreachable):
        RetryState(RetryRule.ALWAYS, options, now=100.0).pause_s(
            UNSENT, now=100.0, random_fraction=0.5
        )


def test_pauses_double_up_to_a_limit_and_half_of_each_is_jitter() -> None:
    one = state(RetryRule.ALWAYS, timeout_s=1e6)
    low = [one.pause_s(UNSENT, now=100.0, random_fraction=0.0) for _ in range(8)]
    assert low == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.5, 2.5]
    assert one.pause_s(UNSENT, now=100.0, random_fraction=0.999) <= PAUSE_MAX_S


def test_retry_after_is_waited_for_in_full() -> None:
    busy = refusal(429, Problem(), retry_after_s=7.0)
    assert state(RetryRule.ALWAYS).pause_s(busy, now=100.0, random_fraction=0.0) == pytest.approx(
        7.05
    )


def test_a_pause_that_ends_after_the_deadline_is_not_begun() -> None:
    busy = refusal(503, Problem(), retry_after_s=31.0)
    with pytest.raises(type(busy)):
        state(RetryRule.ALWAYS).pause_s(busy, now=100.0, random_fraction=0.0)
    assert state(RetryRule.ALWAYS).pause_s(UNSENT, now=129.0, random_fraction=0.0) > 0
    with pytest.raises(Unreachable):
        state(RetryRule.ALWAYS).pause_s(UNSENT, now=129.99, random_fraction=0.0)


def test_an_attempt_ends_with_its_own_time_or_with_the_call() -> None:
    assert state(RetryRule.ALWAYS).attempt_deadline(100.0) == 110.0
    assert state(RetryRule.ALWAYS).attempt_deadline(125.0) == 130.0


def test_it_is_remembered_that_an_attempt_may_have_been_carried_out() -> None:
    one = state(RetryRule.ALWAYS)
    one.pause_s(UNSENT, now=100.0, random_fraction=0.0)
    assert not one.maybe_done
    one.pause_s(LOST, now=100.0, random_fraction=0.0)
    one.pause_s(UNSENT, now=100.0, random_fraction=0.0)
    assert one.maybe_done


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_is_more_than_nothing(timeout: float) -> None:
    with pytest.raises(ValueError, match="more than 0"):
        RetryOptions(timeout, 1.0)
