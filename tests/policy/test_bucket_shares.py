"""Fair shares of the buckets: everyone computes the same, and it comes to rest."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.policy.bucket_shares import BUCKETS, Plan, plan, ranges, shares

Members = st.lists(st.integers(1, 40), min_size=1, max_size=9, unique=True)


@given(members=Members, seed=st.randoms(use_true_random=False))
def test_shares_add_up_and_differ_by_one_at_most(members: list[int], seed: object) -> None:
    owners = [seed.choice([None, *members, 99]) for _ in range(BUCKETS)]  # type: ignore[attr-defined]
    found = shares(members, owners)
    assert sum(found.values()) == BUCKETS
    assert max(found.values()) - min(found.values()) <= 1


@given(members=Members, before=Members, seed=st.randoms(use_true_random=False))
def test_from_any_start_a_few_rounds_bring_everyone_a_fair_share(
    members: list[int], before: list[int], seed: object
) -> None:
    owners: list[int | None] = [
        seed.choice([None, *before])  # type: ignore[attr-defined]
        for _ in range(BUCKETS)
    ]
    owners = [owner if owner in members else None for owner in owners]
    for _ in range(4):
        for me in members:
            step = plan(me, members, owners)
            assert not (step.take and step.give)
            for bucket in step.take:
                assert owners[bucket] is None
                owners[bucket] = me
            for bucket in step.give:
                assert owners[bucket] == me
                owners[bucket] = None
    held = Counter(owners)
    assert held[None] == 0
    assert {held[it] for it in members} <= {BUCKETS // len(members), -(-BUCKETS // len(members))}
    assert all(plan(me, members, owners) == plan(0, [], []) for me in members)


@given(members=Members)
def test_two_that_look_at_once_never_reach_for_the_same_bucket(members: list[int]) -> None:
    owners: list[int | None] = [None] * BUCKETS
    taken = Counter(bucket for me in members for bucket in plan(me, members, owners).take)
    assert taken == Counter(range(BUCKETS))


def test_one_that_leaves_or_serves_the_api_only_gives_up_everything() -> None:
    owners: list[int | None] = [1, 2] * 128
    assert plan(2, [1], owners).give == tuple(range(1, BUCKETS, 2))
    assert plan(2, [], owners).give == tuple(range(1, BUCKETS, 2))
    assert plan(1, [1], owners).take == ()


def test_who_joins_moves_no_more_than_its_share() -> None:
    owners: list[int | None] = [1, 2] * 128
    given_up = [*plan(1, [1, 2, 3], owners).give, *plan(2, [1, 2, 3], owners).give]
    assert len(given_up) == 85


def test_with_its_share_it_neither_takes_nor_gives() -> None:
    assert plan(1, [1, 2], [1] * 128 + [2] * 127 + [None]) == Plan()
    assert plan(2, [1, 2], [1] * 128 + [2] * 127 + [None]) == Plan(take=(BUCKETS - 1,))
    assert plan(1, [1, 2], [1] * 129 + [2] * 127) == Plan(give=(128,))


def test_the_odd_buckets_are_of_those_that_hold_the_most() -> None:
    assert shares([1, 2, 3], [3] * 86 + [1] * 85 + [2] * 85) == {1: 85, 2: 85, 3: 86}
    assert shares([1, 2, 3], [None] * BUCKETS) == {1: 86, 2: 85, 3: 85}
    assert shares([], [1] * BUCKETS) == {}


@pytest.mark.parametrize(
    ("buckets", "text"),
    [
        ([], ""),
        ([7], "7"),
        ([3, 2], "2-3"),
        ([0, 1, 2, 3, 7], "0-3,7"),
        ([0, 2, 3, 5, 6, 7], "0,2-3,5-7"),
    ],
)
def test_buckets_are_shown_as_ranges(buckets: list[int], text: str) -> None:
    assert ranges(buckets) == text
