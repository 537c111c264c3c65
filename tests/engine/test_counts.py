"""The counters of the pulse always equal a count over all queues."""

from __future__ import annotations

from collections import Counter

from engine.world import HOUR, MINUTE, Reply, World, always, live
from homing.engine import overdue
from homing.engine.engine import Engine
from homing.engine.options import EngineOptions
from homing.model import Lane
from homing.policy.health import HealthRules
from steps import steps

QUICK = EngineOptions(
    health=HealthRules(rate_after_attempts=10, consecutive_disable=20, consecutive_freeze=25),
    retry_slots=2,
    fresh_slots=4,
)


def check(engine: Engine) -> None:
    queues, pulse = engine._dispatcher.queues.values(), engine.pulse()
    states = Counter(it.endpoint.health.state.value for it in queues)
    assert Counter(pulse.endpoints) == states
    assert pulse.ready[Lane.FRESH] == sum(len(it.fresh) for it in queues)
    assert pulse.ready[Lane.RETRY] == sum(len(it.retry) for it in queues)
    assert pulse.in_flight[Lane.PROBE] == sum(it.probing for it in queues)


def test_the_counters_are_right_while_endpoints_fail_heal_and_go() -> None:
    async def story(world: World) -> None:
        urls = [f"https://receiver-{n}.example/hook" for n in range(8)]
        made = [await world.subscribe(url, "a.*") for url in urls]
        for url in urls[:5]:
            world.sender.scripts[url] = always(500, latency_ms=700)
        for turn in range(30):
            for _ in range(5):
                await world.publish()
                check(world.engine)
            await world.wait(40 * turn)
            check(world.engine)
        await world.engine.unsubscribe(made[0].id)
        await world.engine.freeze(made[1].endpoint_id, by="ann")
        check(world.engine)
        for step in range(60):
            await world.wait(MINUTE + 333)
            check(world.engine)
            if step == 30:
                world.sender.scripts.clear()
                await world.engine.enable(made[1].endpoint_id, by="ann")
        await world.wait(3 * HOUR)
        check(world.engine)
        assert sum(world.engine.pulse().ready.values()) == 0

    live(story, QUICK)


def test_queues_that_are_forgotten_no_longer_count() -> None:
    async def story(world: World) -> None:
        for n in range(6):
            await world.subscribe(f"https://receiver-{n}.example/hook", "a.*")
        await world.publish()
        await world.wait(1_000)
        assert sum(world.engine.pulse().endpoints.values()) <= 3
        check(world.engine)
        world.engine._dispatcher.forget_buckets(range(256))
        check(world.engine)
        assert sum(world.engine.pulse().endpoints.values()) == 0

    live(story, EngineOptions(queues_max=2))


def test_what_is_stuck_is_found_among_many_after_one_round() -> None:
    async def story(world: World) -> None:
        for n in range(4 * overdue.EACH_TIME):
            await world.subscribe(f"https://receiver-{n}.example/hook", "a.*")
        await world.publish()
        await world.wait(1_000)
        engine, queues = world.engine, list(world.engine._dispatcher.queues.values())
        assert engine.pulse().due_since is None
        since = world.clock.now()
        queues[17].note_in_store(next_due=since)  # and nobody has been told
        found = [engine.pulse().due_since for _ in range(6)]
        assert since in found
        assert found[-1] == since  # found once, it is looked at again each time
        queues[17].forget_stored()
        assert engine.pulse().due_since is None

    live(story)


def test_the_oldest_due_delivery_is_found_although_no_slot_is_free() -> None:
    async def story(world: World) -> None:
        url = "https://receiver.example/hook"
        await world.subscribe(url, "a.*")
        world.sender.scripts[url] = lambda _: Reply(latency_ms=4_000)
        assert world.engine.pulse().oldest_due is None
        since = world.clock.now()
        for _ in range(3):
            await world.publish()
        await world.wait(2_000)
        pulse = world.engine.pulse()
        assert pulse.due_since is None
        assert pulse.oldest_due is not None
        assert since <= pulse.oldest_due < since + 1_000
        queue = next(iter(world.engine._dispatcher.queues.values()))
        await world.engine.freeze(queue.endpoint.id, by="test")
        await world.wait(1_000)
        assert world.engine.pulse().oldest_due is None

    live(story, EngineOptions(endpoint_slots=1))


def test_a_pulse_costs_the_same_with_four_times_the_endpoints() -> None:
    async def story(world: World) -> None:
        cost = []
        for first, last in ((0, 128), (128, 512)):
            for n in range(first, last):
                await world.subscribe(f"https://receiver-{n}.example/hook", "a.*")
            await world.publish()
            await world.wait(1_000)
            assert sum(world.engine.pulse().endpoints.values()) == last
            cost.append(steps(world.engine.pulse))
        assert cost[1] <= 1.25 * cost[0]

    live(story)
