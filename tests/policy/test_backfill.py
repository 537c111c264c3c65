"""Backfills: from when on, at which rate, and for which subscriptions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from homing.errors import Conflict, Invalid
from homing.model import Verification
from homing.policy.backfill import (
    PastStart,
    check_start,
    check_subscription,
    creation_problems,
    gets_events,
    is_of_type,
    past_start,
)
from policy.build import DAY, NOW, a_subscription

SUB = a_subscription()


def problems(since: int, per_second: int = 5) -> list[str]:
    try:
        check_start(PastStart(since, per_second), retention_ms=30 * DAY, now=NOW)
    except Invalid as error:
        return [it.field for it in error.problems]
    return []


@pytest.mark.parametrize(
    ("since", "per_second", "fields"),
    [
        (NOW, 1, []),
        (NOW - 30 * DAY, 10_000, []),
        (NOW - 30 * DAY - 600_000, 1, []),  # read a moment ago, or named by a refusal
        (NOW - 30 * DAY - 600_001, 1, ["from"]),
        (NOW + 1, 1, ["from"]),
        (NOW, 0, ["per_second"]),
        (NOW, 10_001, ["per_second"]),
        (NOW + 1, 0, ["from", "per_second"]),
    ],
)
def test_the_time_and_the_rate_of_a_backfill(
    since: int, per_second: int, fields: list[str]
) -> None:
    assert problems(since, per_second) == fields


def test_a_time_before_the_retention_is_answered_with_the_oldest() -> None:
    with pytest.raises(Invalid) as raised:
        check_start(PastStart(0), retention_ms=30 * DAY, now=NOW)
    (problem,) = raised.value.problems
    assert problem.reason.startswith("must not be before 2026-10-13T14:00:00")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"url": ""}, "readers"),
        ({"active": False}, "inactive"),
        ({"verification": Verification.CHALLENGE}, "proved"),
    ],
)
def test_a_subscription_that_gets_no_events_gets_no_past_ones(
    changes: dict[str, object], why: str
) -> None:
    check_subscription(SUB)
    assert gets_events(SUB)
    assert not gets_events(None)
    other = replace(SUB, **changes)
    assert not gets_events(other)
    with pytest.raises(Conflict, match=why):
        check_subscription(other)


def test_types_are_matched_as_in_publishing() -> None:
    some = replace(SUB, types=("order.*", "user.made"))
    assert is_of_type(some, "order.paid")
    assert is_of_type(some, "user.made")
    assert not is_of_type(some, "order")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"url": ""}, "readers start in the past by themselves"),
        ({"active": False}, "inactive"),
        ({"verification": Verification.CHALLENGE}, "proved"),
    ],
)
def test_a_new_subscription_that_gets_no_events_cannot_start_in_the_past(
    changes: dict[str, object], why: str
) -> None:
    when = {"retention_ms": 30 * DAY, "now": NOW}
    assert creation_problems(SUB, PastStart(NOW), **when) == ()
    (problem,) = creation_problems(replace(SUB, **changes), PastStart(NOW), **when)
    assert problem.field == "from"
    assert why in problem.reason
    both = creation_problems(replace(SUB, **changes), PastStart(0, 0), **when)
    assert [it.field for it in both] == ["from", "per_second", "from"]


def test_the_start_of_a_new_subscription_as_a_request_gives_it() -> None:
    assert past_start(None, None, now=NOW) == (None, ())
    assert past_start("1d", None, now=NOW) == (PastStart(NOW - DAY), ())
    assert past_start("1d", 7, now=NOW) == (PastStart(NOW - DAY, 7), ())
    past, (problem,) = past_start("yesterday", 7, now=NOW)
    assert (past, problem.field) == (None, "from")
    past, (problem,) = past_start(None, 7, now=NOW)
    assert (past, problem.field) == (None, "per_second")
    assert "rate_per_second" in problem.reason
