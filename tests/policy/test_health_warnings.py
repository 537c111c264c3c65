"""People are warned, once, when half of a limit is reached."""

from __future__ import annotations

from typing import Any

import pytest

from homing.model import Health, State
from homing.policy import health as rules_of
from homing.policy.health import HealthRules, Verdict
from policy.build import DAY, HOUR, NOW, a_health


def fail(health: Health) -> Verdict:
    return rules_of.after_failure(health, HealthRules(), now=NOW)


LONG_GOOD_LIFE = {"attempts": 900_000, "failures": 2_000, "last_success_at": NOW - HOUR}


@pytest.mark.parametrize(
    ("before", "rule"),
    [
        pytest.param({"attempts": 100, "failures": 35}, "failure_rate", id="36 of 101"),
        pytest.param({"attempts": 100, "failures": 34}, None, id="35 of 101 is under 35 %"),
        pytest.param({"attempts": 139, "failures": 48}, None, id="49 of 140 is exactly 35 %"),
        pytest.param({"attempts": 99, "failures": 60}, None, id="100 attempts are too few"),
        pytest.param({**LONG_GOOD_LIFE, "consecutive_failures": 998}, None, id="999 in a row"),
        pytest.param(
            {**LONG_GOOD_LIFE, "consecutive_failures": 999},
            "consecutive_failures",
            id="1,000 in a row",
        ),
        pytest.param(
            {"consecutive_failures": 1_000, "last_success_at": NOW - 36 * HOUR, "warned": 2},
            None,
            id="1,001 in a row for exactly 36 h",
        ),
        pytest.param(
            {"consecutive_failures": 1_000, "last_success_at": NOW - 36 * HOUR - 1, "warned": 2},
            "no_success",
            id="1,001 in a row for 36 h and 1 ms",
        ),
        pytest.param(
            {"consecutive_failures": 999, "last_success_at": NOW - 40 * HOUR, "warned": 2},
            None,
            id="1,000 in a row for 40 h is not more than half",
        ),
        pytest.param(
            {
                "state": State.DISABLED,
                "consecutive_failures": 1_000,
                "last_success_at": NOW - 40 * HOUR,
            },
            "no_success",
            id="a disabled one is warned of freezing only",
        ),
        pytest.param(
            {"state": State.FROZEN, "consecutive_failures": 9_000}, None, id="a frozen one never"
        ),
    ],
)
def test_half_of_a_limit_is_warned_of(before: dict[str, Any], rule: str | None) -> None:
    verdict = fail(a_health(**{"first_attempt_at": NOW - 9 * DAY, **before}))
    assert verdict.change is None
    assert (verdict.warning and verdict.warning.rule) == rule


def test_a_failure_far_from_every_limit_leaves_no_mark() -> None:
    verdict = fail(a_health(attempts=3, failures=1))
    assert (verdict.warning, verdict.health.warned) == (None, 0)


def test_a_warning_is_given_once() -> None:
    first = fail(a_health(attempts=100, failures=40))
    assert first.warning is not None
    assert first.warning.numbers == {"attempts": 101, "failures": 41, "limit_percent": 70}
    assert fail(first.health).warning is None


def test_two_warnings_at_once_come_one_after_the_other() -> None:
    first = fail(a_health(attempts=100, failures=60, consecutive_failures=1_200))
    second = fail(first.health)
    third = fail(second.health)
    assert [one.warning and one.warning.rule for one in (first, second, third)] == [
        "failure_rate",
        "consecutive_failures",
        None,
    ]


def test_after_a_success_failures_in_a_row_are_warned_of_again_and_the_rate_is_not() -> None:
    health = a_health(attempts=900_000, failures=400_000, consecutive_failures=999, warned=1)
    warned = fail(health).health
    assert warned.warned == 3
    assert rules_of.after_success(warned, now=NOW).health.warned == 1
