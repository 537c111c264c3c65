"""Order by key: places, and how the times of blocked deliveries are counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from homing.errors import Invalid
from homing.model import PART_BLOCKED, PART_FAIR, PART_FIRST, PART_REPLAY, Delivery, Order
from homing.policy.order import (
    LOCK_CLASSES,
    instead,
    lock_class,
    longest_wait_ms,
    next_place,
    unblocked,
)
from policy.test_admission import admitted, complaints

WINDOW = 1_000_000
BLOCKED = Delivery(7, 1, "acme", 2, 3, 4, 7, 100, 100, 100 + WINDOW, order_key="x", order_seq=7)


def test_a_blocked_delivery_is_in_no_part_that_is_read_to_send_it() -> None:
    assert BLOCKED.part == PART_BLOCKED
    assert replace(BLOCKED, fair_part=PART_FAIR + 5).part < 0
    assert not BLOCKED.is_first


def test_blocked_time_does_not_count_while_the_endpoint_is_enabled() -> None:
    free = unblocked(BLOCKED, now=500, enabled=True, after_drop=False)
    assert (free.ready_at, free.due_at, free.expires_at) == (500, 500, 500 + WINDOW)
    assert (free.part, free.is_first) == (PART_FIRST, True)


def test_the_time_of_pauses_before_is_not_counted_again() -> None:
    moved = replace(BLOCKED, expires_at=BLOCKED.expires_at + 40, paused_ms=40)
    free = unblocked(moved, now=500, enabled=True, after_drop=False)
    assert (free.expires_at, free.paused_ms) == (500 + WINDOW, 0)


def test_while_the_endpoint_is_not_enabled_it_counts_from_acceptance() -> None:
    assert unblocked(BLOCKED, now=500, enabled=False, after_drop=True) == replace(
        BLOCKED, order_seq=0
    )


def test_after_a_drop_it_is_no_first_attempt() -> None:
    free = unblocked(BLOCKED, now=500, enabled=True, after_drop=True)
    assert (free.part, free.is_first, free.ready_at) == (PART_REPLAY, False, 500)


@given(st.lists(st.integers(min_value=1, max_value=1 << 62), min_size=1))
def test_places_grow_whatever_the_ids_are(ids: list[int]) -> None:
    last = 0
    for number in ids:
        place = next_place(number, last)
        assert place > last
        last = place


@given(st.integers(min_value=0), st.text(min_size=1, max_size=128))
def test_keys_fall_into_a_bounded_number_of_classes(subscription_id: int, key: str) -> None:
    assert 0 <= lock_class(subscription_id, key.encode(errors="replace").decode()) < LOCK_CLASSES


def test_the_newest_is_due_when_the_older_one_was_and_in_its_lane() -> None:
    fresh = replace(BLOCKED, id=5, order_seq=0, accepted_at=200, due_at=200)
    free = instead(fresh, BLOCKED, now=500, enabled_since=0)
    assert (free.due_at, free.unblocked_at) == (200, 500)
    tried = replace(fresh, attempts=1, due_at=450)
    free = instead(tried, BLOCKED, now=500, enabled_since=0)
    assert (free.due_at, free.unblocked_at) == (450, -500)
    held = instead(fresh, BLOCKED, now=500, enabled_since=300)
    assert held.unblocked_at == -500


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"quiet_ms": 10}, {"quiet_ms"}),
        ({"order": Order.KEY, "quiet_ms": 10}, {"quiet_ms"}),
        ({"order": Order.LATEST, "max_wait_ms": 10}, {"max_wait_ms"}),
        ({"order": Order.LATEST, "quiet_ms": 20, "max_wait_ms": 10}, {"max_wait_ms"}),
        ({"order": Order.LATEST, "quiet_ms": 0}, {"quiet_ms"}),
        ({"order": Order.LATEST, "quiet_ms": 3_600_001}, {"quiet_ms"}),
    ],
)
def test_quiet_times_are_only_for_the_newest(changes: dict[str, object], fields: set[str]) -> None:
    assert complaints(**changes).keys() == fields


def test_a_key_waits_for_quiet_ten_times_as_long_unless_told_otherwise() -> None:
    draft = admitted(order=Order.LATEST, quiet_ms=20)
    assert longest_wait_ms(draft) == 200
    assert longest_wait_ms(replace(draft, max_wait_ms=50)) == 50
    with pytest.raises(Invalid):
        admitted(quiet_ms=20)
