"""Slots are shared out: nobody starves, a reserve stays, one alone has most of the lane."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.policy.slots import FAILING, NEW, RANKS, TRUSTED, LaneSlots, needed, reserve_of


def fill(lane: LaneSlots[str], tenant: str, rank: int, count: int = 10_000) -> int:
    """This tenant takes slots while it may: how many it got."""
    got = 0
    while got < count and lane.may_take(tenant, rank) and lane.free > 0:
        lane.take(tenant, rank)
        got += 1
    return got


@pytest.mark.parametrize(
    ("rank", "most"), [(TRUSTED, 427), (NEW, 384), (FAILING, 320)], ids=["trusted", "new", "fails"]
)
def test_a_tenant_that_is_alone_may_use_most_of_the_lane(rank: int, most: int) -> None:
    assert fill(LaneSlots(512), "a", rank) == most


def test_a_lane_of_one_slot_is_used() -> None:
    assert fill(LaneSlots(1), "a", FAILING) == 1
    assert reserve_of(1) == 0


def test_endpoints_that_fail_leave_slots_to_the_healthy_ones_of_their_tenant() -> None:
    lane: LaneSlots[str] = LaneSlots(512)
    fill(lane, "a", FAILING)
    fill(lane, "a", NEW)
    assert lane.may_take("a", TRUSTED)
    assert fill(lane, "a", TRUSTED) > 30


def test_two_greedy_tenants_have_about_the_same_once_slots_have_come_back() -> None:
    lane: LaneSlots[str] = LaneSlots(512)
    fill(lane, "first", TRUSTED)
    for _ in range(1_000):  # Attempts end, and each tenant takes what it may.
        lane.give("first", TRUSTED)
        fill(lane, "second", TRUSTED, 1)
        fill(lane, "first", TRUSTED, 1)
    assert abs(lane.held_by("first") - lane.held_by("second")) <= 10


@given(st.integers(2, 600), st.lists(st.tuples(st.integers(0, 5), st.sampled_from(RANKS))))
def test_a_tenant_that_holds_none_finds_a_slot_while_fewer_hold_some_than_the_reserve(
    slots: int, asks: list[tuple[int, int]]
) -> None:
    lane: LaneSlots[str] = LaneSlots(slots)
    for tenant, rank in asks:
        holders = sum(1 for one in range(6) if lane.held_by(str(one)))
        if not lane.held_by(str(tenant)) and holders < reserve_of(slots):
            assert lane.may_take(str(tenant), rank)
        fill(lane, str(tenant), rank)
        assert lane.free >= 0


@given(st.lists(st.integers(0, 300), min_size=3, max_size=3), st.sampled_from(RANKS))
def test_a_worse_rank_needs_as_many_free_slots_or_more(held: list[int], rank: int) -> None:
    needs = [needed(held, one, reserve=32) for one in RANKS]
    assert needs == sorted(needs)
    for one in RANKS:  # What is held by anybody makes nobody's need smaller.
        more = [*held]
        more[one] += 1
        assert needed(more, rank, reserve=32) >= needs[rank] or not sum(held)


Move = tuple[str, int, int, int]


@given(
    st.integers(1, 12),
    st.lists(
        st.tuples(
            st.sampled_from(["add", "discard", "start", "start", "end"]),
            st.integers(0, 4),
            st.integers(0, 3),
            st.sampled_from(RANKS),
        ),
        max_size=150,
    ),
)
def test_whoever_may_take_a_slot_is_found_and_nobody_else(slots: int, moves: list[Move]) -> None:
    """Against a walk over all that wait, which the lane itself never makes."""
    lane: LaneSlots[tuple[int, int]] = LaneSlots(slots)
    inside: dict[tuple[int, int], int] = {}
    flying: list[tuple[int, int]] = []
    for verb, tenant, number, rank in moves:
        item = (tenant, number)
        if verb == "add":
            lane.add(str(tenant), item, rank)
            inside[item] = rank
        elif verb == "discard":
            lane.discard(item)
            inside.pop(item, None)
        elif verb == "end" and flying:
            owner, held = flying.pop(tenant % len(flying))
            lane.give(str(owner), held)
        elif verb == "start" and lane.free > 0:
            may = {it for it, at in inside.items() if lane.may_take(str(it[0]), at)}
            got = lane.next()
            assert (got is None) == (not may)
            if got is not None:
                assert got in may
                assert lane.rank_of(got) == inside[got]
                lane.take(str(got[0]), inside[got])
                flying.append((got[0], inside[got]))
        assert len(lane) == len(inside)
        assert all(one in lane for one in inside)
        assert lane.held == len(flying)


@given(st.integers(2, 6), st.integers(1, 40))
def test_a_waiting_tenant_is_never_passed_over_for_long(tenants: int, slots: int) -> None:
    """All are greedy and slots come back one by one: each has its turn among the next few."""
    lane: LaneSlots[str] = LaneSlots(slots)
    for tenant in range(tenants):
        for number in range(3):
            lane.add(str(tenant), f"{tenant}.{number}", FAILING)
    flying: list[str] = []
    waited = dict.fromkeys(map(str, range(tenants)), 0)
    for _ in range(40 * tenants):
        while (item := lane.next() if lane.free > 0 else None) is not None:
            owner = item.split(".")[0]
            lane.take(owner, FAILING)
            flying.append(owner)
            waited[owner] = 0
        if flying:
            lane.give(flying.pop(0), FAILING)
        waited = {one: since + 1 for one, since in waited.items()}
        assert max(waited.values()) <= 2 * slots + 2 * tenants


def test_tenants_that_may_not_take_one_cost_nothing_per_turn() -> None:
    """A thousand greedy tenants wait; the steps of a start do not grow with them."""

    def steps(tenants: int) -> float:
        lane: LaneSlots[str] = LaneSlots(2 * tenants)
        count = 0
        real = lane._pick

        def counted(tenant: str, free: int) -> str | None:
            nonlocal count
            count += 1
            return real(tenant, free)

        lane._pick = counted  # type: ignore[method-assign]
        flying: list[str] = []
        for tenant in range(tenants):
            lane.add(str(tenant), str(tenant), FAILING)
        while lane.free > 0 and (item := lane.next()) is not None:
            lane.take(item, FAILING)
            flying.append(item)
        count, starts = 0, 0
        for _ in range(200):
            lane.give(flying.pop(0), FAILING)
            while lane.free > 0 and (item := lane.next()) is not None:
                lane.take(item, FAILING)
                flying.append(item)
                starts += 1
        return count / max(starts, 1)

    assert steps(1_000) <= 2 * steps(50) + 4


def test_forgotten_tenants_take_no_memory() -> None:
    lane: LaneSlots[str] = LaneSlots(512)
    for number in range(20_000):
        lane.take(str(number), NEW)
        lane.give(str(number), NEW)
    assert len(lane._tenants) <= 1_024
