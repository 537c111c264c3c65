"""Outcomes are gathered for one commit, and slots become free again."""

from __future__ import annotations

import asyncio

from engine.world import SECOND, Hit, Reply, World, always, live
from homing.engine import capacity
from homing.engine.settle import ENOUGH, SOON_MS
from homing.model import State, Status
from homing.policy.admission import EventDraft
from homing.ports import SettleBatch, SettleResult

URL = "https://receiver.example/hook"
SLOW = "https://slow.example/hook"


def settles_wait(world: World) -> asyncio.Event:
    """Make the store settle nothing until the event is set."""
    released, real = asyncio.Event(), world.flow.settle

    async def slow(batch: SettleBatch) -> SettleResult:
        await released.wait()
        return await real(batch)

    world.flow.settle = slow  # type: ignore[method-assign]
    return released


def test_a_failure_is_written_at_once_with_the_successes_before_it() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[SLOW] = always(500, latency_ms=5)
        await world.subscribe(URL, "good")
        await world.subscribe(SLOW, "bad")
        await world.publish("good")
        await world.publish("bad")
        await world.wait(5)
        await world.settled()
        assert world.engine.pulse().unsettled == 0
        assert world.engine.pulse().commits["settle"] == 1
        rows = {row.event_type: row for row in await world.deliveries()}
        assert rows["good"].status is Status.DELIVERED
        assert rows["bad"].delivery.retry == 1

    live(story)


def test_successes_wait_shortly_for_those_of_later_events() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        await world.publish()
        await world.wait(SOON_MS - 1)
        await world.publish()
        await world.settled()
        assert world.engine.pulse().commits["settle"] == 0
        assert world.engine.pulse().unsettled == 2
        await world.wait(2)
        assert world.engine.pulse().commits["settle"] == 1
        assert {row.status for row in await world.deliveries()} == {Status.DELIVERED}

    live(story)


def test_the_success_of_a_probe_is_written_at_once() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        subscription = await world.subscribe(URL)
        for _ in range(101):
            await world.publish()
        await world.wait(SECOND)
        (endpoint,) = await world.flow.endpoints([subscription.endpoint_id])
        assert endpoint.endpoint.health.state is State.DISABLED
        world.sender.scripts[URL] = always(200)
        assert endpoint.endpoint.next_probe_at is not None
        await world.wait(endpoint.endpoint.next_probe_at - world.clock.now())
        await world.settled()
        (endpoint,) = await world.flow.endpoints([subscription.endpoint_id])
        assert endpoint.endpoint.health.state is State.ENABLED

    live(story)


def test_a_stop_writes_waiting_successes_at_once() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        await world.publish()
        await world.settled()
        assert world.engine.pulse().unsettled == 1
        before = world.clock.now()
        assert await world.engine.stop(grace_ms=SECOND)
        assert world.clock.now() == before
        assert world.engine.pulse().unsettled == 0

    live(story)


def test_outcomes_wait_shortly_for_more_and_go_in_one_commit() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[SLOW] = always(200, latency_ms=SECOND)
        await world.subscribe(SLOW, "slow")
        for number in range(5):
            url = f"{URL}/{number}"
            world.sender.scripts[url] = always(200, latency_ms=1 + 3 * number)
            await world.subscribe(url, "kind")
        await world.publish("slow")
        before = world.engine.pulse().commits["settle"]
        await world.publish("kind")
        await world.wait(SOON_MS)
        assert world.engine.pulse().commits["settle"] == before
        assert world.engine.pulse().unsettled == 5
        await world.wait(2)
        assert world.engine.pulse().commits["settle"] == before + 1
        assert world.engine.pulse().unsettled == 0

    live(story)


def test_enough_outcomes_do_not_wait() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[SLOW] = always(200, latency_ms=SECOND)
        await world.subscribe(SLOW, "slow")
        for number in range(ENOUGH):
            world.sender.scripts[f"{URL}/{number}"] = always(200, latency_ms=5)
            await world.subscribe(f"{URL}/{number}", "many")
        await world.publish("slow")
        await world.publish("many")
        await world.wait(6)
        rows = await world.deliveries(status=Status.DELIVERED)
        assert len(rows) == ENOUGH

    live(story)


def test_a_success_gives_its_slot_back_before_it_is_written_and_a_failure_after() -> None:
    async def story(world: World) -> None:
        codes = iter([200, 200, 500, 200])
        flying = 0

        def reply(_hit: Hit) -> Reply:
            nonlocal flying
            flying += 1
            assert flying == 1, "one slot, one attempt at a time"

            def landed() -> None:
                nonlocal flying
                flying -= 1

            asyncio.get_running_loop().call_later(0.01, landed)
            return Reply(code=next(codes), latency_ms=10)

        world.sender.scripts[URL] = reply
        await world.subscribe(URL)
        released = settles_wait(world)
        for _ in range(4):
            await world.publish()
        await world.wait(SECOND)
        assert world.hits(URL) == [0, 10, 20]  # The third failed: what it decides is awaited.
        released.set()
        await world.wait(SECOND)
        assert len(world.hits(URL)) == 4

    live(story)


def test_nothing_starts_while_too_many_outcomes_wait_to_be_written() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        released = settles_wait(world)
        bound = capacity.UNSETTLED_MAX + 512 + 256
        drafts = [EventDraft(tenant="default", type="a.b", data=b"{}") for _ in range(5_000)]
        await world.engine.publish(drafts)
        await world.wait(SECOND)
        assert len(world.hits(URL)) == bound
        released.set()
        await world.wait(10 * SECOND)
        assert len(world.hits(URL)) == 5_000

    live(story)
