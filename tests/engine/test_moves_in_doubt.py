"""Deliveries moved to another URL by a step whose reply was lost are read there."""

from __future__ import annotations

from typing import Any

from engine.world import HOUR, SECOND, World, always, changed, live
from homing.errors import StoreUnavailable
from homing.model import Status

URL = "https://receiver.example/hook"
OTHER = "https://other.example/hook"


def test_a_move_whose_reply_was_lost_leaves_nothing_behind() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        subscription = await world.subscribe(URL)
        other = await world.subscribe(OTHER, "other.type")  # Its endpoint is at work already.
        await world.publish("other.type")
        for _ in range(3):
            await world.publish()
        await world.settled()
        admin = world.engine._core.admin
        run_cleanup_job, lost = admin.run_cleanup_job, 0

        async def reply_lost(*args: Any, **more: Any) -> Any:
            nonlocal lost
            step = await run_cleanup_job(*args, **more)
            if not lost and step.touched:
                lost += 1
                raise StoreUnavailable
            return step

        admin.run_cleanup_job = reply_lost  # type: ignore[method-assign]
        await world.engine.change(subscription.id, changed(url=OTHER))
        await world.wait(10 * SECOND)
        assert lost == 1
        await world.wait(HOUR)
        assert {row.status for row in await world.deliveries()} == {Status.DELIVERED}
        assert other.endpoint_id in world.engine._dispatcher.queues

    live(story)
