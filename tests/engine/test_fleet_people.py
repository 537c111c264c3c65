"""People at many processes: what one has answered holds at all, whoever has not heard of it."""

from __future__ import annotations

import asyncio

from engine.fleet_world import URL, FleetWorld, fleet, two
from engine.world import SECOND, changed

OTHER = "https://other.example/"


def test_a_new_subscription_can_be_changed_at_a_process_that_has_not_heard_of_it() -> None:
    async def story(world: FleetWorld) -> None:
        one, other = await two(world)
        world.air.cut = True
        made = await world.subscribe(URL)
        assert (await other.engine.change(made.id, changed(description="new"))).description == "new"
        rotated = await other.engine.rotate(made.id, None, overlap_ms=0)
        assert rotated.description == "new"
        assert (await one.engine.test_send(made.id)).code == 200

    fleet(story)


def test_a_change_elsewhere_does_not_bring_a_rotated_secret_back() -> None:
    async def story(world: FleetWorld) -> None:
        _, other = await two(world)
        made = await world.subscribe(URL)
        await world.wait(2 * SECOND)
        world.air.cut = True
        rotated = await world.engine.rotate(made.id, None, overlap_ms=0)
        after = await other.engine.change(made.id, changed(description="new"))
        assert [it.value for it in after.secrets] == [it.value for it in rotated.secrets]

    fleet(story)


def test_of_two_changes_at_once_both_hold() -> None:
    async def story(world: FleetWorld) -> None:
        one, other = await two(world)
        made = await world.subscribe(URL)
        await world.wait(2 * SECOND)
        async with other.engine._settler.lock:  # It has read, and does not write yet.
            late = [
                asyncio.ensure_future(other.engine.change(made.id, changed(types=("a.*",)))),
                asyncio.ensure_future(other.engine.rotate(made.id, None, overlap_ms=60_000)),
            ]
            await world.wait(1)
            await one.engine.change(made.id, changed(description="new"))
        await asyncio.gather(*late)
        stored = await world.views.subscription(made.id)
        assert stored is not None
        assert (stored.description, stored.types) == ("new", ("a.*",))
        assert len(stored.secrets) == 2

    fleet(story)
