"""Pauses: how they add up, and how they move the times of a delivery."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from homing.model import Pauses
from homing.policy.pause import (
    PAST_MAX,
    as_of,
    is_over_age,
    moved,
    paused,
    paused_ms,
    resumed,
    waits,
)
from policy.build import a_delivery as delivery
from policy.build import a_subscription

SUB = a_subscription()
TWO = Pauses(since=1_000, past=((100, 200), (300, 450)))


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        (0, 50, 0),
        (0, 100, 0),
        (0, 150, 50),
        (0, 250, 100),
        (150, 250, 50),
        (200, 300, 0),
        (0, 500, 250),
        (400, 500, 50),
        (0, 1_000, 250),
        (0, 1_100, 350),
        (1_050, 1_100, 50),
        (1_200, 1_100, 0),
    ],
)
def test_the_length_of_the_pauses_between_two_times(since: int, until: int, expected: int) -> None:
    assert paused_ms(TWO, since=since, until=until) == expected


def test_a_subscription_that_was_never_paused_moves_nothing() -> None:
    row = delivery(accepted_at=0)
    assert as_of(row, None, 10**9) is row


def test_pausing_and_resuming_keep_a_list_and_are_idempotent() -> None:
    one = paused(SUB, now=100)
    assert one.paused_since == 100
    assert paused(one, now=150) is one
    back = resumed(one, now=400)
    assert back.paused_since is None
    assert back.pauses == Pauses(past=((100, 400),))
    assert resumed(back, now=500) is back
    assert resumed(SUB, now=500) is SUB
    again = paused(back, now=300)  # by a clock that is behind
    assert again.paused_since == 400


def test_a_pause_of_no_length_leaves_no_trace() -> None:
    assert resumed(paused(SUB, now=100), now=100).pauses is None


def test_the_list_of_pauses_is_bounded_and_its_sum_is_kept() -> None:
    it, at = SUB, 0
    for _ in range(PAST_MAX + 50):
        it = resumed(paused(it, now=at + 10), now=at + 13)
        at += 20
    assert it.pauses is not None
    assert len(it.pauses.past) == PAST_MAX
    assert paused_ms(it.pauses, since=0, until=at) == 3 * (PAST_MAX + 50)
    assert all(begin < end for begin, end in it.pauses.past)


@pytest.mark.parametrize(
    ("accepted_at", "at", "by_ms"),
    [(0, 150, 50), (0, 1_000, 250), (150, 250, 50), (500, 900, 0), (1_200, 1_500, 300)],
)
def test_the_times_of_a_row_move_from_its_acceptance_on(
    accepted_at: int, at: int, by_ms: int
) -> None:
    row = delivery(accepted_at=accepted_at, due_at=5_000, expires_at=9_000, t0=60, attempts=1)
    after = as_of(row, TWO, at)
    assert (after.due_at, after.expires_at, after.t0) == (5_000 + by_ms, 9_000 + by_ms, 60 + by_ms)
    assert after.paused_ms == by_ms
    assert as_of(after, TWO, at) is after


def test_a_first_attempt_keeps_its_place_and_its_window_moves() -> None:
    row = delivery(accepted_at=150, due_at=150, expires_at=9_000)
    after = as_of(row, TWO, 250)
    assert after.is_first
    assert (after.due_at, after.expires_at) == (150, 9_050)


@given(
    lengths=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), max_size=6),
    accepted_at=st.integers(0, 300),
    looks=st.lists(st.integers(0, 600), max_size=6),
)
def test_times_do_not_depend_on_how_often_they_were_computed(
    lengths: list[tuple[int, int]], accepted_at: int, looks: list[int]
) -> None:
    it, at = SUB, 0
    for gap, length in lengths:
        it = resumed(paused(it, now=at + gap), now=at + gap + length)
        at += gap + length
    row = delivery(accepted_at=accepted_at, due_at=accepted_at + 7, expires_at=10_000, attempts=1)
    stepwise = row
    for look in sorted(looks):
        stepwise = as_of(stepwise, it.pauses, max(look, accepted_at))
    assert as_of(stepwise, it.pauses, 10**6) == as_of(row, it.pauses, 10**6)
    whole = sum(length for _, length in lengths)
    assert 0 <= as_of(row, it.pauses, 10**6).due_at - row.due_at <= whole


def test_a_row_waits_for_the_end_of_the_pause_and_then_for_its_moved_time() -> None:
    row = delivery(accepted_at=0, due_at=120, expires_at=9_000, attempts=1)
    running = paused(SUB, now=100)
    assert waits(as_of(row, running.pauses, 150), running, now=150)
    over = resumed(running, now=200)
    assert waits(as_of(row, over.pauses, 201), over, now=201)
    assert not waits(as_of(row, over.pauses, 220), over, now=220)


def test_only_a_paused_delivery_past_the_retention_is_over_age() -> None:
    row = delivery(accepted_at=0)
    assert not is_over_age(row, SUB, retention_ms=100, now=500)
    running = paused(SUB, now=50)
    assert not is_over_age(row, running, retention_ms=100, now=99)
    assert is_over_age(row, running, retention_ms=100, now=100)


def test_pauses_move_with_a_clock_that_was_set() -> None:
    assert moved(TWO, by_ms=-50, from_ms=250) == Pauses(950, ((100, 200), (250, 400)))
    shrunk = moved(Pauses(past=((100, 200), (300, 450))), by_ms=-150, from_ms=250)
    assert shrunk == Pauses(past=((100, 200), (200, 300)))
    assert moved(replace(TWO, since=None), by_ms=10, from_ms=0).since is None
