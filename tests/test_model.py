"""Ids: in order of time, never repeated, and the same when shown and read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from homing.model import NODES, WIDE_NODES, Ids, bucket_of, id_floor, id_time, read_id, show_id


@given(st.integers(0, 2**63 - 1))
def test_a_shown_id_reads_back_and_sorts_like_its_number(number: int) -> None:
    shown = show_id("dlv", number)
    assert read_id("dlv", shown) == number
    assert len(shown) == 17
    assert read_id("sub", shown) is None
    assert (show_id("dlv", max(number - 1, 0)) < shown) == (number > 0)


def test_what_is_not_an_id_is_none() -> None:
    for text in ("", "dlv", "dlv_", "dlv_short", "dlv_zzzzzzzzzzzzz", "dlv_000000000000u"):
        assert read_id("dlv", text) is None


@given(st.lists(st.integers(0, 2**41), max_size=200), st.integers(0, NODES - 1))
def test_ids_only_rise_whatever_the_clock_does(times: list[int], node: int) -> None:
    ids = Ids(node=node, after=id_floor(1000))
    made = [ids.take(at) for at in times]
    assert made == sorted(set(made))
    assert all(number > id_floor(1000) for number in made)


def test_more_ids_than_fit_a_millisecond_go_on_in_the_next() -> None:
    ids = Ids()
    made = [ids.take(5) for _ in range(40_000)]
    assert len(set(made)) == 40_000
    assert id_time(made[0]) == 5
    assert id_time(made[-1]) == 7


@given(st.integers(0, NODES - 1), st.integers(0, NODES - 1))
def test_two_nodes_never_make_the_same_id(one: int, other: int) -> None:
    def made(node: int) -> set[int]:
        ids = Ids(node=node)
        return {ids.take(5) for _ in range(600)}

    assert one == other or not made(one) & made(other)


def test_each_node_says_how_far_its_ids_are_ahead_of_the_clock() -> None:
    for node, ahead_ms in ((WIDE_NODES - 1, 6), (WIDE_NODES, 195), (NODES - 1, 195)):
        ids = Ids(node=node)
        ids.take(5)
        assert ids.ahead_ms(5) == 0
        last = [ids.take(5) for _ in range(100_000)][-1]
        assert ids.ahead_ms(5) == id_time(last) - 5 == ahead_ms
        assert ids.ahead_ms(1_000) == 0


def test_ids_that_were_ahead_of_the_clock_at_the_start_are_not_waited_for() -> None:
    ids = Ids(after=id_floor(1_000_000))
    ids.take(5)
    assert ids.ahead_ms(5) == 0


def test_a_bucket_is_the_first_byte_of_the_hash_of_tenant_and_url() -> None:
    assert bucket_of("a", "https://x.example/") == bucket_of("a", "https://x.example/")
    assert len({bucket_of("a", f"https://x.example/{n}") for n in range(5_000)}) == 256
