"""Slots and memory are divided: one tenant's hanging URLs do not affect other tenants.

Promised: what-homing-promises.md#lanes-and-fairness.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.world import MINUTE, SECOND, Hit, Reply, World, always, live
from homing.engine.options import EngineOptions
from homing.model import Lane
from homing.policy.health import HealthRules

HANG_MS = 30 * SECOND
OTHER = "https://other.example/hook"


def hanging(number: int) -> str:
    return f"https://hang{number}.example/hook"


async def hang(world: World, count: int, *, deadline_ms: int = HANG_MS) -> None:
    """One tenant subscribes URLs that never respond, and publishes for all of them."""
    for number in range(count):
        world.sender.scripts[hanging(number)] = always(200, latency_ms=HANG_MS * 2)
        await world.subscribe(
            hanging(number), "hang.*", tenant="greedy", deadline_ms=deadline_ms, policy="often"
        )
    for _ in range(4):
        await world.publish("hang.a", tenant="greedy")
    await world.settled()


def options(**more: int) -> EngineOptions:
    """A retry policy whose retries come soon, and a lane of 64 slots."""
    schedules = EngineOptions().schedules
    often = schedules["standard-webhooks"]
    lanes = EngineOptions(schedules={**schedules, "often": often}, fresh_slots=64, retry_slots=64)
    return replace(lanes, **more)


def waits(world: World, url: str, published_at: list[int]) -> list[int]:
    """How long each delivery waited for its first attempt."""
    hits = world.hits(url)
    assert len(hits) == len(published_at)
    return [hit - at for hit, at in zip(hits, published_at, strict=True)]


def test_hanging_urls_of_one_tenant_leave_the_first_attempts_of_another_at_once() -> None:
    async def story(world: World) -> None:
        await world.subscribe(OTHER, tenant="other")
        await hang(world, 100)
        published: list[int] = []
        for _ in range(40):
            published.append(world.since_start())
            await world.publish(tenant="other")
            await world.wait(2_500)
        assert waits(world, OTHER, published) == [0] * 40

    live(story, options())


def test_hanging_urls_of_one_tenant_leave_its_own_healthy_url_at_once() -> None:
    async def story(world: World) -> None:
        await world.subscribe(OTHER, "other.*", tenant="greedy")
        await world.publish("other.a", tenant="greedy")
        await world.wait(SECOND)
        await hang(world, 100)
        published = [0]
        for _ in range(40):
            published.append(world.since_start())
            await world.publish("other.a", tenant="greedy")
            await world.wait(2_500)
        assert waits(world, OTHER, published) == [0] * 41

    live(story, options())


def test_hanging_retries_of_one_tenant_leave_the_retries_of_another_at_once() -> None:
    async def story(world: World) -> None:
        def once_wrong(hit: Hit) -> Reply:
            return Reply(code=500 if hit.headers["homing-attempt"] == "1" else 200)

        world.sender.scripts[OTHER] = once_wrong
        await world.subscribe(OTHER, tenant="other", policy="often")
        for number in range(100):
            url = hanging(number)
            world.sender.scripts[url] = lambda hit: (
                Reply(code=500)
                if hit.headers["homing-attempt"] == "1"
                else Reply(latency_ms=2 * HANG_MS)
            )
            await world.subscribe(
                url, "hang.*", tenant="greedy", deadline_ms=HANG_MS, policy="often"
            )
        await world.publish("hang.a", tenant="greedy")
        await world.wait(10 * SECOND)
        assert world.engine.pulse().in_flight[Lane.RETRY] > 32
        for _ in range(3):
            await world.publish(tenant="other")
            await world.wait(10 * SECOND)
        first, second = world.hits(OTHER)[::2], world.hits(OTHER)[1::2]
        assert [b - a for a, b in zip(first, second, strict=True)] == [5_000] * 3

    live(story, options())


def test_when_the_tenant_with_hanging_urls_is_alone_it_may_use_most_of_the_lane() -> None:
    async def story(world: World) -> None:
        await hang(world, 100)
        await world.wait(SECOND)
        assert 40 <= world.engine.pulse().in_flight[Lane.FRESH] <= 60

    live(story, options())


def test_all_that_one_tenant_waits_for_is_attempted_in_the_end() -> None:
    """A share that is smaller than the backlog loses no delivery."""

    async def story(world: World) -> None:
        await hang(world, 100, deadline_ms=SECOND)
        await world.wait(20 * SECOND)
        for number in range(100):
            assert len(world.hits(hanging(number))) >= 4

    live(story, options())


@pytest.mark.parametrize("limit", [{"ready_max": 200}, {"ready_bytes_max": 16 * 1024}])
def test_the_queue_of_one_tenant_leaves_memory_for_another(limit: dict[str, int]) -> None:
    """First attempts of other tenants stay in memory: none of them is read from the store."""

    async def story(world: World) -> None:
        await world.subscribe(OTHER, tenant="other")
        world.sender.scripts[OTHER] = always(200, latency_ms=SECOND)
        await world.publish(tenant="other")
        await world.wait(2 * SECOND)
        await hang(world, 40)
        data = {"text": "x" * 200}
        for _ in range(30):
            await world.publish("hang.a", tenant="greedy", data=data)
        queue = world.engine._dispatcher.queues[(await world.endpoint(OTHER)).id]
        for _ in range(5):  # More than the endpoint has slots: some of them are queued.
            await world.publish(tenant="other", data=data)
            assert not queue.more_fresh
        await world.wait(5 * SECOND)
        assert len(world.hits(OTHER)) == 6

    live(story, options(**limit))


def test_a_tenant_whose_share_of_memory_is_full_still_has_its_other_urls_read() -> None:
    async def story(world: World) -> None:
        await world.subscribe(OTHER, "other.*", tenant="greedy")
        await hang(world, 40)
        for _ in range(30):
            await world.publish("hang.a", tenant="greedy")
        before = len(world.hits(OTHER))
        for _ in range(20):
            await world.publish("other.a", tenant="greedy")
            await world.wait(100)
        assert len(world.hits(OTHER)) == before + 20
        await world.wait(MINUTE)

    live(story, options(ready_max=200))


def test_hanging_probes_are_bounded_and_tenants_take_turns_among_them() -> None:
    """Disabled endpoints whose probes hang hold a share, and another tenant's probe is on time."""

    async def story(world: World) -> None:
        world.sender.scripts[OTHER] = always(500)
        await world.subscribe(OTHER, tenant="other")
        await hang(world, 60)
        await world.wait(8 * MINUTE)
        await world.publish(tenant="other")
        await world.wait(SECOND)
        states = world.engine.pulse().endpoints
        assert states == {"enabled": 0, "disabled": 61, "frozen": 0}
        world.sender.scripts[OTHER] = always(200)
        most = 0
        for _ in range(200):
            await world.wait(5 * SECOND)
            most = max(most, sum(world.sender._flying_at.values()))
        assert 10 <= most <= 16, most
        first, probe = world.hits(OTHER)
        assert probe - first == 10 * MINUTE
        probed = [len(world.hits(hanging(number))) for number in range(60)]
        assert min(probed) >= 2  # Each had its probe, though not all at once.

    rules = HealthRules(consecutive_disable=1)
    live(story, replace(options(), health=rules, probe_slots=16, probe_searches_max=8))


def test_rates_and_retries_go_on_while_the_memory_for_queues_is_full() -> None:
    """Retries of one tenant hang in every slot that it may hold, and its queue is large."""

    async def story(world: World) -> None:
        slow = "https://slow.example/hook"
        world.sender.scripts[OTHER] = lambda hit: Reply(
            code=500 if hit.headers["homing-attempt"] == "1" else 200
        )
        await world.subscribe(OTHER, "wrong", tenant="other", policy="often")
        await world.subscribe(slow, "slow", tenant="other", rate_per_second=1)
        await hang(world, 100)
        for _ in range(30):
            await world.publish("hang.a", tenant="greedy", data={"text": "x" * 500})
        await world.wait(MINUTE)  # Its retries hang, too.
        before = len(world.hits(slow))
        for _ in range(10):
            await world.publish("slow", tenant="other", data={"text": "x" * 500})
            await world.publish("wrong", tenant="other", data={"text": "x" * 500})
        await world.wait(12 * SECOND)
        assert len(world.hits(slow)) == before + 10
        assert len(world.hits(OTHER)) == 20

    live(story, options(ready_bytes_max=16 * 1024))
