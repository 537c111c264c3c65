"""One tenant's dead hosts are not an outage of the sender: others wait a minute at most."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.outages import STRICT, Net
from engine.world import MINUTE, SECOND, Reply, World, live
from homing.engine.options import EngineOptions
from homing.model import Failure, State
from homing.policy.outage import OutageState
from homing.policy.url import host_of

DROPPED = Reply(code=None, failure=Failure.CONNECT_TIMEOUT, latency_ms=4_900)
REFUSED = Reply(code=None, failure=Failure.REFUSED)


def hosts(name: str, count: int) -> list[str]:
    """One URL on each of so many hosts."""
    return [f"https://{name}{n}.example/{n}" for n in range(count)]


class Town:
    """Tenants whose endpoints were healthy a moment ago."""

    def __init__(self, world: World, **urls: list[str]) -> None:
        self.world, self.net, self.urls = world, Net(world), urls
        self._tenant = {url: tenant for tenant, some in urls.items() for url in some}

    async def wake(self, *tenants: str) -> None:
        """Publish to every endpoint of these tenants, or of all; each responds."""
        for tenant in tenants or self.urls:
            for url in self.urls[tenant]:
                self.world.sender.scripts[url] = self.net.script
                await self.world.subscribe(url, "all", f"to.{host_of(url)}", tenant=tenant)
            await self.world.publish("all", tenant=tenant)
        await self.world.wait(SECOND)

    def kill(self, urls: list[str], reply: Reply = DROPPED) -> None:
        self.net.own.update(dict.fromkeys(urls, reply))

    def heal(self, urls: list[str]) -> None:
        for url in urls:
            self.net.own.pop(url, None)

    async def send(self, urls: list[str]) -> None:
        """Publish one event to each of these endpoints only."""
        for url in urls:
            await self.world.publish(f"to.{host_of(url)}", tenant=self._tenant[url])

    async def wait_of(self, url: str) -> int:
        """How long it takes until a request arrives at a working URL; ten minutes at most."""
        began, seen = self.world.clock.now(), len(self.world.sender.hits)
        await self.send([url])
        while self.world.clock.now() - began < 10 * MINUTE:
            await self.world.wait(100)
            if any(hit.url == url for hit in self.world.sender.hits[seen:]):
                break
        return self.world.clock.now() - began

    async def states(self, tenant: str) -> set[State]:
        found, _ = await self.world.views.endpoints(
            tenant=tenant, state=None, before_id=None, limit=1_000
        )
        return {endpoint.health.state for endpoint in found}

    @property
    def closed(self) -> bool:
        return self.world.engine.pulse().outage.state is OutageState.CONFIRMED

    @property
    def outages(self) -> int:
        return self.world.engine.pulse().outage.outages


@pytest.mark.parametrize("reply", [DROPPED, REFUSED], ids=["dropped", "refused"])
def test_sixty_dead_hosts_of_one_tenant_are_disabled_and_stop_nobody(reply: Reply) -> None:
    async def story(world: World) -> None:
        town = Town(world, dead=hosts("dead", 60), well=hosts("well", 5))
        await town.wake()
        town.kill(town.urls["dead"], reply)
        waits = []
        for _ in range(4):
            await town.send(town.urls["dead"])
            await world.wait(45 * SECOND)
            waits.append(await town.wait_of(town.urls["well"][0]))
        assert (town.outages, max(waits) <= SECOND) == (0, True), waits
        assert await town.states("dead") == {State.DISABLED}
        assert await town.states("well") == {State.ENABLED}

    live(story, STRICT)


@pytest.mark.parametrize("tenants", [1, 2, 10])
def test_twenty_six_of_two_hundred_are_not_most_of_them(tenants: int) -> None:
    async def story(world: World) -> None:
        urls = hosts("host", 200)
        town = Town(world, **{f"t{n}": urls[n::tenants] for n in range(tenants)})
        await town.wake()
        town.kill(urls[:26])
        await town.send(urls[:26])
        await world.wait(MINUTE)
        assert town.outages == 0

    live(story)


@pytest.mark.parametrize("tenants", [1, 2, 10])
def test_when_all_of_two_hundred_fail_it_is_our_outage(tenants: int) -> None:
    async def story(world: World) -> None:
        urls = hosts("host", 200)
        town = Town(world, **{f"t{n}": urls[n::tenants] for n in range(tenants)})
        await town.wake()
        town.kill(urls)
        await town.send(urls)
        await world.wait(MINUTE)
        assert (town.outages, town.closed) == (1, True)
        town.heal(urls)
        await world.wait(MINUTE)
        assert not town.closed
        await town.net.unharmed(urls=[])

    live(story, STRICT)


def test_a_tenant_with_two_hundred_endpoints_does_not_outvote_five_with_five_each() -> None:
    async def story(world: World) -> None:
        small = {f"small{n}": hosts(f"small{n}-", 5) for n in range(5)}
        town = Town(world, big=hosts("big", 200), **small)
        await town.wake()
        dead = [*town.urls["big"], *town.urls["small0"]]
        town.kill(dead)
        await town.send(dead)
        await world.wait(MINUTE)
        assert town.outages == 0
        assert await town.wait_of(town.urls["small1"][0]) <= SECOND

    live(story)


def test_two_tenants_that_die_together_hold_a_third_up_for_seconds_and_only_once() -> None:
    async def story(world: World) -> None:
        town = Town(world, a=hosts("a", 60), b=hosts("b", 60), well=hosts("well", 1))
        await town.wake()
        dead = [*town.urls["a"], *town.urls["b"]]
        town.kill(dead)
        waits = []
        for _ in range(8):
            await town.send(dead)
            await world.wait(50 * SECOND)
            waits.append(await town.wait_of(town.urls["well"][0]))
        assert town.outages == 1
        assert max(waits) <= 10 * SECOND, waits
        assert await town.states("a") == await town.states("b") == {State.DISABLED}

    live(story, STRICT)


def test_a_new_tenant_whose_url_never_responded_before_is_tried_first() -> None:
    async def story(world: World) -> None:
        town = Town(world, a=hosts("a", 150), b=hosts("b", 150), new=hosts("new", 1))
        await town.wake("a", "b")
        dead = [*town.urls["a"], *town.urls["b"]]
        town.kill(dead)
        await town.send(dead)
        await world.wait(2 * MINUTE)
        assert town.closed
        (url,) = town.urls["new"]
        await world.subscribe(url, f"to.{host_of(url)}", tenant="new")
        assert await town.wait_of(url) <= 10 * SECOND
        assert not town.closed

    live(story)


def test_a_url_without_a_success_is_tried_within_a_minute_among_its_dead_neighbours() -> None:
    async def story(world: World) -> None:
        town = Town(world, a=hosts("a", 150), b=hosts("b", 150))
        await town.wake()
        town.kill([*town.urls["a"], *town.urls["b"]])
        await town.send([*town.urls["a"], *town.urls["b"]])
        await world.wait(2 * MINUTE)
        assert town.closed
        new = "https://new.example/"
        town.urls["a"].append(new)
        town._tenant[new] = "a"
        await world.subscribe(new, f"to.{host_of(new)}", tenant="a")
        assert await town.wait_of(new) <= MINUTE

    live(story)


def test_two_tenants_that_revive_and_kill_theirs_again_cost_a_third_seconds_each_time() -> None:
    async def story(world: World) -> None:
        town = Town(world, a=hosts("a", 20), b=hosts("b", 20), well=hosts("well", 1))
        await town.wake()
        dead, waits = [*town.urls["a"], *town.urls["b"]], []
        for _ in range(4):
            town.kill(dead)
            await town.send(dead)
            await world.wait(50 * SECOND)
            waits.append(await town.wait_of(town.urls["well"][0]))
            town.heal(dead)
            await world.wait(5 * MINUTE)
        assert town.outages == 4
        assert max(waits) <= 10 * SECOND, waits

    live(story)


def test_a_third_tenant_is_tried_also_when_the_dead_fill_the_memory() -> None:
    async def story(world: World) -> None:
        town = Town(world, a=hosts("a", 20), b=hosts("b", 20), well=hosts("well", 1))
        await town.wake()
        dead = [*town.urls["a"], *town.urls["b"]]
        town.kill(dead)
        await town.send(dead)
        await world.wait(MINUTE)
        assert town.closed
        for _ in range(4):
            for tenant in "ab":
                await world.publish("all", tenant=tenant, data="x" * 20_000)
        await world.wait(MINUTE)
        assert town.closed
        assert await town.wait_of(town.urls["well"][0]) <= MINUTE

    live(story, replace(EngineOptions(), ready_bytes_max=100_000))


def test_what_was_sent_during_an_outage_is_ours_also_when_it_fails_later() -> None:
    async def story(world: World) -> None:
        urls = hosts("host", 12)
        town = Town(world, t=urls)
        await town.wake()
        town.kill(urls, REFUSED)
        await town.send(urls)
        await world.wait(SECOND)
        town.kill(urls)  # The next canaries fail after 4.9 seconds.
        while world.engine.pulse().outage.canaries < 3:
            await world.wait(100)
        town.heal(urls[3:])
        await world.wait(4 * SECOND)
        assert town.closed
        town.heal(urls)
        await world.wait(2 * MINUTE)
        assert (town.outages, town.closed) == (1, False)
        await town.net.unharmed(urls=urls)

    live(story, STRICT)


def test_after_a_restart_the_dead_that_were_found_out_close_nothing() -> None:
    async def story(world: World) -> None:
        town = Town(world, a=hosts("a", 60), b=hosts("b", 60), well=hosts("well", 1))
        await town.wake()
        dead = [*town.urls["a"], *town.urls["b"]]
        town.kill(dead)
        await town.send(dead)
        await world.wait(30 * SECOND)
        await town.wait_of(town.urls["well"][0])
        await world.wait(30 * SECOND)
        assert town.outages == 1
        await world.crash()
        await world.wait(5 * MINUTE)
        assert town.outages == 0

    live(story)
