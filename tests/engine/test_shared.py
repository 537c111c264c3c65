"""Places, memory and time of the loop: each tenant has its share, and waits its turn for it."""

from __future__ import annotations

import asyncio

import pytest

from homing.engine.shared import WORK_NS, Shared, Work
from homing.policy.share import Share
from homing.sim.loop import run_virtual

MS = 1_000_000


def test_tenants_take_turns_and_each_keeps_its_order() -> None:
    async def story() -> None:
        shared, done = Shared(Share(1)), []

        async def one(tenant: str, number: int) -> None:
            async with shared.hold(tenant):
                done.append(f"{tenant}{number}")
                await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(one("a", number))
            group.create_task(one("b", 0))
            group.create_task(one("c", 0))
        assert done == ["a0", "a1", "b0", "c0", "a2"]
        assert shared.share.free == 1

    run_virtual(story())


def test_a_request_that_may_not_have_its_part_holds_up_no_other_tenant() -> None:
    async def story() -> None:
        shared = Shared(Share(100, reserve=20))
        await shared.take("greedy", 60)
        waiting = asyncio.create_task(shared.take("greedy", 10))
        await asyncio.sleep(1)
        await shared.take("other", 30)
        assert not waiting.done()
        shared.give("greedy", 60)
        await waiting
        assert shared.share.held_by("greedy") == 10

    run_virtual(story())


@pytest.mark.parametrize("late", [False, True])
def test_a_request_that_is_cancelled_keeps_nothing(late: bool) -> None:
    async def story() -> None:
        shared = Shared(Share(10))
        await shared.take("a", 10)
        waiting = asyncio.create_task(shared.take("b", 10))
        following = asyncio.create_task(shared.take("b", 5))
        await asyncio.sleep(0)
        if late:
            shared.give("a", 10)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        if not late:
            shared.give("a", 10)
        await following
        assert (shared.share.free, shared.waiting("b")) == (5, 0)

    run_virtual(story())


class Cpu:
    """A thread that uses as much CPU as a test says."""

    used_ns = 0

    def __call__(self) -> int:
        return self.used_ns


def test_a_tenant_alone_uses_two_fifths_of_the_loop_and_a_second_one_has_its_own_share() -> None:
    async def story() -> None:
        cpu = Cpu()
        work, spent = Work(cpu), {"dear": 0, "other": 0}

        async def busy(tenant: str, seconds: float) -> None:
            until = asyncio.get_running_loop().time() + seconds
            while asyncio.get_running_loop().time() < until:
                async with work.turn(tenant):
                    cpu.used_ns += 20 * MS
                spent[tenant] += 20
                await asyncio.sleep(0.02)

        await busy("dear", 10)
        assert 1_800 <= spent["dear"] <= 2_400  # of 10,000 ms
        spent["dear"] = 0
        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(busy("dear", 10))
            group.create_task(busy("other", 10))
        assert spent["other"] >= 1_000
        assert sum(spent.values()) * MS <= 11 * WORK_NS

    run_virtual(story())


def test_one_piece_of_work_is_done_in_a_turn_of_the_loop() -> None:
    async def story() -> None:
        work, turns = Work(Cpu()), []
        count = 0

        async def ticks() -> None:
            nonlocal count
            while True:
                count += 1
                await asyncio.sleep(0)

        async def one(tenant: str) -> None:
            async with work.turn(tenant):
                turns.append(count)

        ticking = asyncio.create_task(ticks())
        await asyncio.gather(*(one(f"t{number}") for number in range(20)))
        ticking.cancel()
        assert len(set(turns)) == 20

    run_virtual(story())
