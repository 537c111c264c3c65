"""The world of the simulation: what a crash takes and what it leaves, and who checks signatures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook

from homing.model import Failure, Status
from homing.ports import Response
from homing.sim.loop import SpinsForEver, WaitsForEver, run_virtual
from homing.sim.world import Hit, Reply, Watch
from simulation.check_requests import signature_of
from simulation.lives import Crashed, MortalWorld

URL = "https://a.example/"


class Hits(Watch):
    def __init__(self) -> None:
        self.hits: list[Hit] = []
        self.responses: list[Response] = []

    def sent(self, hit: Hit) -> None:
        self.hits.append(hit)

    def responded(self, hit: Hit, response: Response) -> None:
        self.responses.append(response)


def live(story: Callable[[MortalWorld, Hits], Awaitable[None]]) -> None:
    async def run() -> None:
        hits = Hits()
        await story(await MortalWorld.make(watch=hits), hits)

    run_virtual(run())


def test_a_crash_drops_what_is_in_flight_and_keeps_what_was_accepted() -> None:
    async def story(world: MortalWorld, hits: Hits) -> None:
        world.scripts[URL] = lambda _: Reply(latency_ms=1_000)
        await world.subscribe(URL)
        await world.publish()
        await world.wait(500)
        await world.crash()
        await world.wait(5_000)

        assert [hit.number for hit in hits.hits] == [1, 1]
        assert [hit.life for hit in hits.hits] == [1, 2]
        assert len(hits.responses) == 1
        (row,) = await world.deliveries()
        assert row.status is Status.DELIVERED

    live(story)


def test_nothing_of_a_life_that_ended_does_anything_any_more() -> None:
    async def story(world: MortalWorld, hits: Hits) -> None:
        world.scripts[URL] = lambda _: Reply(code=503)
        await world.subscribe(URL)
        await world.publish()
        await world.wait(1_000)
        world.die()
        await world.wait(100_000_000)

        assert len(hits.hits) == 1
        with pytest.raises(Crashed):
            await world.publish()

    live(story)


def test_a_clock_may_differ_from_life_to_life() -> None:
    async def story(world: MortalWorld, hits: Hits) -> None:
        before = world.clock.now()
        await world.crash(clock_offset_ms=-3_600_000)

        assert world.clock.now() == before - 3_600_000

    live(story)


def test_a_response_beyond_the_deadline_is_a_timeout() -> None:
    async def story(world: MortalWorld, hits: Hits) -> None:
        world.scripts[URL] = lambda _: Reply(latency_ms=5_001)
        await world.subscribe(URL)
        await world.publish()
        await world.wait(6_000)

        assert [response.failure for response in hits.responses] == [Failure.TIMEOUT]

    live(story)


def test_the_signature_that_is_expected_is_the_one_of_the_standard_library_of_webhooks() -> None:
    async def story(world: MortalWorld, hits: Hits) -> None:
        subscription = await world.subscribe(URL)
        await world.publish()
        await world.wait(10)

        (hit,) = hits.hits
        secret = subscription.secrets[0].value
        at = datetime.fromtimestamp(int(hit.headers["webhook-timestamp"]), UTC)
        foreign = Webhook(secret).sign(hit.headers["webhook-id"], at, hit.body.decode())
        assert hit.headers["webhook-signature"] == foreign == signature_of(secret, hit)

    live(story)


def test_waiting_for_ever_is_an_error() -> None:
    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(WaitsForEver):
        run_virtual(wait())


def test_turning_for_ever_without_time_passing_is_an_error() -> None:
    async def turn() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(SpinsForEver):
        run_virtual(turn())
