"""What the sums at the end of a run are made of."""

from __future__ import annotations

from engine.world import HOUR, Reply, World, live
from homing.model import Failure
from simulation.check_end import log_of

URL = "https://receiver.example/hook"


def test_every_attempt_of_a_delivery_is_read_from_the_log_however_many_there_are() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        world.sender.scripts[URL] = lambda _: Reply(code=None, failure=Failure.SENDER_LIMITS)
        await world.publish()
        await world.wait(20 * HOUR)
        (row,) = await world.deliveries()
        made = row.delivery.attempts
        assert made > 1_000
        numbers = [it.number for it in await log_of(world.db, row.delivery)]
        assert numbers == list(range(1, made + 1))

    live(story)
