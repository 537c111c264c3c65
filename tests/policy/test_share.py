"""A share leaves something to every tenant, whatever the others take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.policy.share import Share

TOTAL = 100


def fill(share: Share, tenant: str, amount: int = 1) -> int:
    """What a tenant gets that takes as much as it may, so much at a time."""
    while share.may_take(tenant, amount):
        share.take(tenant, amount)
    return share.held_by(tenant)


@pytest.mark.parametrize(
    ("weight", "reserve", "alone", "second"),
    [
        (1, 0, 50, 25),
        (1, 20, 40, 20),
        (4, 0, 80, 16),
        (8, 6, 84, 9),
        (0.25, 20, 16, 13),
    ],
)
def test_what_a_tenant_gets_alone_and_after_another(
    weight: float, reserve: int, alone: int, second: int
) -> None:
    share = Share(TOTAL, weight=weight, reserve=reserve)
    assert fill(share, "first") == alone
    assert fill(share, "second") == second


def test_two_greedy_tenants_get_equal_parts() -> None:
    share = Share(TOTAL, weight=4, reserve=10)
    fill(share, "first")
    for _ in range(TOTAL):
        share.give("first")
        fill(share, "second")
        fill(share, "first")
    assert abs(share.held_by("first") - share.held_by("second")) <= 1


def test_the_reserve_is_for_tenants_that_hold_nothing() -> None:
    share = Share(TOTAL, weight=100, reserve=10)
    assert fill(share, "greedy") == 90
    assert not share.may_take("greedy")
    assert share.may_take("new", 10)
    assert not share.may_take("new", 11)
    share.take("new", 1)
    assert not share.may_take("new")


def test_what_was_spent_counts_beyond_the_total_until_it_is_returned() -> None:
    share = Share(TOTAL)
    share.take("dear", 150)
    assert not share.may_take("other")
    share.give("dear", 150)
    assert share.may_take("other", TOTAL)
    assert share.free == share.total


STEPS = st.lists(
    st.tuples(st.sampled_from("abcde"), st.integers(1, TOTAL), st.booleans()), max_size=60
)


@given(STEPS, st.sampled_from((0.25, 1, 4, 8)), st.integers(0, TOTAL // 2))
def test_never_more_than_the_total_is_taken_and_the_rule_holds_at_each_step(
    steps: list[tuple[str, int, bool]], weight: float, reserve: int
) -> None:
    share = Share(TOTAL, weight=weight, reserve=reserve)
    held: dict[str, list[int]] = {}
    for tenant, amount, gives in steps:
        mine = held.setdefault(tenant, [])
        if gives and mine:
            share.give(tenant, mine.pop())
        elif share.may_take(tenant, amount):
            if mine:
                assert sum(mine) < weight * (share.free - reserve)
                assert share.free - amount >= reserve
            share.take(tenant, amount)
            mine.append(amount)
        assert share.free == TOTAL - sum(map(sum, held.values())) >= 0
        assert all(share.held_by(name) == sum(taken) for name, taken in held.items())


@given(st.integers(1, 20), st.sampled_from((1, 4, 8)), st.integers(1, 20))
def test_greedy_tenants_that_hold_something_leave_the_reserve(
    tenants: int, weight: float, reserve: int
) -> None:
    share = Share(TOTAL, weight=weight, reserve=reserve)
    for number in range(tenants):
        share.take(str(number))
    taken = tenants
    for _ in range(TOTAL):
        for number in range(tenants):
            if share.may_take(str(number)):
                share.take(str(number))
                taken += 1
    assert share.free >= min(reserve, TOTAL - tenants)
    assert share.may_take("new")
