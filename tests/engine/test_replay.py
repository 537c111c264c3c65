"""Replays, one by one and in bulk, on virtual time.

Promised: what-homing-promises.md#replays-and-test-sends.
"""

from __future__ import annotations

import asyncio

import pytest

from engine.world import DAY, HOUR, MINUTE, World, always, balanced, live
from homing.errors import NotFound, StillPending, SubscriptionGone
from homing.model import Lane, Status
from homing.ports import ReplayFilter
from homing.sim.loop import START_MS, VirtualClock

URL = "https://receiver.example/hook"
OTHER = "https://other.example/hook"


def test_a_replay_is_a_new_delivery_with_the_old_webhook_id_in_the_retry_lane() -> None:
    async def story(world: World) -> None:
        subscription = await world.subscribe(URL)
        await world.publish()
        (row,) = await world.deliveries()
        with pytest.raises(StillPending):
            await world.engine.replay(row.delivery.id)
        await world.written()
        row = await world.only_delivery()
        new = await world.engine.replay(row.delivery.id)
        await world.written()
        first, second = world.sender.hits
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        assert first.delivery != second.delivery
        (attempt,) = await world.views.attempts(new.id)
        assert attempt.lane is Lane.RETRY
        await world.engine.unsubscribe(subscription.id)
        with pytest.raises(SubscriptionGone):
            await world.engine.replay(row.delivery.id)
        with pytest.raises(NotFound):
            await world.engine.replay(12345)
        await balanced(world)

    live(story)


def test_a_replay_to_a_frozen_endpoint_waits_and_goes_when_it_is_enabled() -> None:
    async def story(world: World) -> None:
        subscription = await world.subscribe(URL)
        await world.publish()
        await world.written()
        row = await world.only_delivery()
        await world.engine.freeze(subscription.endpoint_id, by="ada")
        await world.engine.replay(row.delivery.id)
        await world.wait(HOUR)
        assert len(world.hits(URL)) == 1
        await world.engine.enable(subscription.endpoint_id, by="ada")
        await world.settled()
        assert len(world.hits(URL)) == 2

    live(story)


def test_a_bulk_replay_takes_each_dropped_delivery_once_also_over_a_crash() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        await world.subscribe(URL)
        for _ in range(40):
            await world.publish()
        await world.wait(3 * DAY)
        conditions = ReplayFilter(status=Status.DROPPED)
        assert await world.engine.count_replay(conditions) == (40, True)
        world.sender.scripts[URL] = always(200)
        before = len(world.hits(URL))
        job = await world.engine.start_replay(conditions)
        await world.crash()
        await world.wait(MINUTE)
        done = await world.engine.replay_job(job.id)
        assert (done.state, done.replayed, done.skipped) == ("done", 40, 0)
        assert len(world.hits(URL)) - before == 40
        await balanced(world)

    live(story)


async def restart(world: World, *, ahead_ms: int) -> None:
    """Start a new process whose clock is ahead of the true time by so much."""
    clock = VirtualClock(asyncio.get_running_loop(), start_ms=START_MS + ahead_ms)
    world.clock = world.sender._clock = clock
    await world.crash()


@pytest.mark.parametrize("given", [True, False])
def test_a_bulk_replay_takes_what_finished_under_a_clock_that_was_ahead(given: bool) -> None:
    """Its time is still to come; the list shows it all the same."""

    async def story(world: World) -> None:
        await world.subscribe(URL)
        await restart(world, ahead_ms=DAY)
        await world.publish()
        await world.written()
        await restart(world, ahead_ms=0)
        as_of = world.clock.now() if given else None
        await world.wait(MINUTE)
        conditions = ReplayFilter(status=Status.DELIVERED, as_of=as_of)
        assert await world.engine.count_replay(conditions) == (1, True)
        job = await world.engine.start_replay(conditions)
        await world.settled()
        done = await world.engine.replay_job(job.id)
        assert (done.state, done.replayed) == ("done", 1)
        assert len(world.hits(URL)) == 2

    live(story)
