"""Fair groups: which group an event belongs to, and the turns of groups in a lane."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.model import PART_FAIR, PART_FIRST, Delivery, Event, Work
from homing.policy.fair import GROUPS, FairBy, FairLane, fair_problem

BY_USER = FairBy("data.userId")


def work(number: int, group: int) -> Work:
    delivery = Delivery(number, 0, "t", 1, 1, 1, number, 0, 0, 9, fair_part=group)
    return Work(delivery, Event(1, "t", "k", "a.b", "", 0, b"{}"))


def taken(lane: FairLane) -> list[int]:
    return [lane.popleft().delivery.id for _ in range(len(lane))]


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b"[]",
        b"5",
        b'"userId"',
        b"null",
        b'{"userId": null}',
        b'{"userId": ""}',
        b'{"userId": ["a"]}',
        b'{"userId": {"id": "a"}}',
        b'{"newState": {"userId": "a"}}',
        b'{"userId": "\\ud800"}',
        b"not JSON",
        b"[" * 5_000 + b"]" * 5_000,
    ],
)
def test_an_event_without_one_value_at_the_path_has_no_group(data: bytes) -> None:
    assert BY_USER.part(data) == PART_FIRST


def test_a_value_has_the_same_group_however_it_is_written() -> None:
    group = BY_USER.part(b'{"userId": "anna"}')
    assert PART_FAIR <= group < PART_FAIR + GROUPS
    assert group == BY_USER.part(b'{"x": [1, {"userId": 5}], "userId":"\\u0061nna"}')
    assert group == FairBy("data.user.id").part(b'{"user": {"name": "A", "id": "anna"}}')


@given(st.one_of(st.text(min_size=1), st.integers(), st.booleans()))
def test_every_value_has_a_group_that_a_smallint_holds(value: object) -> None:
    data = json.dumps({"userId": value}).encode()
    assert PART_FAIR <= BY_USER.part(data) < PART_FAIR + GROUPS < 1 << 15


def test_people_are_spread_over_the_groups() -> None:
    found = {BY_USER.part(json.dumps({"userId": f"u{n}"}).encode()) for n in range(1_000)}
    assert len(found) > 850


def test_without_a_path_no_data_is_read() -> None:
    off = FairBy()
    assert not off
    assert off.part(b'{"userId": "anna"}') == PART_FIRST
    assert off.steps(b"x" * 10_000) == 0


@pytest.mark.parametrize(
    ("path", "is_right"),
    [
        ("", True),
        ("data.userId", True),
        ("data.a.b-c.ü", True),
        ("userId", False),
        ("data", False),
        ("data.", False),
        ("data.a b", False),
        ("data." + "x" * 200, False),
    ],
)
def test_a_path_is_checked(path: str, is_right: bool) -> None:
    assert (fair_problem(path) is None) is is_right


def test_groups_take_turns_and_keep_their_own_order() -> None:
    lane = FairLane([work(n, 16) for n in range(4)])
    lane.extend([work(10, 17), work(11, 17), work(20, 0)])
    assert lane[0].delivery.id == 0
    assert taken(lane) == [0, 10, 20, 1, 11, 2, 3]


def test_a_new_group_has_its_turn_at_once_behind_any_backlog() -> None:
    lane = FairLane([work(n, 16) for n in range(10_000)])
    lane.popleft()
    lane.append(work(20_000, 17))
    assert [lane.popleft().delivery.id for _ in range(3)] == [1, 20_000, 2]
    assert lane.after == 16


def test_a_delivery_that_is_put_first_is_next() -> None:
    lane = FairLane([work(0, 16), work(1, 16), work(10, 17)])
    first = lane.popleft()
    lane.appendleft(first)
    assert taken(lane) == [0, 10, 1]


def test_the_last_delivery_of_a_group_is_removed_from_its_end() -> None:
    lane = FairLane([work(0, 16), work(1, 16), work(10, 17), work(11, 17)])
    assert [lane.pop().delivery.id for _ in range(2)] == [11, 10]
    assert taken(lane) == [0, 1]
    lane.clear()
    assert not lane


@given(st.lists(st.one_of(st.integers(0, 4), st.none())))
def test_no_group_has_two_turns_while_another_waits(steps: Iterable[int | None]) -> None:
    """A number adds a delivery of that group, None takes one."""
    lane, number, waited = FairLane(), 0, dict[int, int]()
    for group in steps:
        if group is not None:
            lane.append(work(number, group))
            waited.setdefault(group, 0)
            number += 1
        elif lane:
            had = lane.popleft().delivery.fair_part
            waited = {it: n + 1 for it, n in waited.items() if lane.has_group(it)}
            if lane.has_group(had):
                waited[had] = 0
            assert max(waited.values(), default=0) < 5
    ids = [it.delivery.id for it in lane]
    assert len(ids) == len(set(ids)) == len(lane)
