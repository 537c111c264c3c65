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
