"""How often hosts and deliveries are tried in an outage of the sender, however long it lasts."""

from __future__ import annotations

from itertools import pairwise

import pytest

from engine.outages import OUTAGES, STRICT, URLS, Net
from engine.test_outage_tenants import REFUSED, Town, hosts
from engine.world import HOUR, MINUTE, SECOND, World, live
from homing.model import Outcome, Status
from homing.policy.outage import OutageState
from homing.policy.url import host_of


def host_waits(world: World, seen: int) -> dict[str, list[int]]:
    """The times between requests, for each host, without the first ``seen`` requests."""
    times: dict[str, list[int]] = {}
    for hit in world.sender.hits[seen:]:
        times.setdefault(host_of(hit.url), []).append(hit.at)
    return {host: [b - a for a, b in pairwise(each)] for host, each in times.items()}


@pytest.mark.parametrize("waiting", [1, len(URLS)])
def test_in_a_long_outage_a_host_is_tried_less_often_and_still_every_minute(waiting: int) -> None:
    async def story(world: World) -> None:
        net = Net(world)
        await net.connect()
        net.out = OUTAGES["all refused"]
        await world.publish()
        await world.wait(8 * SECOND)
        assert world.engine.pulse().outage.state is OutageState.CONFIRMED
        for row in (await world.deliveries(status=Status.PENDING))[waiting:]:
            await world.engine.cancel(row.delivery.id)
        seen = len(world.sender.hits)
        await world.wait(4 * HOUR)
        for each in host_waits(world, seen).values():
            assert max(each) <= MINUTE
            assert min(each[4:]) >= 40 * SECOND
        rows = await world.deliveries(status=Status.PENDING)
        assert len(rows) == waiting
        for row in rows:
            attempts = await world.views.attempts(row.delivery.id)
            assert len(attempts) == row.delivery.attempts <= 4 * 90 + 10
            assert {one.outcome for one in attempts} == {Outcome.SENDER_ERROR}
        net.out = None
        await world.wait(MINUTE)
        assert not await world.deliveries(status=Status.PENDING)

    live(story, STRICT)


def test_with_very_many_hosts_each_is_tried_every_minute() -> None:
    async def story(world: World) -> None:
        town = Town(world, a=hosts("a", 70), b=hosts("b", 70))
        await town.wake()
        urls = town.urls["a"] + town.urls["b"]
        town.kill(urls, REFUSED)
        await town.send(urls)
        await world.wait(8 * SECOND)
        assert town.closed
        seen = len(world.sender.hits)
        await world.wait(20 * MINUTE)
        waits = host_waits(world, seen)
        assert len(waits) == len(urls)
        assert max(map(max, waits.values())) <= MINUTE
        assert min(map(len, waits.values())) >= 20 - 1

    live(story, STRICT)
