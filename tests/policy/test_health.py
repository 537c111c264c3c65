"""A failing endpoint is disabled, a hopeless one frozen; a success or a person enables it.

Promised: what-homing-promises.md#endpoint-health.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from homing.model import Health, State
from homing.policy import health as rules_of
from homing.policy.health import HEALTH_PRESETS, Change, HealthRules, Verdict
from policy.build import DAY, HOUR, NOW, a_health

RULES = HealthRules()


def fail(health: Health, *, now: int = NOW, rules: HealthRules = RULES) -> Verdict:
    return rules_of.after_failure(health, rules, now=now)


# Each case is the health *before* one more failure, and the state and rule after it.
FAILURES: list[Any] = [
    # The rate: more than 100 attempts, and more than 70 % of them failed.
    pytest.param(
        {"attempts": 99, "failures": 99, "consecutive_failures": 99},
        (State.ENABLED, None),
        id="100 attempts all failed: not yet more than 100",
    ),
    pytest.param(
        {"attempts": 100, "failures": 100, "consecutive_failures": 100},
        (State.DISABLED, "failure_rate"),
        id="101 attempts all failed: disabled",
    ),
    pytest.param(
        {"attempts": 109, "failures": 76},
        (State.ENABLED, None),
        id="77 of 110 is exactly 70 %: not over it",
    ),
    pytest.param(
        {"attempts": 109, "failures": 77},
        (State.DISABLED, "failure_rate"),
        id="78 of 110 is over 70 %: disabled",
    ),
    pytest.param(
        {"attempts": 100, "failures": 69},
        (State.ENABLED, None),
        id="70 of 101 is under 70 %",
    ),
    pytest.param(
        {"attempts": 100, "failures": 70},
        (State.DISABLED, "failure_rate"),
        id="71 of 101 is over 70 %: disabled",
    ),
    # Failures in a row, after a life so long and good that the rate does not move.
    pytest.param(
        {"attempts": 900_000, "failures": 2_000, "consecutive_failures": 1_998},
        (State.ENABLED, None),
        id="1,999 in a row",
    ),
    pytest.param(
        {"attempts": 900_000, "failures": 2_000, "consecutive_failures": 1_999},
        (State.DISABLED, "consecutive_failures"),
        id="2,000 in a row: disabled",
    ),
    # Freezing: more than 2,000 in a row and more than 72 h.
    pytest.param(
        {
            "state": State.DISABLED,
            "consecutive_failures": 1_999,
            "last_success_at": NOW - 73 * HOUR,
        },
        (State.DISABLED, None),
        id="2,000 in a row for 73 h: not more than 2,000",
    ),
    pytest.param(
        {
            "state": State.DISABLED,
            "consecutive_failures": 2_000,
            "last_success_at": NOW - 72 * HOUR,
        },
        (State.DISABLED, None),
        id="2,001 in a row for exactly 72 h: not more than 72 h",
    ),
    pytest.param(
        {
            "state": State.DISABLED,
            "consecutive_failures": 2_000,
            "last_success_at": NOW - 72 * HOUR - 1,
        },
        (State.FROZEN, "no_success"),
        id="2,001 in a row for 72 h and 1 ms: frozen",
    ),
    pytest.param(
        {"consecutive_failures": 2_000, "last_success_at": NOW - 72 * HOUR - 1},
        (State.FROZEN, "no_success"),
        id="an enabled one is frozen directly: freezing is looked at first",
    ),
    # Which moment the 72 h count from.
    pytest.param(
        {
            "state": State.DISABLED,
            "consecutive_failures": 3_000,
            "first_attempt_at": NOW - 72 * HOUR,
        },
        (State.DISABLED, None),
        id="never succeeded: 72 h from the first attempt",
    ),
    pytest.param(
        {
            "state": State.DISABLED,
            "consecutive_failures": 3_000,
            "first_attempt_at": NOW - 72 * HOUR - 1,
        },
        (State.FROZEN, "no_success"),
        id="never succeeded: 72 h and 1 ms from the first attempt",
    ),
    pytest.param(
        {
            "state": State.DISABLED,
            "consecutive_failures": 3_000,
            "last_success_at": NOW - 80 * HOUR,
            "manual_enable_at": NOW - 72 * HOUR,
        },
        (State.DISABLED, None),
        id="enabled by a person later than the last success: 72 h from that",
    ),
    pytest.param(
        {
            "state": State.DISABLED,
            "consecutive_failures": 3_000,
            "last_success_at": NOW - 80 * HOUR,
            "manual_enable_at": NOW - 90 * HOUR,
        },
        (State.FROZEN, "no_success"),
        id="enabled by a person before the last success: 72 h from the success",
    ),
    # Hopeless, however recent the last success.
    pytest.param(
        {
            "state": State.DISABLED,
            "consecutive_failures": 49_998,
            "last_success_at": NOW - HOUR,
        },
        (State.DISABLED, None),
        id="49,999 in a row within the hour",
    ),
    pytest.param(
        {
            "state": State.DISABLED,
            "consecutive_failures": 49_999,
            "last_success_at": NOW - HOUR,
        },
        (State.FROZEN, "hopeless"),
        id="50,000 in a row within the hour: frozen",
    ),
    # States in which nothing more happens.
    pytest.param(
        {"state": State.DISABLED, "attempts": 5_000, "failures": 5_000},
        (State.DISABLED, None),
        id="a disabled one is not disabled again",
    ),
    pytest.param(
        {"state": State.FROZEN, "consecutive_failures": 60_000},
        (State.FROZEN, None),
        id="a frozen one is not frozen again",
    ),
]


@pytest.mark.parametrize(("before", "expected"), FAILURES)
def test_after_one_more_failure(before: dict[str, Any], expected: tuple[State, str | None]) -> None:
    given_health = a_health(**{"first_attempt_at": NOW - 9 * DAY, **before})
    verdict = fail(given_health)
    state, rule = expected
    assert verdict.health.state is state
    assert (verdict.change and verdict.change.rule) == rule
    assert verdict.health.attempts == given_health.attempts + 1
    assert verdict.health.failures == given_health.failures + 1
    assert verdict.health.consecutive_failures == given_health.consecutive_failures + 1
    assert verdict.health.since == (NOW if rule else given_health.since)
    assert verdict.health.enabled_since == given_health.enabled_since
    if verdict.change is not None:
        assert (verdict.change.before, verdict.change.after) == (given_health.state, state)
        assert verdict.warning is None


def test_a_change_carries_its_rule_and_numbers() -> None:
    verdict = fail(a_health(attempts=100, failures=80, consecutive_failures=5))
    assert verdict.change == Change(
        State.ENABLED,
        State.DISABLED,
        "failure_rate",
        {"attempts": 101, "failures": 81, "limit_percent": 70},
    )
    old = {"first_attempt_at": NOW - 9 * DAY, "last_success_at": NOW - 80 * HOUR}
    verdict = fail(a_health(consecutive_failures=2_500, **old))
    assert verdict.change == Change(
        State.ENABLED,
        State.FROZEN,
        "no_success",
        {
            "consecutive_failures": 2_501,
            "limit": 2_000,
            "without_success_ms": 80 * HOUR,
            "limit_ms": 72 * HOUR,
        },
    )


def test_a_dead_url_is_disabled_by_its_101st_failure_and_not_before() -> None:
    health = a_health()
    for number in range(1, 102):
        verdict = fail(health, now=NOW + number)
        health = verdict.health
        assert (verdict.change is not None) == (number == 101)
    assert health.first_attempt_at == NOW + 1
    assert health.since == NOW + 101


def test_the_numbers_are_data() -> None:
    strict = HealthRules(rate_after_attempts=10, failure_percent=50)
    assert fail(a_health(attempts=11, failures=5), rules=strict).change is None
    assert fail(a_health(attempts=10, failures=5), rules=strict).change is not None


@pytest.mark.parametrize(
    ("row", "without_success_ms", "state"),
    [
        pytest.param(1_999, 7 * DAY + 1, State.FROZEN, id="2,000 in a row, over seven days"),
        pytest.param(1_998, 8 * DAY, State.DISABLED, id="1,999 in a row: not yet"),
        pytest.param(9_999, 7 * DAY, State.DISABLED, id="exactly seven days: not yet"),
        pytest.param(9_999, 80 * HOUR, State.DISABLED, id="72 hours are not enough"),
        pytest.param(49_999, HOUR, State.FROZEN, id="50,000 in a row at any time"),
    ],
)
def test_the_freeze_rule_of_the_faq_waits_for_seven_days(
    row: int, without_success_ms: int, state: State
) -> None:
    faq = HEALTH_PRESETS["workfront-faq"]
    old = {"first_attempt_at": NOW - 90 * DAY, "last_success_at": NOW - without_success_ms}
    before = a_health(state=State.DISABLED, consecutive_failures=row, **old)
    assert fail(before, rules=faq).health.state is state


def test_the_presets_differ_in_the_freeze_rule_alone() -> None:
    faq = HEALTH_PRESETS["workfront-faq"]
    same = replace(faq, consecutive_freeze=2_000, freeze_after_ms=72 * HOUR)
    assert same == HEALTH_PRESETS["workfront"] == HealthRules()


# --- successes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "after"),
    [
        pytest.param(State.ENABLED, State.ENABLED, id="enabled stays enabled"),
        pytest.param(State.DISABLED, State.ENABLED, id="disabled becomes enabled"),
        pytest.param(State.FROZEN, State.FROZEN, id="frozen stays frozen, however late it comes"),
    ],
)
def test_after_a_success(state: State, after: State) -> None:
    before = a_health(
        state=state,
        since=NOW - HOUR,
        attempts=200,
        failures=190,
        consecutive_failures=50,
        first_attempt_at=NOW - DAY,
        warned=7,
    )
    verdict = rules_of.after_success(before, now=NOW)
    health = verdict.health
    assert health.state is after
    assert health.consecutive_failures == 0
    assert health.last_success_at == NOW
    assert health.first_attempt_at == NOW - DAY
    if state is State.DISABLED:
        assert (health.attempts, health.failures) == (0, 0)
        assert (health.since, health.enabled_since) == (NOW, NOW)
        assert health.warned == 0
        assert verdict.change == Change(state, after, "success", {"disabled_ms": HOUR})
    else:
        assert (health.attempts, health.failures) == (201, 190)
        assert (health.since, health.enabled_since) == (before.since, before.enabled_since)
        assert health.warned == 1
        assert verdict.change is None


def test_the_first_outcome_ever_marks_the_first_attempt() -> None:
    assert rules_of.after_success(a_health(), now=NOW).health.first_attempt_at == NOW
    assert fail(a_health()).health.first_attempt_at == NOW


# --- people ---------------------------------------------------------------------------------


@pytest.mark.parametrize("state", State)
def test_a_person_enables_from_any_state_and_the_counters_start_again(state: State) -> None:
    before = a_health(
        state=state,
        since=NOW - HOUR,
        attempts=9,
        failures=8,
        consecutive_failures=7,
        first_attempt_at=NOW - DAY,
        last_success_at=NOW - HOUR,
        warned=7,
    )
    verdict = rules_of.enable(before, now=NOW)
    health = verdict.health
    assert health.state is State.ENABLED
    assert (health.attempts, health.failures, health.consecutive_failures) == (0, 0, 0)
    assert health.manual_enable_at == NOW
    assert health.warned == 0
    assert (health.first_attempt_at, health.last_success_at) == (NOW - DAY, NOW - HOUR)
    if state is State.ENABLED:
        assert verdict.change is None
        assert (health.since, health.enabled_since) == (before.since, before.enabled_since)
    else:
        numbers = {"attempts": 9, "failures": 8, "consecutive_failures": 7}
        assert verdict.change == Change(state, State.ENABLED, "enabled_by_person", numbers)
        assert (health.since, health.enabled_since) == (NOW, NOW)


@pytest.mark.parametrize("state", [State.ENABLED, State.DISABLED])
def test_a_person_freezes(state: State) -> None:
    before = a_health(state=state, attempts=9, failures=8, consecutive_failures=7)
    verdict = rules_of.freeze(before, now=NOW)
    assert verdict.health == replace(before, state=State.FROZEN, since=NOW)
    assert verdict.change is not None
    assert verdict.change.rule == "frozen_by_person"


def test_freezing_a_frozen_endpoint_changes_nothing() -> None:
    before = a_health(state=State.FROZEN)
    assert rules_of.freeze(before, now=NOW) == Verdict(before)


def test_a_manual_enable_gives_a_frozen_endpoint_72_hours_again() -> None:
    frozen = a_health(
        state=State.FROZEN, consecutive_failures=3_000, first_attempt_at=NOW - 9 * DAY
    )
    enabled = rules_of.enable(frozen, now=NOW).health
    tired = replace(enabled, attempts=3_000_000, consecutive_failures=2_500)
    assert fail(tired, now=NOW + 72 * HOUR).health.state is State.DISABLED
    assert fail(tired, now=NOW + 72 * HOUR + 1).health.state is State.FROZEN


# --- any order of outcomes ------------------------------------------------------------------

TIGHT = HealthRules(
    rate_after_attempts=4,
    consecutive_disable=6,
    consecutive_freeze=6,
    freeze_after_ms=20,
    consecutive_freeze_always=12,
)


@given(st.lists(st.tuples(st.sampled_from("ffffsef"), st.integers(0, 9)), max_size=60))
def test_whatever_happens_states_change_only_as_promised(moves: list[tuple[str, int]]) -> None:
    health, now = a_health(), NOW
    for move, passed in moves:
        now += passed
        before = health
        if move == "s":
            verdict = rules_of.after_success(health, now=now)
        elif move == "e":
            verdict = rules_of.enable(health, now=now)
        else:
            verdict = rules_of.after_failure(health, TIGHT, now=now)
        health = verdict.health
        changed = health.state is not before.state
        assert changed == (verdict.change is not None)
        assert health.since == (now if changed else before.since)
        assert 0 <= health.failures <= health.attempts
        if before.state is State.FROZEN:
            assert (health.state is State.ENABLED) == (move == "e")
        if health.state is State.ENABLED:
            assert health.consecutive_failures < TIGHT.consecutive_disable
        if verdict.change and verdict.change.after is State.ENABLED:
            assert health.enabled_since == now
            assert (health.attempts, health.failures) == (0, 0)


@given(
    st.lists(st.integers(NOW, NOW + DAY), min_size=1).map(sorted),
    st.sampled_from([State.ENABLED, State.FROZEN]),
    st.sampled_from([None, NOW - HOUR]),
    st.integers(0, 7),
)
def test_successes_counted_together_are_successes_counted_one_by_one(
    finished_at: list[int], state: State, first_at: int | None, warned: int
) -> None:
    before = replace(
        a_health(state=state, consecutive_failures=3),
        first_attempt_at=first_at,
        warned=warned,
    )
    one_by_one = before
    for now in finished_at:
        one_by_one = rules_of.after_success(one_by_one, now=now).health
    assert rules_of.after_successes(before, finished_at) == one_by_one
