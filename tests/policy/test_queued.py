"""The memory for queues is shared out: one tenant's queue leaves room for the others."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from homing.model import Event
from homing.policy.queued import Queued

_numbers = itertools.count(1)


def event(tenant: str, size: int) -> Event:
    number = next(_numbers)
    return Event(number, tenant, f"evt{number}", "a.b", "", 0, bytes(size))


def fill(queued: Queued, tenant: str, size: int) -> int:
    count = 0
    while queued.may_queue(tenant):
        queued.put(event(tenant, size))
        count += 1
    return count


def test_a_tenant_that_is_alone_may_fill_four_fifths() -> None:
    assert fill(Queued(count_max=1_000, bytes_max=1 << 30), "a", 1) == 800
    assert fill(Queued(count_max=1_000, bytes_max=50_000), "a", 100) == 400


def test_the_next_tenant_finds_room_however_much_the_first_would_queue() -> None:
    queued = Queued(count_max=20_000, bytes_max=1 << 30)
    assert [fill(queued, tenant, 1_000) for tenant in "abc"] == [16_000, 3_200, 640]


def test_without_memory_nothing_is_queued() -> None:
    assert not Queued(count_max=0, bytes_max=100).may_queue("a")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 500)), max_size=60))
def test_what_was_put_and_taken_leaves_nothing_behind(puts: list[tuple[str, int]]) -> None:
    queued = Queued(count_max=100, bytes_max=10_000)
    events = [event(tenant, size) for tenant, size in puts]
    for it in events:
        queued.put(it)
    assert (queued.count, queued.bytes) == (len(puts), sum(size for _, size in puts))
    for it in reversed(events):
        queued.take(it)
    assert (queued.count, queued.bytes, queued.room) == (0, 0, 10_000)
    assert not queued._tenants
    assert not queued._events


@given(st.lists(st.integers(0, 5), max_size=40), st.integers(0, 40))
def test_many_are_taken_like_one_after_the_other(numbers: list[int], count: int) -> None:
    one, all_ = (Queued(count_max=100, bytes_max=10_000) for _ in range(2))
    events = [event("a", 100) for _ in range(6)]
    queued = [events[number] for number in numbers]
    for it in queued:
        one.put(it)
        all_.put(it)
    all_.take_all(queued[:count])
    for it in queued[:count]:
        one.take(it)
    assert vars(one) == vars(all_)
    all_.take_all(queued[count:])
    assert (all_.count, all_.bytes, all_._tenants, all_._events) == (0, 0, {}, {})


def test_of_deliveries_that_share_events_twice_as_many_may_be_queued() -> None:
    queued, shared, count = Queued(count_max=1_000, bytes_max=1 << 30), event("a", 10), 0
    while queued.may_queue("a"):
        queued.put(shared)
        count += 1
    assert 1_590 < count <= 1_600
    assert fill(Queued(count_max=1_000, bytes_max=1 << 30), "a", 10) == 800


def test_the_data_of_an_event_counts_once_for_all_its_deliveries() -> None:
    queued, shared = Queued(count_max=100, bytes_max=1_000), event("a", 600)
    for _ in range(3):
        assert queued.put(shared) is shared
    assert (queued.count, queued.bytes) == (3, 600)
    for bytes_left in (600, 600, 0):
        queued.take(shared)
        assert queued.bytes == bytes_left


def test_a_second_copy_of_an_event_is_replaced_by_the_first() -> None:
    queued, first = Queued(count_max=100, bytes_max=1_000), event("a", 10)
    queued.put(first)
    assert queued.put(replace(first)) is first
    queued.take(replace(first))
    queued.take(first)
    assert (queued.count, queued.bytes) == (0, 0)
