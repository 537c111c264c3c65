"""A process that stops normally leaves the fleet at once, and gives up all its buckets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.fleet_world import LEASE_MS, FleetWorld, Machine, fleet, two
from engine.world import SECOND
from homing.ports import FleetState


async def listed(world: FleetWorld) -> set[int]:
    """Return the numbers of the processes that the store lists as alive."""
    rows = await world.db.run(lambda tx: tx.all("processes"), read_only=True)
    return {row[0] for row in rows if row[-1] > world.clock.now()}


def heartbeats_of(machine: Machine) -> list[int]:
    """Every heartbeat that this process sends from now on is appended to the list."""
    sent: list[int] = []
    real = machine.beats.renew

    async def renew(member_id: int, **more: Any) -> FleetState | None:
        sent.append(member_id)
        return await real(member_id, **more)

    machine.beats.renew = renew  # type: ignore[method-assign]
    return sent


@pytest.mark.parametrize("turns", range(6))
def test_a_stop_ends_the_heartbeat_whatever_it_waits_for(turns: int) -> None:
    """The stop wakes the heartbeat, and some turns of the event loop later it cancels it."""

    async def story(world: FleetWorld) -> None:
        leaving, staying = await two(world)
        assert leaving.engine.fleet is not None
        began = world.clock.now()
        leaving.engine.fleet.begin_to_leave()
        for _ in range(turns):
            await asyncio.sleep(0)
        await leaving.engine.stop(grace_ms=1_000)
        assert world.clock.now() == began, "nothing was in flight that it could have waited for"
        assert await listed(world) == {staying.me.id}
        sent = heartbeats_of(leaving)
        await world.wait(3 * LEASE_MS)
        assert sent == []
        assert len(staying.buckets) == 256

    fleet(story)


def test_a_stop_does_not_wait_for_a_heartbeat_that_gets_no_response() -> None:
    async def story(world: FleetWorld) -> None:
        leaving, staying = await two(world)

        async def renew(*_: object, **__: object) -> FleetState | None:
            try:
                await asyncio.sleep(60)
            finally:  # The driver brings its connection in order first.
                await asyncio.sleep(30)
            return None

        leaving.beats.renew = renew  # type: ignore[method-assign]
        await world.wait(LEASE_MS // 3 + SECOND)
        await leaving.engine.stop(grace_ms=1_000)
        assert await listed(world) == {staying.me.id}
        await world.wait(SECOND)
        assert len(staying.buckets) == 256

    fleet(story)
