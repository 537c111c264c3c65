"""A person has a pending delivery tried now: it is its next retry, made early."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.world import HOUR, MINUTE, World, always, balanced, live
from homing.errors import AlreadyFinished, NotFound
from homing.model import Decided, Delivery, Lane, Status
from homing.sim.loop import START_MS

URL = "https://receiver.example/hook"
BASE = 84_800


async def tried(world: World, delivery: Delivery) -> Delivery:
    return await world.engine.try_now(delivery)


def test_it_is_sent_at_once_in_the_retry_lane_and_delivered() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        world.sender.scripts[URL] = always(500)
        await world.publish()
        await world.written()
        row = await world.only_delivery()
        world.sender.scripts[URL] = always(204)
        await world.wait(10_000)
        now = world.clock.now()
        await tried(world, row.delivery)
        await world.written()
        row = await world.only_delivery()
        assert row.status is Status.DELIVERED
        attempts = await world.views.attempts(row.delivery.id)
        assert [(it.lane, it.started_at) for it in attempts] == [
            (Lane.FRESH, START_MS),
            (Lane.RETRY, now),
        ]
        with pytest.raises(AlreadyFinished):
            await tried(world, row.delivery)
        with pytest.raises(NotFound):
            await tried(world, replace(row.delivery, id=12345))
        await balanced(world)

    live(story)


def test_after_its_failure_comes_the_smallest_retry_whose_time_lies_ahead() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        world.sender.scripts[URL] = always(500)
        await world.publish()
        await world.written()
        row = await world.only_delivery()
        t0 = row.delivery.t0
        assert t0 is not None
        await world.wait(MINUTE)
        now = world.clock.now()
        await tried(world, row.delivery)
        await world.written()
        row = await world.only_delivery()
        assert (row.delivery.retry, row.delivery.due_at) == (1, t0 + BASE)
        await world.wait(50 * HOUR)
        row = await world.only_delivery()
        assert row.status is Status.DROPPED
        attempts = await world.views.attempts(row.delivery.id)
        times = [it.started_at for it in attempts[1:]]
        assert times == [now, *(t0 + ((1 << n) - 1) * BASE for n in range(1, 12))]
        assert attempts[-1].decided is Decided.DROPPED

    live(story)


def test_one_that_is_due_is_not_sent_twice() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        world.sender.scripts[URL] = always(500)
        await world.publish()
        await world.written()
        row = await world.only_delivery()
        for _ in range(3):
            await tried(world, row.delivery)
        await world.written()
        assert len(world.hits(URL)) == 2

    live(story)


def test_after_a_pause_it_is_due_now_and_not_later_by_the_pause() -> None:
    async def story(world: World) -> None:
        subscription = await world.subscribe(URL)
        world.sender.scripts[URL] = always(500)
        await world.publish()
        await world.written()
        await world.engine.pause(subscription.id)
        await world.wait(HOUR)
        await world.engine.resume(subscription.id)
        row = await world.only_delivery()
        world.sender.scripts[URL] = always(204)
        now = world.clock.now()
        await tried(world, row.delivery)
        await world.written()
        row = await world.only_delivery()
        assert row.status is Status.DELIVERED
        assert (await world.views.attempts(row.delivery.id))[-1].started_at == now

    live(story)
