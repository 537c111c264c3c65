"""The clock was set, and the process restarts: every wait is as long as it would have been.

Promised: what-homing-promises.md#time.

What really passes is the loop's time, which no step moves.
"""

from __future__ import annotations

import asyncio

import pytest

from engine.fleet_world import LEASE_MS, FleetWorld, fleet
from engine.test_health import QUICK, URL, disable
from engine.world import DAY, HOUR, MINUTE, SECOND, Reply, World, always, live
from homing.engine.timekeeper import Timekeeper, others_run
from homing.model import Status
from homing.sim.loop import START_MS, VirtualClock
from homing.store.clock_marks import ClockMarks
from homing.store.leases import Leases

BASE = 84_800
STEPS = [10 * MINUTE, -10 * MINUTE, DAY, -DAY]


def passed() -> int:
    """The true elapsed time in milliseconds."""
    return round(asyncio.get_running_loop().time() * 1000)


async def begin(world: World) -> Timekeeper:
    keeper = Timekeeper(world.clock, ClockMarks(world.db))
    assert await keeper.begin() == 0
    return keeper


async def restart(world: World, *, ahead_ms: int) -> Timekeeper:
    """Start a new process whose clock is ahead of the true time by so much."""
    clock = VirtualClock(asyncio.get_running_loop(), start_ms=START_MS + ahead_ms)
    world.clock = world.sender._clock = clock
    keeper = await begin(world)
    await world.crash()
    return keeper


def failing(world: World) -> list[int]:
    """Let URL always fail; returns the true elapsed times of its requests."""
    asked: list[int] = []

    def fail(_: object) -> Reply:
        asked.append(passed())
        return Reply(code=500)

    world.sender.scripts[URL] = fail
    return asked


@pytest.mark.parametrize("by_ms", STEPS)
def test_after_a_step_and_a_restart_retries_come_at_their_times(by_ms: int) -> None:
    async def story(world: World) -> None:
        keeper = await begin(world)
        asked = failing(world)
        await world.subscribe(URL)
        await world.publish()
        await world.wait(MINUTE)
        world.clock.step(by_ms)
        await keeper.mark()
        await world.wait(SECOND)
        await restart(world, ahead_ms=by_ms)
        await world.wait(30 * MINUTE)
        assert asked == [0, BASE, 3 * BASE, 7 * BASE, 15 * BASE]

    live(story)


@pytest.mark.parametrize("marked_ms", [0, 2 * MINUTE])
def test_a_clock_that_is_set_back_while_the_process_is_down_delays_by_no_more_than_that(
    marked_ms: int,
) -> None:
    """The last mark may be minutes old when the process is killed."""

    async def story(world: World) -> None:
        keeper = await restart(world, ahead_ms=DAY)
        asked = failing(world)
        await world.subscribe(URL)
        await world.publish()
        await world.wait(2 * MINUTE - marked_ms)
        await keeper.mark()
        await world.wait(marked_ms)
        await restart(world, ahead_ms=0)
        began = passed()
        await world.wait(30 * MINUTE)
        late = asked[2] - 3 * BASE
        assert asked[:2] == [0, BASE]
        assert 0 <= late <= marked_ms, f"{late} ms"
        assert asked[2] > began

    live(story)


def test_probes_holds_and_windows_follow_too() -> None:
    async def story(world: World) -> None:
        keeper = await restart(world, ahead_ms=DAY)
        await disable(world)
        probe_at = (await world.endpoint(URL)).next_probe_at
        assert probe_at is not None
        wait, row = probe_at - world.clock.now(), (await world.deliveries(status=Status.PENDING))[0]
        left = row.delivery.expires_at - world.clock.now()
        world.clock.step(-DAY)
        await keeper.mark()
        await restart(world, ahead_ms=0)
        endpoint = await world.endpoint(URL)
        assert endpoint.next_probe_at == world.clock.now() + wait
        row = (await world.deliveries(status=Status.PENDING))[0]
        assert row.delivery.expires_at == world.clock.now() + left
        before = len(world.sender.hits)
        await world.wait(wait + SECOND)
        assert len(world.sender.hits) == before + 1

    live(story, QUICK)


def test_years_behind_at_boot_and_set_right_expire_nothing() -> None:
    """A machine without a battery: held back deliveries keep their windows, there and back."""

    async def story(world: World) -> None:
        years = 20 * 365 * DAY
        await begin(world)
        one = await world.subscribe(URL)
        await world.engine.freeze(one.endpoint_id, by="ann")
        await world.publish()
        await world.wait(HOUR)
        await Timekeeper(world.clock, ClockMarks(world.db)).mark()
        keeper = await restart(world, ahead_ms=-years)
        await world.wait(MINUTE)
        world.clock.step(years)
        await keeper.mark()
        await restart(world, ahead_ms=0)
        window = QUICK.schedule_of(one, tenant=one.tenant).window_ms
        await world.wait(window - passed() - MINUTE)
        assert (await world.only_delivery()).status is Status.PENDING
        await world.wait(HOUR)
        assert (await world.only_delivery()).status is Status.DROPPED

    live(story, QUICK)


def test_a_store_from_before_marks_is_told_by_its_newest_event() -> None:
    async def story(world: World) -> None:
        clock = VirtualClock(asyncio.get_running_loop(), start_ms=START_MS + DAY)
        world.clock = world.sender._clock = clock
        await world.crash()
        asked = failing(world)
        await world.subscribe(URL)
        await world.publish()
        await world.wait(SECOND)
        await restart(world, ahead_ms=0)
        await world.wait(30 * MINUTE)
        assert asked[0] == 0
        assert BASE <= asked[1] <= BASE + SECOND

    live(story)


def test_a_restart_with_a_clock_that_was_not_set_moves_nothing() -> None:
    async def story(world: World) -> None:
        await begin(world)
        world.sender.scripts[URL] = always(500)
        await world.subscribe(URL)
        await world.publish()
        await world.wait(MINUTE)
        before = await world.deliveries()
        await restart(world, ahead_ms=20 * SECOND)
        assert await world.deliveries() == before

    live(story)


@pytest.mark.parametrize("by_ms", STEPS)
def test_who_joins_a_fleet_that_runs_takes_its_steady_time(by_ms: int) -> None:
    async def story(world: FleetWorld) -> None:
        marks = ClockMarks(world.db)
        one = await world.join()
        keeper = Timekeeper(world.clock, marks)
        assert await keeper.begin() == 0
        await world.wait(MINUTE)
        await marks.mark_clock(world.clock.now(), world.clock.now() + by_ms)
        other = VirtualClock(asyncio.get_running_loop(), start_ms=START_MS + by_ms)
        leases = Leases(world.db, world.clock.now)
        me = await leases.join(name="new:1", role="both", delivers=True, lease_ms=LEASE_MS)

        async def others() -> bool:
            return await others_run(leases, me, LEASE_MS)

        assert await Timekeeper(other, marks).begin(others=others) == -by_ms
        one.beats.silent = True  # It is gone; its lease is still there.
        await marks.mark_clock(world.clock.now(), world.clock.now() + by_ms)
        assert await Timekeeper(other, marks).begin(others=others) == 0, "nobody else runs"

    fleet(story)
