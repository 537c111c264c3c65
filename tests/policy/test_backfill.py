"""Backfills: from when on, at which rate, and for which subscriptions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from homing.errors import Conflict, Invalid
from homing.model import Verification
from homing.policy.backfill import check_start, check_subscription, gets_events, is_of_type
from policy.build import DAY, NOW, a_subscription

SUB = a_subscription()


def problems(since: int, per_second: int = 5) -> list[str]:
    try:
        check_start(since, per_second=per_second, retention_ms=30 * DAY, now=NOW)
    except Invalid as error:
        return [it.field for it in error.problems]
    return []


@pytest.mark.parametrize(
    ("since", "per_second", "fields"),
    [
        (NOW, 1, []),
        (NOW - 30 * DAY, 10_000, []),
        (NOW - 30 * DAY - 1, 1, ["from"]),
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
        check_start(0, per_second=1, retention_ms=30 * DAY, now=NOW)
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
