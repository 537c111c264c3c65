"""The wall clock is stepped while the engine runs: receivers see the true time, schedules do not.

Promised: what-homing-promises.md#time.

Every story ends with a check of its signatures by foreign libraries at the receiver's own time,
which is the true one, with their tolerance of five minutes.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from engine.test_health import QUICK, URL, disable
from engine.world import DAY, HOUR, MINUTE, SECOND, Hit, Reply, World, always, live
from homing.model import Status

STEPS = [10 * MINUTE, -10 * MINUTE, DAY, -DAY]


@pytest.mark.parametrize("by_ms", STEPS)
def test_signatures_carry_the_wall_clock_and_retries_keep_their_times(by_ms: int) -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        await world.subscribe(URL)
        await world.publish()
        await world.wait(MINUTE)
        world.clock.step(by_ms)
        await world.wait(30 * MINUTE)
        base = 84_800
        assert world.hits(URL) == [0, base, 3 * base, 7 * base, 15 * base]
        for hit in world.sender.hits:
            wall = hit.at + (by_ms if hit.at - world.start_ms > MINUTE else 0)
            assert hit.headers["webhook-timestamp"] == str(wall // 1000)

    live(story)


def test_a_step_every_minute_there_and_back_moves_no_attempt_and_no_state() -> None:
    async def story(world: World) -> None:
        replies = iter([500, 500, 500, 200])
        world.sender.scripts[URL] = lambda _: Reply(code=next(replies))
        await world.subscribe(URL)
        await world.publish()
        for n in range(30):
            world.clock.step(STEPS[n % 4])
            await world.wait(MINUTE)
        assert world.hits(URL) == [0, 84_800, 3 * 84_800, 7 * 84_800]
        assert (await world.only_delivery()).status is Status.DELIVERED
        assert await world.transitions(URL) == []

    live(story)


def test_a_test_send_and_the_time_of_an_event_are_those_of_the_wall_clock() -> None:
    async def story(world: World) -> None:
        one = await world.subscribe(URL)
        world.clock.step(DAY)
        await world.publish()
        await world.settled()
        await world.engine.test_send(one.id)
        for hit in world.sender.hits:
            told = datetime.fromisoformat(msgspec.json.decode(hit.body)["timestamp"])
            assert round(told.timestamp() * 1000) == hit.wall

    live(story)


def test_a_notice_of_our_own_has_the_wall_clocks_time() -> None:
    async def story(world: World) -> None:
        one = await world.subscribe(URL, "a.*")
        await world.subscribe("https://people.example/", "homing.*")
        world.clock.step(-DAY)
        await world.engine.freeze(one.endpoint_id, by="ann")
        await world.wait(SECOND)
        (hit,) = world.sender.hits
        told = datetime.fromisoformat(msgspec.json.decode(hit.body)["timestamp"])
        assert abs(round(told.timestamp() * 1000) - hit.wall) <= SECOND

    live(story)


@pytest.mark.parametrize("by_ms", STEPS)
def test_a_date_in_retry_after_is_compared_with_the_wall_clock(by_ms: int) -> None:
    async def story(world: World) -> None:
        def later(hit: Hit) -> Reply:
            date = datetime.fromtimestamp(hit.wall // 1000 + 900, UTC)
            return Reply(code=503, retry_after=f"{date:%a, %d %b %Y %H:%M:%S GMT}")

        world.sender.scripts[URL] = later
        await world.subscribe(URL)
        world.clock.step(by_ms)
        await world.publish()
        await world.wait(20 * MINUTE)
        first, second = world.hits(URL)
        assert 899 * SECOND <= second - first <= 900 * SECOND

    live(story)


@pytest.mark.parametrize("by_ms", STEPS)
def test_nothing_that_is_held_back_expires_because_of_a_step(by_ms: int) -> None:
    """Nothing expires in the hour after a step, either."""

    async def story(world: World) -> None:
        one = await world.subscribe(URL)
        await world.engine.freeze(one.endpoint_id, by="ann")
        await world.publish()
        window = QUICK.schedule_of(one, tenant=one.tenant).window_ms
        await world.wait(window - MINUTE)
        world.clock.step(by_ms)
        await world.wait(HOUR - SECOND)
        assert (await world.only_delivery()).status is Status.PENDING
        await world.wait(2 * SECOND)
        assert (await world.only_delivery()).status is Status.DROPPED

    live(story, QUICK)


def test_the_old_secret_signs_for_all_of_the_overlap_though_the_wall_clock_leaps() -> None:
    async def story(world: World) -> None:
        one = await world.subscribe(URL)
        await world.engine.rotate(one.id, None, overlap_ms=HOUR)
        world.clock.step(DAY)
        for signatures in (2, 1):
            await world.publish()
            await world.wait(HOUR)
            assert len(world.sender.hits[-1].headers["webhook-signature"].split()) == signatures

    live(story)


def test_a_probe_comes_ten_minutes_after_disabling_whatever_the_wall_clock_says() -> None:
    async def story(world: World) -> None:
        await disable(world)
        at, before = (await world.endpoint(URL)).next_probe_at, len(world.sender.hits)
        assert at is not None
        world.clock.step(DAY)
        await world.wait(at - world.clock.now() - SECOND)
        assert len(world.sender.hits) == before
        await world.wait(2 * SECOND)
        assert len(world.sender.hits) == before + 1

    live(story, QUICK)
