"""An endpoint that asks for a pause waits in the store: its queue takes no memory from others."""

from __future__ import annotations

from engine.world import HOUR, MINUTE, World, always, live
from homing.engine.options import EngineOptions

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
