"""Deliveries that move to another URL while the reply to a store operation is lost or late."""

from __future__ import annotations

import asyncio
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


def test_a_url_changed_there_and_back_before_the_reply_to_a_publish_gets_one_request() -> None:
    async def story(world: World) -> None:
        subscription = await world.subscribe(URL, "a.b")
        await world.subscribe(URL, "other.type")
        await world.publish("other.type")  # Its endpoint is in memory.
        publish, late = world.flow.publish, True
        changes: list[asyncio.Future[Any]] = []

        async def reply_late(*args: Any, **more: Any) -> Any:
            nonlocal late
            result = await publish(*args, **more)
            if late:
                late = False
                for url in (OTHER, URL):  # They are answered when this publish has ended.
                    await world.wait(SECOND)
                    change = world.engine.change(subscription.id, changed(url=url))
                    changes.append(asyncio.ensure_future(change))
                await world.wait(SECOND)
            return result

        world.flow.publish = reply_late  # type: ignore[method-assign]
        await world.publish()
        await world.publish()
        await world.wait(HOUR)
        assert (len(world.hits(OTHER)), len(world.hits(URL))) == (0, 3)
        assert {row.status for row in await world.deliveries()} == {Status.DELIVERED}

    live(story)
