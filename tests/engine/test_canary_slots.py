"""Canaries take no more slots than there are, and not every response ends an outage."""

from __future__ import annotations

import msgspec

from engine.outages import OUTAGES, STRICT, URLS, Net
from engine.world import MINUTE, SECOND, Hit, Reply, World, live
from homing.policy.outage import OutageState


def test_an_endpoint_whose_canary_is_in_flight_when_the_outage_ends_gets_no_second_attempt() -> (
    None
):
    async def story(world: World) -> None:
        net = Net(world)
        await net.connect()
        for _ in range(60):  # Every endpoint has many slots.
            await world.publish()
        await world.wait(SECOND)
        net.out = OUTAGES["out of descriptors"]
        for _ in range(50):
            await world.publish()
        await world.wait(6 * SECOND)
        assert world.engine.pulse().outage.state is OutageState.CONFIRMED
        net.out, net.reply = None, Reply(latency_ms=4_000)
        quick = 0

        def first_is_quick(hit: Hit) -> Reply:
            nonlocal quick
            quick += 1
            return Reply() if quick == 1 else net.reply

        for url in URLS:
            world.sender.scripts[url] = first_is_quick
        world.sender.most_flying.clear()
        while world.engine.pulse().outage.state is OutageState.CONFIRMED:
            await world.wait(100)
        await world.wait(2 * SECOND)
        slots = sorted(world.sender.most_flying.values())
        assert slots[-2] == 1  # There was no room but where the canary got through.

    live(story, STRICT)


def test_canaries_keep_to_the_slots_of_their_lane() -> None:
    async def story(world: World) -> None:
        net = Net(world)
        await net.connect()
        net.out = OUTAGES["connects dropped"]
        await world.publish()
        await world.wait(10 * SECOND)
        assert world.engine.pulse().outage.state is OutageState.CONFIRMED
        most = 0
        for _ in range(100):
            await world.wait(SECOND)
            most = max(most, world.engine.pulse().in_flight["retry"])
        assert most == 1
        net.out = None
        await world.wait(10 * MINUTE)
        await net.unharmed()

    live(story, msgspec.structs.replace(STRICT, retry_slots=1))


def test_a_canary_to_a_remembered_address_does_not_end_the_outage_while_names_are_denied() -> None:
    async def story(world: World) -> None:
        net = Net(world)
        await net.connect()
        net.out = OUTAGES["no such name, for all"]
        await world.publish()
        await world.wait(8 * SECOND)
        assert world.engine.pulse().outage.state is OutageState.CONFIRMED
        world.sender.scripts[URLS[0]] = lambda _: Reply(remembered=True)
        await world.wait(2 * MINUTE)
        assert world.engine.pulse().outage.state is OutageState.CONFIRMED
        assert len(world.hits(URLS[0])) >= 2
        net.out = None
        await world.wait(2 * MINUTE)
        await net.unharmed()

    live(story, STRICT)
