"""The clock was set, and the process restarts: every wait is as long as it would have been.

Promised: what-homing-promises.md#time.

What really passes is the loop's time, which no step moves.
"""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from engine.fleet_world import LEASE_MS, FleetWorld, fleet
from engine.test_health import QUICK, URL, disable
from engine.world import DAY, HOUR, MINUTE, SECOND, Reply, World, always, live
from homing.engine.timekeeper import Timekeeper, others_run
from homing.model import Status
from homing.ports import ClockReading
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


async def restart(
    world: World, *, ahead_ms: int, kernel: str = "first", synchronised: bool = False
) -> Timekeeper:
    """Start a new process whose clock is ahead of the true time by so much."""
    loop = asyncio.get_running_loop()
    clock = VirtualClock(
        loop, start_ms=START_MS + ahead_ms, kernel=kernel, synchronised=synchronised
    )
    world.clock = world.sender._clock = clock
    keeper = Timekeeper(clock, ClockMarks(world.db))
    clock.go_on_at(clock.now() + await keeper.begin())
    await world.crash()
    return keeper


def reading(world: World, ahead_ms: int) -> ClockReading:
    """What the clocks show, if the one that is followed is ahead of steady time."""
    now = world.clock.read()
    ahead = world.clock.now() + ahead_ms
    return replace(now, clock_ms=ahead, wall_ms=ahead)


async def dead(world: World, for_ms: int) -> None:
    """Kill the process; nothing runs for so long."""
    await world.kill()
    await world.wait(for_ms)


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


@pytest.mark.parametrize("down_ms", [2 * SECOND, 20 * MINUTE])
@pytest.mark.parametrize("by_ms", [*STEPS, 15 * SECOND, -15 * SECOND, 2 * DAY])
def test_a_clock_that_is_set_while_the_process_is_down_changes_no_wait(
    by_ms: int, down_ms: int
) -> None:
    """The kernel counts what has passed; the process was killed a minute after its last mark."""

    async def story(world: World) -> None:
        await begin(world)
        asked = failing(world)
        await world.subscribe(URL)
        await world.publish()
        await world.wait(MINUTE)
        await dead(world, down_ms)
        await restart(world, ahead_ms=by_ms)
        began = passed()
        await world.wait(DAY)
        due = [BASE * (2**n - 1) for n in range(1, 11)]
        first = [began] if began > BASE else []  # What was due meanwhile is made once.
        assert asked == [0, *first, *(it for it in due if began < it <= passed())]
        assert (await world.only_delivery()).status is Status.PENDING

    live(story)


@pytest.mark.parametrize("by_ms", [0, *STEPS, 15 * SECOND, -15 * SECOND, 2 * DAY])
def test_after_a_reboot_a_clock_that_is_not_synchronised_makes_nothing_early(by_ms: int) -> None:
    """Nothing tells a downtime from a clock that was set: waits are as long as at the mark."""

    async def story(world: World) -> None:
        keeper = await begin(world)
        asked = failing(world)
        await world.subscribe(URL)
        await world.publish()
        await world.wait(MINUTE)
        await keeper.mark()
        await dead(world, 10 * MINUTE)
        await restart(world, ahead_ms=by_ms, kernel="second")
        await world.wait(60 * MINUTE)
        late = 10 * MINUTE
        assert asked == [0, BASE + late, *(late + BASE * (2**n - 1) for n in range(2, 6))]

    live(story)


def test_after_a_reboot_a_synchronised_clock_tells_the_downtime() -> None:
    async def story(world: World) -> None:
        await restart(world, ahead_ms=0, synchronised=True)
        asked = failing(world)
        await world.subscribe(URL)
        await world.publish()
        await world.wait(MINUTE)
        await dead(world, 10 * MINUTE)
        await restart(world, ahead_ms=0, kernel="second", synchronised=True)
        await world.wait(20 * MINUTE)
        assert asked == [0, 11 * MINUTE, 15 * BASE]

    live(story)


def test_times_from_before_a_long_downtime_move_with_the_others() -> None:
    """The kernel told that downtime, so the times before and after it are in one steady time."""

    async def story(world: World) -> None:
        await begin(world)
        asked = failing(world)
        await world.subscribe(URL)
        await world.publish()
        await world.wait(MINUTE)
        await dead(world, 20 * MINUTE)
        await restart(world, ahead_ms=0)
        await world.wait(MINUTE)
        await dead(world, MINUTE)
        await restart(world, ahead_ms=2 * DAY)
        await world.wait(2 * HOUR)
        assert asked == [0, 21 * MINUTE, *(BASE * (2**n - 1) for n in range(4, 7))]
        assert (await world.only_delivery()).status is Status.PENDING

    live(story)


@pytest.mark.parametrize("marked_ms", [0, 2 * MINUTE])
def test_a_clock_set_back_and_a_reboot_delay_by_no_more_than_since_the_mark(
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
        await restart(world, ahead_ms=0, kernel="second")
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
        await marks.mark_clock(reading(world, by_ms))
        other = VirtualClock(asyncio.get_running_loop(), start_ms=START_MS + by_ms)
        leases = Leases(world.db, world.clock.now)
        me = await leases.join(name="new:1", role="both", delivers=True, lease_ms=LEASE_MS)

        async def others() -> bool:
            return await others_run(leases, me, LEASE_MS)

        assert await Timekeeper(other, marks).begin(others=others) == -by_ms
        one.beats.silent = True  # It is gone; its lease is still there.
        await marks.mark_clock(reading(world, by_ms))
        assert await Timekeeper(other, marks).begin(others=others) == 0, "nobody else runs"

    fleet(story)
