"""Policies and rules as people write them: what is taken, what is refused, and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from homing.errors import FieldProblem, Invalid
from homing.policy.health import HealthRules
from homing.policy.presets import ONCE, WORKFRONT
from homing.policy.retry import Anchor
from homing.policy.tables import DAY_MS, PolicyTable, rules_from, schedule_from
from policy.build import HOUR, MINUTE

EITHER = "give either delays_ms, or base_ms and retries"
BASE = FieldProblem("base_ms", "must be 1 to 86400000")
RETRIES = FieldProblem("retries", "must be 0 to 40")


def problems(**table: Any) -> tuple[FieldProblem, ...]:
    with pytest.raises(Invalid) as caught:
        schedule_from("mine", PolicyTable(**table))
    return caught.value.problems


def test_the_workfront_schedule_is_base_and_retries() -> None:
    schedule = schedule_from("mine", PolicyTable(base_ms=84_800, retries=11))
    assert schedule.delays_ms == WORKFRONT.delays_ms
    assert schedule.window_ms == WORKFRONT.window_ms
    assert (schedule.name, schedule.anchor) == ("mine", Anchor.FIRST_FAILURE)
    assert (schedule.jitter, schedule.deadline_ms) == (0.0, 5_000)


@pytest.mark.parametrize(
    ("anchor", "window_ms"),
    [
        pytest.param(Anchor.FIRST_FAILURE, 5 * MINUTE, id="the longest delay"),
        pytest.param(Anchor.PREVIOUS_FAILURE, 6 * MINUTE, id="all delays together"),
    ],
)
def test_a_window_that_is_not_given_ends_with_the_last_retry(
    anchor: Anchor, window_ms: int
) -> None:
    table = PolicyTable(delays_ms=(MINUTE, 5 * MINUTE), anchor=anchor)
    assert schedule_from("mine", table).window_ms == window_ms


@pytest.mark.parametrize(
    "table",
    [
        pytest.param({"retries": 0}, id="0 retries"),
        pytest.param({"retries": 0, "base_ms": 1_000}, id="0 retries and a base"),
        pytest.param({"delays_ms": ()}, id="no delays"),
        pytest.param({"delays_ms": (), "anchor": Anchor.PREVIOUS_FAILURE}, id="no delays, chained"),
    ],
)
def test_a_policy_may_have_no_retries(table: dict[str, Any]) -> None:
    schedule = schedule_from("mine", PolicyTable(**table))
    assert (schedule.delays_ms, schedule.window_ms) == ((), ONCE.window_ms)
    own = schedule_from("mine", PolicyTable(**table, window_ms=HOUR))
    assert own.window_ms == HOUR


def test_what_a_table_gives_is_taken() -> None:
    table = PolicyTable(delays_ms=(MINUTE,), window_ms=HOUR, jitter=0.25, deadline_ms=9_000)
    schedule = schedule_from("mine", table)
    assert (schedule.window_ms, schedule.jitter, schedule.deadline_ms) == (HOUR, 0.25, 9_000)


@pytest.mark.parametrize(
    "table",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"base_ms": 1_000}, id="a base alone"),
        pytest.param({"retries": 3}, id="retries alone"),
        pytest.param({"delays_ms": (1_000,), "base_ms": 1_000}, id="delays and a base"),
        pytest.param({"delays_ms": (1_000,), "retries": 3}, id="delays and retries"),
        pytest.param({"delays_ms": (1_000,), "base_ms": 1, "retries": 3}, id="everything"),
    ],
)
def test_a_table_is_either_base_and_retries_or_delays(table: dict[str, Any]) -> None:
    assert problems(**table) == (FieldProblem("", EITHER),)


@pytest.mark.parametrize(
    ("base_ms", "retries", "wrong"),
    [
        (0, 3, (BASE,)),
        (DAY_MS + 1, 3, (BASE,)),
        (1_000, -1, (RETRIES,)),
        (1_000, 41, (RETRIES,)),
        (-1, -1, (BASE, RETRIES)),
    ],
)
def test_base_and_retries_have_bounds(
    base_ms: int, retries: int, wrong: tuple[FieldProblem, ...]
) -> None:
    assert problems(base_ms=base_ms, retries=retries) == wrong


@pytest.mark.parametrize("base_ms", [1, DAY_MS])
def test_the_bounds_of_the_base_are_within(base_ms: int) -> None:
    schedule = schedule_from("mine", PolicyTable(base_ms=base_ms, retries=1))
    assert schedule.delays_ms == (base_ms,)


def test_forty_retries_are_within_though_none_of_our_windows_is_so_long() -> None:
    assert {it.field for it in problems(base_ms=1, retries=40)} == {"window_ms"}


RANGES = {
    "rate_after_attempts": (1, 1_000_000),
    "failure_percent": (1, 100),
    "consecutive_disable": (1, 10_000_000),
    "consecutive_freeze": (1, 10_000_000),
    "freeze_after_ms": (1_000, 3_650 * 86_400_000),
    "consecutive_freeze_always": (1, 10_000_000),
    "probe_every_ms": (1_000, 86_400_000),
}


@pytest.mark.parametrize("name", RANGES)
def test_every_number_of_the_health_rules_has_its_range(name: str) -> None:
    low, high = RANGES[name]
    for value in (low, high):
        assert getattr(rules_from({name: value}, HealthRules()), name) == value
    for wrong in (low - 1, high + 1, float(low), True, str(low), None):
        with pytest.raises(Invalid) as caught:
            rules_from({name: wrong}, HealthRules())
        assert caught.value.problems == (FieldProblem(name, f"must be {low} to {high}"),)


def test_all_that_is_wrong_is_told_at_once_and_the_rest_stays_as_it_was() -> None:
    base = HealthRules(consecutive_disable=7)
    with pytest.raises(Invalid) as caught:
        rules_from({"patience": 3, "failure_percent": 101, "consecutive_freeze": 9}, base)
    assert caught.value.problems == (
        FieldProblem("patience", "is not the name of a setting"),
        FieldProblem("failure_percent", "must be 1 to 100"),
    )
    changed = rules_from({"consecutive_freeze": 9}, base)
    assert (changed.consecutive_disable, changed.consecutive_freeze) == (7, 9)
