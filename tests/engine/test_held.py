"""Deliveries of an endpoint that asked for a pause wait in the store and take no memory."""

from __future__ import annotations

from engine.world import HOUR, MINUTE, SECOND, Hit, Reply, Script, World, always, live
from homing.engine.options import EngineOptions
from homing.model import Status

URL = "https://receiver.example/hook"
OTHER = "https://other.example/hook"


def test_what_a_held_endpoint_has_queued_keeps_nobody_else_from_being_read() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(503, latency_ms=1_000, retry_after="3600")
        world.sender.scripts[OTHER] = always(500)
        await world.subscribe(URL, "much")
        await world.subscribe(OTHER, "little")
        await world.publish("little", data={})
        await world.wait(10)
        for _ in range(5):  # The first of them is on its way, the others fill the memory.
            await world.publish("much", data={"text": "x" * 1_000})
        await world.wait(2 * MINUTE)
        assert len(world.hits(OTHER)) == 2  # Its retry was read and went.
        await world.wait(HOUR)
        assert len(world.hits(URL)) > 1  # What was held goes when the pause is over.

    live(story, EngineOptions(ready_bytes_max=2_000))


def test_what_a_slow_endpoint_has_queued_keeps_nobody_else_from_being_read() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=4_000)
        world.sender.scripts[OTHER] = always(500)
        await world.subscribe(URL, "much")
        await world.subscribe(OTHER, "little")
        await world.publish("little", data={})
        await world.wait(84_800 - 2_000)
        for _ in range(5):  # The first of them is on its way, the others fill the memory.
            await world.publish("much", data={"text": "x" * 1_000})
        await world.publish("little", data={})
        await world.wait(1_000)
        assert len(world.hits(OTHER)) == 2  # The new one, at once.
        await world.wait(1_500)
        assert len(world.hits(OTHER)) == 3  # And the retry, when it was due.
        assert len(world.hits(URL)) == 1
        await world.wait(2 * MINUTE)
        assert len(world.hits(URL)) == 5

    live(story, EngineOptions(ready_bytes_max=2_000))


def test_while_the_memory_is_full_only_what_can_go_at_once_is_read() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=4_000)
        world.sender.scripts[OTHER] = always(200, latency_ms=4_000)
        await world.subscribe(URL, "much")
        await world.subscribe(OTHER, "also")
        for _ in range(5):
            await world.publish("much", data={"text": "x" * 1_000})
        full = world.engine.pulse().memory_bytes
        for _ in range(5):
            await world.publish("also", data={"text": "x" * 1_000})
        await world.wait(3_000)
        assert len(world.hits(OTHER)) == 1  # One slot, one attempt; the rest waits in the store.
        assert world.engine.pulse().memory_bytes == full
        await world.wait(2 * MINUTE)
        assert len(world.hits(OTHER)) == 5

    live(story, EngineOptions(ready_bytes_max=2_000))


def responds_the_second_time(latency_ms: int) -> Script:
    seen: set[str] = set()

    def script(hit: Hit) -> Reply:
        again = hit.url in seen
        seen.add(hit.url)
        return Reply(200, latency_ms=latency_ms) if again else Reply(500)

    return script


async def with_retries(world: World, count: int) -> None:
    """Make so many endpoints whose first retries have just become due and take four seconds."""
    script = responds_the_second_time(4_000)
    for number in range(count):
        url = f"https://r{number}.example/"
        world.sender.scripts[url] = script
        await world.subscribe(url, f"t.{number}")
    for number in range(count):
        await world.publish(f"t.{number}", data={"text": "x" * 1_000})
    await world.wait(84_800 + SECOND)


def test_retries_that_wait_for_a_slot_keep_no_first_attempt_from_being_read() -> None:
    async def story(world: World) -> None:
        await world.subscribe(OTHER, "little")
        await with_retries(world, 100)
        assert world.engine.pulse().in_flight["retry"] == 2
        await world.publish("little", data={})
        await world.wait(100)
        assert len(world.hits(OTHER)) == 1
        await world.engine.freeze((await world.endpoint(OTHER)).id, by="ann")
        await world.publish("little", data={})  # Now it is the store's, and read.
        await world.engine.enable((await world.endpoint(OTHER)).id, by="ann")
        await world.publish("little", data={})
        await world.wait(100)
        assert len(world.hits(OTHER)) == 2  # The other one was held back: it is in the retry lane.
        await world.wait(10 * MINUTE)
        assert {row.status for row in await world.deliveries()} == {Status.DELIVERED}

    live(story, EngineOptions(ready_bytes_max=8_000, retry_slots=2))


def test_what_was_started_makes_room_for_the_next_at_once() -> None:
    async def story(world: World) -> None:
        await with_retries(world, 40)
        assert world.engine.pulse().in_flight["retry"] == 40
        assert world.engine.pulse().due_since is None

    live(story, EngineOptions(ready_bytes_max=8_000))


def test_reading_for_first_attempts_brings_no_retries_that_cannot_go() -> None:
    async def story(world: World) -> None:
        failed = 0

        def script(_hit: Hit) -> Reply:
            nonlocal failed
            failed += 1
            return Reply(500) if failed <= 60 else Reply(200, latency_ms=4_000)

        world.sender.scripts[URL] = script
        await world.subscribe(URL, "much")
        await world.subscribe(OTHER, "little")
        for _ in range(60):
            await world.publish("much", data={"text": "x" * 1_000})
        await world.wait(84_000)
        for _ in range(200):  # Beside them its retries fall due, and there is one slot for them.
            await world.publish("much", data={"text": "x" * 1_000})
        for number in range(60):
            await world.publish("little", data={})
            await world.wait(SECOND)
            assert len(world.hits(OTHER)) == number + 1
            assert world.engine.pulse().memory_bytes <= 40_000

    live(story, EngineOptions(ready_bytes_max=40_000, retry_slots=1))
