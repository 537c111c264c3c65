"""Look-ups in fair shares: no tenant takes what others need, and memory has a bound."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.policy.look_ups import FairCache, LookUpQueue

THREADS = 160
TENANTS = "abcde"


def _start_all(queue: LookUpQueue[str]) -> list[tuple[str, str]]:
    started = []
    while (turn := queue.start()) is not None:
        started.append(turn)
    return started


def _wait(queue: LookUpQueue[str], tenant: str, count: int) -> None:
    for n in range(count):
        queue.join(tenant, f"{tenant}{n}")


def test_one_tenant_leaves_most_threads_free() -> None:
    queue = LookUpQueue[str](THREADS)
    _wait(queue, "noisy", 1_000)
    assert len(_start_all(queue)) == 26
    _wait(queue, "quiet", 20)
    assert len(_start_all(queue)) == 20, "another tenant starts at once"


def test_after_many_tenants_that_take_all_they_can_the_next_one_finds_a_thread() -> None:
    queue = LookUpQueue[str](THREADS)
    for n in range(40):
        _wait(queue, f"noisy{n}", 1_000)
        assert _start_all(queue), f"tenant {n} started nothing"
    assert queue.threads.free > 0


def test_tenants_take_turns_whatever_they_have_waiting() -> None:
    queue = LookUpQueue[str](1)
    _wait(queue, "busy", 100)
    assert queue.start() == ("busy", "busy0")
    _wait(queue, "calm", 2)
    order: list[str] = []
    for _ in range(5):
        queue.end(["busy", *order][-1])
        turn = queue.start()
        assert turn is not None
        order.append(turn[0])
    assert order == ["busy", "calm", "busy", "calm", "busy"]


def test_a_name_that_two_tenants_wait_for_starts_with_whoever_has_a_turn() -> None:
    """The one that asked first has used up its share; the other is not held up by it."""
    queue = LookUpQueue[str](THREADS)
    _wait(queue, "noisy", 1_000)
    _start_all(queue)
    queue.join("noisy", "shared")
    assert queue.start() is None
    queue.join("quiet", "shared")
    assert queue.start() == ("quiet", "shared")
    assert queue.threads.held_by("quiet") == 1
    assert queue.start() is None, "and it is looked up once"


def test_a_name_nobody_waits_for_any_more_is_not_started() -> None:
    queue = LookUpQueue[str](1)
    queue.join("a", "one")
    queue.start()
    queue.join("a", "two")
    queue.join("a", "two")
    assert not queue.leave("a", "two")
    assert queue.leave("a", "two")
    queue.end("a")
    assert queue.start() is None
    assert len(queue) == 0


@given(st.lists(st.tuples(st.sampled_from("jle"), st.sampled_from(TENANTS), st.integers(0, 9))))
def test_the_books_balance_whatever_is_asked(steps: list[tuple[str, str, int]]) -> None:
    queue = LookUpQueue[int](8)
    waiting: Counter[tuple[str, int]] = Counter()
    held: Counter[str] = Counter()
    for step, tenant, name in steps:
        if step == "j":
            queue.join(tenant, name)
            waiting[tenant, name] += 1
        elif step == "l" and waiting[tenant, name]:
            queue.leave(tenant, name)
            waiting[tenant, name] -= 1
        elif step == "e" and held[tenant]:
            queue.end(tenant)
            held[tenant] -= 1
        while (turn := queue.start()) is not None:
            by, started = turn
            assert waiting[by, started], "it waited for this tenant"
            held[by] += 1
            for other in TENANTS:
                waiting[other, started] = 0
        assert all(queue.threads.held_by(tenant) == held[tenant] for tenant in TENANTS)
        assert queue.threads.free == 8 - held.total()
        assert len(queue) == len({name for (_, name), count in waiting.items() if count})
        asking = {tenant for (tenant, _), count in waiting.items() if count}
        assert not any(held[tenant] == 0 for tenant in asking) or queue.threads.free == 0


def test_an_entry_is_remembered_until_its_time_ends() -> None:
    cache = FairCache[str, int](100, keep_s_max=60)
    cache.put("a", "name", 1, now=0, keep_s=10)
    assert cache.get("name", 9.9) == 1
    assert cache.get("name", 10) is None
    cache.put("a", "name", 2, now=10, keep_s=100)
    assert cache.get("name", 69) == 2
    assert cache.get("name", 70) is None, "nothing is kept longer than the longest"
    cache.forget("name")
    assert len(cache) == 0


def test_one_owner_pushes_out_its_own_entries_and_nobody_elses() -> None:
    cache = FairCache[str, int](1_000, keep_s_max=60)
    cache.put("quiet", "quiet", 1, now=0, keep_s=60)
    for n in range(10_000):
        cache.put("noisy", f"n{n}", n, now=1, keep_s=60)
    assert cache.get("quiet", 2) == 1
    assert cache.get("n9999", 2) == 9_999
    assert cache.owned("noisy") <= 200
    cache.put("other", "other", 2, now=2, keep_s=60)
    assert cache.get("other", 3) == 2


@pytest.mark.parametrize("owners", [5_000])
def test_the_memory_has_a_bound_and_what_is_over_is_forgotten(owners: int) -> None:
    cache = FairCache[str, int](100, keep_s_max=60)
    for n in range(owners):
        cache.put(f"o{n}", f"n{n}", n, now=0, keep_s=1)
    assert len(cache) == 100
    cache.put("late", "late", 1, now=61, keep_s=1)
    assert len(cache) == 1
    assert cache.get("late", 61) == 1
