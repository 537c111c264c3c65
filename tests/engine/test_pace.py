"""Rates on virtual time: deliveries wait for their turn, nothing fails, others are not delayed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from engine.fleet_world import FleetWorld, fleet
from engine.world import MINUTE, SECOND, Reply, World, balanced, changed, live
from homing.engine.options import EngineOptions
from homing.errors import NotFound, TooMany
from homing.model import Lane, Status
from homing.ports import DueAsk, DueRows

URL = "https://receiver.example/hook"


def within(times: list[int], rate: float) -> bool:
    """Check that no second has more than the rate and one attempt."""
    return all(
        sum(1 for at in times if start <= at < start + SECOND) <= rate + 1 for start in times
    )


def test_deliveries_wait_their_turn_and_others_of_the_endpoint_do_not() -> None:
    async def story(world: World) -> None:
        slow = await world.subscribe(URL, "slow.*", rate_per_second=5)
        await world.subscribe(URL, "quick.*")
        for _ in range(60):
            await world.publish("slow.a")
        for _ in range(60):
            await world.publish("quick.a")
        await world.wait(200)
        rows = await world.deliveries()
        done = [row for row in rows if row.status is Status.DELIVERED]
        assert sum(row.event_type == "quick.a" for row in done) == 60
        await world.wait(12 * SECOND)
        rows = await world.deliveries(subscription_id=slow.id)
        assert {row.status for row in rows} == {Status.DELIVERED}
        mine = {row.delivery.id for row in rows}
        attempts = [one for id_ in mine for one in await world.views.attempts(id_)]
        assert len(attempts) == 60
        assert {one.lane for one in attempts} == {Lane.FRESH}  # who only waits its turn stays fresh
        times = sorted(one.started_at for one in attempts)
        assert within(times, 5)
        assert 11_500 <= times[-1] - times[0] <= 12_000
        in_order = sorted(attempts, key=lambda one: one.started_at)
        assert [one.delivery_id for one in in_order] == sorted(mine)
        await balanced(world)

    live(story)


def test_a_rate_holds_no_slot_and_no_memory() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, rate_per_second=0.5)
        for _ in range(50):
            await world.publish()
        await world.wait(SECOND)
        pulse = world.engine.pulse()
        assert sum(pulse.in_flight.values()) == sum(pulse.ready.values()) == 0
        assert pulse.due_since is None
        commits = pulse.commits["settle"]
        await world.wait(10 * SECOND)
        assert world.engine.pulse().commits["settle"] <= commits + 6  # Nothing polls.

    live(story)


def test_who_waits_its_turn_is_not_behind_retries() -> None:
    """All slots of the retry lane hang; turns continue."""

    async def story(world: World) -> None:
        hang = "https://hang.example/"
        world.sender.scripts[hang] = lambda hit: (
            Reply(code=500) if hit.at < world.start_ms + MINUTE else Reply(latency_ms=MINUTE)
        )
        await world.subscribe(hang, "hang.*")
        await world.subscribe(URL, "slow.*", rate_per_second=5)
        await world.publish("hang.a")
        await world.wait(85_500)
        assert world.engine.pulse().in_flight[Lane.RETRY] == 1  # all that there are
        for _ in range(10):
            await world.publish("slow.a")
        await world.wait(3 * SECOND)
        assert world.engine.pulse().in_flight[Lane.RETRY] == 1
        rows = [row for row in await world.deliveries() if row.event_type == "slow.a"]
        assert {row.status for row in rows} == {Status.DELIVERED}

    live(story, EngineOptions(retry_slots=1, endpoint_slots=1))


def test_turns_that_passed_while_we_were_down_are_read_a_few_at_a_time() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, rate_per_second=100)
        for _ in range(300):
            await world.publish()
        await world.wait(100)
        await world.engine.stop(grace_ms=0)
        await world.wait(10 * SECOND)
        await world.start()
        loads, due = 0, world.flow.due

        async def counted(asks: Sequence[DueAsk], *, now: int) -> list[DueRows]:
            nonlocal loads
            loads += 1
            return await due(asks, now=now)

        world.flow.due = counted  # type: ignore[method-assign]
        await world.wait(10 * SECOND)
        assert {row.status for row in await world.deliveries()} == {Status.DELIVERED}
        assert len(world.hits()) == 300
        assert within(world.hits(), 100)
        assert loads < 2 * 300  # It does not spin.
        await balanced(world)

    live(story)


def test_after_a_restart_the_rate_still_holds_and_nobody_is_forgotten() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, rate_per_second=2)
        for _ in range(20):
            await world.publish()
        await world.wait(3 * SECOND)
        before = len(world.hits())
        await world.crash()
        for _ in range(10):
            await world.publish()
        await world.wait(30 * SECOND)
        after = world.hits()[before:]
        assert within(after, 2)
        assert {row.status for row in await world.deliveries()} == {Status.DELIVERED}

    live(story)


def test_a_rate_that_is_taken_away_is_forgotten_within_a_minute() -> None:
    async def story(world: World) -> None:
        sub = await world.subscribe(URL, rate_per_second=0.1)
        for _ in range(100):
            await world.publish()
        await world.wait(SECOND)
        await world.engine.change(sub.id, changed(rate_per_second=None))
        await world.wait(MINUTE + SECOND)
        assert {row.status for row in await world.deliveries()} == {Status.DELIVERED}

    live(story)


def test_one_host_is_spared_over_all_tenants() -> None:
    async def story(world: World) -> None:
        for tenant in ("a", "b", "c"):
            await world.subscribe(f"https://busy.example/{tenant}", tenant=tenant)
        await world.subscribe("https://free.example/", tenant="a")
        for _ in range(10):
            for tenant in ("a", "b", "c"):
                await world.publish(tenant=tenant)
        await world.wait(4 * SECOND)
        busy = sorted(
            hit.at for hit in world.sender.hits if hit.url.startswith("https://busy.example/")
        )
        assert len(busy) == 30
        assert within(busy, 10)
        assert 2_900 <= busy[-1] - busy[0] <= 3_000
        free = [hit.at for hit in world.sender.hits if "free" in hit.url]
        assert len(free) == 10

    live(story, EngineOptions(host_rate_per_second=10))


def test_test_sends_keep_to_the_rate_of_a_host_and_take_turns_by_tenant() -> None:
    async def story(world: World) -> None:
        greedy = await world.subscribe("https://busy.example/greedy", tenant="greedy")
        modest = await world.subscribe("https://busy.example/modest", tenant="modest")
        await world.subscribe("https://busy.example/quiet", tenant="quiet")
        tests = [asyncio.create_task(world.engine.test_send(greedy.id)) for _ in range(200)]
        await world.wait(500)
        assert len(world.sender.hits) <= 6
        one = asyncio.create_task(world.engine.test_send(modest.id))
        await world.publish(tenant="quiet")
        await world.wait(SECOND)
        assert (await one).code == 200  # It waits for one turn of each other tenant.
        assert {row.status for row in await world.deliveries(tenant="quiet")} == {Status.DELIVERED}
        await world.wait(30 * SECOND)
        assert within([hit.at for hit in world.sender.hits], 10)
        refused = [it.exception() for it in tests if it.exception() is not None]
        assert 0 < len(refused) < 200
        assert all(isinstance(it, TooMany) and "10 requests" in it.detail for it in refused)
        assert len(world.sender.hits) == 200 - len(refused) + 2
        await world.engine.test_send(greedy.id)  # Nothing is left over.
        await balanced(world)

    live(story, EngineOptions(host_rate_per_second=10))


def test_a_test_send_does_not_wait_long_for_a_slow_host_and_one_that_left_holds_no_turn() -> None:
    async def story(world: World) -> None:
        subscription = await world.subscribe(URL, "a.*")
        await world.engine.test_send(subscription.id)
        begun = world.clock.now()
        left = asyncio.create_task(world.engine.test_send(subscription.id))
        await world.wait(SECOND)
        left.cancel()
        with pytest.raises(TooMany) as refused:
            await world.engine.test_send(subscription.id)
        assert world.clock.now() - begun <= 15 * SECOND
        assert refused.value.after_ms > 0
        await world.publish("a.b")
        await world.wait(101 * SECOND - (world.clock.now() - begun))
        assert {row.status for row in await world.deliveries()} == {Status.DELIVERED}
        assert len(world.sender.hits) == 2

    live(story, EngineOptions(host_rate_per_second=0.01))


def test_a_turn_for_which_nothing_waits_any_more_passes() -> None:
    async def story(world: World) -> None:
        subscription = await world.subscribe(URL)
        await world.engine.test_send(subscription.id)
        with pytest.raises(TooMany):
            await world.engine.test_send(subscription.id)
        await world.wait(2 * MINUTE)
        await world.publish()
        await world.wait(SECOND)
        await world.publish()
        await world.wait(2 * MINUTE)
        assert {row.status for row in await world.deliveries()} == {Status.DELIVERED}
        assert len(world.hits()) == 3
        await balanced(world)

    live(story, EngineOptions(host_rate_per_second=0.02))


def test_a_test_send_that_waited_is_not_sent_to_a_subscription_that_is_gone() -> None:
    async def story(world: World) -> None:
        subscription = await world.subscribe(URL)
        await world.engine.test_send(subscription.id)
        test = asyncio.create_task(world.engine.test_send(subscription.id))
        await world.wait(SECOND)
        await world.engine.unsubscribe(subscription.id)
        await world.wait(2 * SECOND)
        assert isinstance(test.exception(), NotFound)
        assert len(world.sender.hits) == 1

    live(story, EngineOptions(host_rate_per_second=0.5))


def test_a_test_send_at_a_busy_host_has_its_turn_beside_a_backlog() -> None:
    async def story(world: World) -> None:
        subscription = await world.subscribe(URL)
        for _ in range(100):
            await world.publish()
        await world.wait(SECOND)
        begun = world.clock.now()
        assert (await world.engine.test_send(subscription.id)).code == 200
        assert world.clock.now() - begun <= SECOND
        await world.wait(25 * SECOND)
        assert {row.status for row in await world.deliveries()} == {Status.DELIVERED}
        assert within([hit.at for hit in world.sender.hits], 5)

    live(story, EngineOptions(host_rate_per_second=5))


def test_a_rate_spends_nothing_when_the_receiver_fails() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, rate_per_second=1)
        for _ in range(5):
            await world.publish()
        await world.wait(10 * SECOND)
        for row in await world.deliveries():
            assert (row.delivery.attempts, row.delivery.retry) == (1, 0)

    live(story)


def test_in_a_fleet_deliveries_wait_their_turn_too() -> None:
    async def story(world: FleetWorld) -> None:
        await world.join()
        await world.join()
        await world.wait(5 * SECOND)
        await world.subscribe(URL, rate_per_second=5)
        await world.wait(2 * SECOND)
        for _ in range(20):
            await world.publish()
        await world.wait(10 * SECOND)
        assert {row.status for row in await world.deliveries()} == {Status.DELIVERED}
        assert len(world.all_hits(URL)) == 20
        await balanced(world)

    fleet(story)
