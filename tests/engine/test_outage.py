"""Outages of the sender on virtual time: failures use no retry, and sending resumes by itself.

Promised: what-homing-promises.md#failures-on-the-senders-side.
"""

from __future__ import annotations

import asyncio

import pytest

from engine.outages import OUTAGES, STRICT, URLS, Net
from engine.world import DAY, HOUR, MINUTE, SECOND, Reply, World, live
from homing.engine.options import EngineOptions
from homing.engine.outage.detection import OutageView
from homing.model import Failure, Outcome, State, Status
from homing.policy.outage import OutageRules, OutageState
from homing.policy.retry import Anchor, Schedule
from homing.sim.loop import START_MS, VirtualClock


@pytest.mark.parametrize("kind", OUTAGES)
def test_an_outage_of_our_own_changes_no_endpoint_and_spends_no_retry(kind: str) -> None:
    async def story(world: World) -> None:
        net = Net(world)
        await net.connect()
        net.out = OUTAGES[kind]
        await world.publish()
        await world.wait(30 * SECOND)
        assert world.engine.pulse().outage.state is OutageState.CONFIRMED
        await world.publish()
        await world.wait(20 * MINUTE)
        net.out = None
        await world.wait(MINUTE)
        assert world.engine.pulse().outage.state is OutageState.NONE
        await net.unharmed()
        attempts = [
            one
            for row in await world.deliveries()
            for one in await world.views.attempts(row.delivery.id)
        ]
        assert {one.outcome for one in attempts} == {Outcome.DELIVERED, Outcome.SENDER_ERROR}

    live(story, STRICT)


OURS = {"no route", "dead name servers", "out of descriptors", "proxy away", "proxy cut off"}


@pytest.mark.parametrize("kind", OUTAGES)
def test_with_detection_off_every_failure_counts_at_once_unless_it_is_ours_by_its_kind(
    kind: str,
) -> None:
    async def story(world: World) -> None:
        net = Net(world)
        await net.connect()
        assert world.engine.pulse().outage.state is OutageState.OFF
        net.out = OUTAGES[kind]
        await world.publish()
        await world.wait(net.out.latency_ms + 1)
        rows = [it for it in await world.deliveries() if it.status is Status.PENDING]
        (outcome,) = {
            one.outcome for row in rows for one in (await world.views.attempts(row.delivery.id))
        }
        assert len(rows) == len(URLS)
        assert outcome is (Outcome.SENDER_ERROR if kind in OURS else Outcome.FAILED)
        await world.wait(5 * SECOND)
        outage = world.engine.pulse().outage
        assert outage == OutageView(state=OutageState.OFF)

    live(story, EngineOptions(outage=OutageRules(detects=False)))


def test_while_closed_only_a_few_canaries_go_out_each_to_another_host() -> None:
    async def story(world: World) -> None:
        net = Net(world)
        await net.connect()
        net.out = OUTAGES["all refused"]
        await world.publish()
        await world.wait(6 * SECOND)
        outage = world.engine.pulse().outage
        assert (outage.state, outage.outages, outage.canaries) == (OutageState.CONFIRMED, 1, 0)
        assert "fail to connect" in outage.why
        for _ in range(100):
            await world.publish()
        before = len(world.sender.hits)
        await world.wait(MINUTE)
        rounds: dict[int, list[str]] = {}
        for hit in world.sender.hits[before:]:
            rounds.setdefault(hit.at, []).append(hit.url.split("/")[2])
        assert len(rounds) == 12  # one every 5 seconds
        assert all(len(hosts) == len(set(hosts)) == 3 for hosts in rounds.values())
        assert len({hit.url for hit in world.sender.hits[before:]}) == len(URLS)  # in turn

    live(story, STRICT)


def test_all_resumes_with_one_slot_when_a_canary_gets_through() -> None:
    async def story(world: World) -> None:
        net = Net(world)
        await net.connect()
        for _ in range(60):
            await world.publish()
        await world.wait(SECOND)
        net.out = OUTAGES["connects dropped"]
        for _ in range(50):
            await world.publish()
        await world.wait(MINUTE)
        net.out, net.reply = None, Reply(latency_ms=1_000)
        world.sender.most_flying.clear()
        while world.engine.pulse().outage.state is OutageState.CONFIRMED:
            await world.wait(100)
        await world.wait(900)
        slots = sorted(world.sender.most_flying.values())
        assert slots[:-3] == [2] * (len(URLS) - 3)  # One in each lane,
        assert max(slots) <= 4  # and where the canaries got through two.
        await world.wait(2 * MINUTE)
        await net.unharmed()

    live(story, STRICT)


def test_with_nine_healthy_endpoints_nobody_can_tell() -> None:
    async def story(world: World) -> None:
        net = Net(world)
        await net.connect(URLS[:9])
        net.out = OUTAGES["all refused"]
        await world.publish()
        await world.settled()
        assert world.engine.pulse().outage.state is OutageState.NONE
        rows = [row for row in await world.deliveries() if row.status is Status.PENDING]
        assert {row.delivery.retry for row in rows} == {1}

    live(story)


def test_ten_endpoints_on_four_hosts_are_not_the_world() -> None:
    async def story(world: World) -> None:
        urls = [f"https://host{n % 4}.example/{n}" for n in range(20)]
        net = Net(world)
        await net.connect(urls)
        net.out = OUTAGES["all refused"]
        await world.publish()
        await world.settled()
        assert world.engine.pulse().outage.state is OutageState.NONE

    live(story)


def test_health_of_more_than_ten_minutes_ago_counts_for_nothing() -> None:
    async def story(world: World) -> None:
        net = Net(world)
        await net.connect()
        await world.wait(10 * MINUTE)
        net.out = OUTAGES["all refused"]
        await world.publish()
        await world.settled()
        assert world.engine.pulse().outage.state is OutageState.NONE
        rows = [row for row in await world.deliveries() if row.status is Status.PENDING]
        assert {row.delivery.retry for row in rows} == {1}

    live(story)


def test_one_dead_receiver_is_failed_as_soon_as_another_gets_through() -> None:
    async def story(world: World) -> None:
        net = Net(world)
        await net.connect()
        net.own[URLS[0]] = Reply(code=None, failure=Failure.REFUSED, latency_ms=100)
        await world.publish()
        await world.wait(200)
        assert world.engine.pulse().outage.state is OutageState.SUSPECTED
        await world.publish()  # to all the others too
        await world.wait(50)
        assert world.engine.pulse().outage.state is OutageState.NONE
        rows = [row for row in await world.deliveries() if row.status is Status.PENDING]
        assert [row.delivery.retry for row in rows] == [1, 0]
        await world.wait(SECOND)  # Believed: its next failure needs no verdict.
        rows = [row for row in await world.deliveries() if row.status is Status.PENDING]
        assert [row.delivery.retry for row in rows] == [1, 1]
        assert world.engine.pulse().outage.state is OutageState.NONE

    live(story)


def test_alone_in_the_night_its_failure_waits_ten_seconds_and_is_its_own() -> None:
    async def story(world: World) -> None:
        net = Net(world)
        await net.connect()
        await world.wait(MINUTE)
        for url in URLS[1:]:
            await world.engine.freeze((await world.endpoint(url)).id, by="test")
        await world.wait(SECOND)
        net.own[URLS[0]] = OUTAGES["all refused"]
        failed_at = world.clock.now()
        await world.publish("night.call")
        await world.wait(9 * SECOND)
        assert world.engine.pulse().outage.waiting > 0
        await world.wait(2 * SECOND)
        endpoint = await world.endpoint(URLS[0])
        rows = await world.deliveries(endpoint_id=endpoint.id)
        (row,) = [row for row in rows if row.event_type == "night.call"]
        assert (row.delivery.retry, row.delivery.t0) == (1, failed_at)

    live(story)


def test_five_hundreds_show_that_we_are_connected() -> None:
    async def story(world: World) -> None:
        net = Net(world)
        await net.connect()
        net.out = Reply(code=500)
        await world.publish()
        await world.settled()
        assert world.engine.pulse().outage.state is OutageState.NONE
        rows = [row for row in await world.deliveries() if row.status is Status.PENDING]
        assert {row.delivery.retry for row in rows} == {1}

    live(story)


def test_hanging_receivers_that_took_the_connection_are_not_our_outage() -> None:
    async def story(world: World) -> None:
        net = Net(world)
        await net.connect()
        net.out = Reply(latency_ms=9_000)
        await world.publish()
        await world.wait(6 * SECOND)
        assert world.engine.pulse().outage.state is OutageState.NONE
        rows = [row for row in await world.deliveries() if row.status is Status.PENDING]
        assert {row.delivery.retry for row in rows} == {1}

    live(story)


@pytest.mark.parametrize(
    "from_before",
    [Reply(latency_ms=50, dialled=False), Reply(latency_ms=50, remembered=True)],
    ids=["connections", "addresses"],
)
def test_while_old_connections_live_sending_goes_on_and_failures_are_sender_errors(
    from_before: Reply,
) -> None:
    """All look-ups fail, and six receivers are reached without a new look-up."""

    async def story(world: World) -> None:
        net = Net(world)
        await net.connect()
        net.out = OUTAGES["no such name, for all"]
        for url in URLS[:6]:
            world.sender.scripts[url] = lambda _: from_before
        for _ in range(40):
            await world.publish()
            await world.wait(4 * SECOND)
        outage = world.engine.pulse().outage
        assert (outage.state, outage.outages) == (OutageState.SUSPECTED, 0)
        assert "connections made earlier still work" in outage.why
        net.out = None
        await world.wait(2 * MINUTE)
        await net.unharmed()
        assert world.engine.pulse().outage.state is OutageState.NONE

    live(story, STRICT)


def test_a_canary_that_is_answered_and_then_silence_again_still_spends_nothing() -> None:
    """A long outage with one short success: health from before the outage still counts."""

    async def story(world: World) -> None:
        net = Net(world)
        await net.connect()
        net.out = OUTAGES["all refused"]
        await world.publish()
        for _ in range(3):
            await world.wait(20 * MINUTE)
            outage = world.engine.pulse().outage
            assert outage.state is OutageState.CONFIRMED
            net.out = None
            while world.engine.pulse().outage.state is OutageState.CONFIRMED:
                await world.wait(10)
            net.out = OUTAGES["all refused"]
            await world.publish()
            await world.wait(30 * SECOND)
        assert world.engine.pulse().outage.outages == 4
        net.out = None
        await world.wait(2 * MINUTE)
        await net.unharmed()

    live(story, STRICT)


def test_a_probe_waits_for_the_end_of_an_outage_and_its_delivery_keeps_its_time() -> None:
    async def story(world: World) -> None:
        net = Net(world)
        await net.connect()
        net.own[URLS[0]] = Reply(code=500)
        for _ in range(3):
            await world.publish()
            await world.wait(SECOND)
        assert (await world.endpoint(URLS[0])).health.state is State.DISABLED
        net.out = OUTAGES["all refused"]
        await world.publish()
        await world.wait(SECOND)
        await world.wait(MINUTE)
        assert world.engine.pulse().outage.state is OutageState.CONFIRMED
        before = len(world.hits(URLS[0]))
        await world.wait(30 * MINUTE)
        assert len(world.hits(URLS[0])) == before
        net.out, net.own = None, {}
        await world.wait(2 * MINUTE)
        assert (await world.endpoint(URLS[0])).health.state is State.ENABLED
        rows = [row for row in await world.deliveries() if row.status is Status.PENDING]
        assert all(row.delivery.due_at > world.clock.now() for row in rows)

    live(story, STRICT)


def test_nothing_expires_during_an_outage_and_in_the_hour_after() -> None:
    async def story(world: World) -> None:
        net = Net(world)
        await net.connect()
        frozen = await world.endpoint(URLS[0])
        await world.engine.freeze(frozen.id, by="test")
        await world.publish()
        await world.wait(2 * HOUR)
        await world.publish()
        await world.wait(SECOND)
        net.out = OUTAGES["connects dropped"]
        await world.publish()
        await world.wait(2 * HOUR)  # The window of the first ends in our outage.
        assert world.engine.pulse().outage.state is OutageState.CONFIRMED
        net.out = None
        await world.wait(50 * MINUTE)
        assert not [row for row in await world.deliveries() if row.status is Status.DROPPED]
        await world.wait(20 * MINUTE)
        dropped = [row for row in await world.deliveries() if row.status is Status.DROPPED]
        assert [row.delivery.endpoint_id for row in dropped][:2] == [frozen.id] * 2

    short = Schedule("short", (60_000,), Anchor.FIRST_FAILURE, window_ms=3 * HOUR)
    live(story, EngineOptions(schedules={"short": short}, policy="short"))


def test_the_engine_is_not_called_stuck_during_an_outage() -> None:
    async def story(world: World) -> None:
        net = Net(world)
        await net.connect()
        net.out = OUTAGES["all refused"]
        await world.publish()
        await world.wait(HOUR)
        pulse = world.engine.pulse()
        assert pulse.outage.state is OutageState.CONFIRMED
        assert pulse.due_since is None or pulse.due_since == world.clock.now()

    live(story)


def test_a_stop_while_judging_settles_what_waits_as_sender_errors() -> None:
    async def story(world: World) -> None:
        net = Net(world)
        await net.connect()
        net.own[URLS[0]] = Reply(code=None, failure=Failure.REFUSED, latency_ms=100)
        await world.publish()
        await world.wait(200)
        assert world.engine.pulse().outage.waiting == 1
        await world.engine.stop(grace_ms=1_000)
        assert world.engine.pulse().unsettled == 0
        (row,) = [row for row in await world.deliveries() if row.status is Status.PENDING]
        assert (row.delivery.sender_errors, row.delivery.retry) == (1, 0)

    live(story)


def test_after_a_restart_in_an_outage_the_health_in_the_store_still_speaks() -> None:
    async def story(world: World) -> None:
        net = Net(world)
        await net.connect()
        net.out = OUTAGES["all refused"]
        await world.publish()
        await world.settled()
        await world.crash()
        await world.wait(MINUTE)
        assert world.engine.pulse().outage.state is OutageState.CONFIRMED
        net.out = None
        await world.wait(2 * MINUTE)
        await net.unharmed()

    live(story, STRICT)


def test_a_success_from_a_clock_that_was_ahead_keeps_no_other_success_alive() -> None:
    async def story(world: World) -> None:
        right = world.clock
        ahead = VirtualClock(asyncio.get_running_loop(), start_ms=START_MS + DAY)
        net = Net(world)
        for number, url in enumerate(URLS):
            world.sender.scripts[url] = net.script
            await world.subscribe(url, "first" if number == 0 else f"half.{number % 2}")
        world.clock = world.sender._clock = ahead
        await world.crash()
        await world.publish("first")
        await world.wait(SECOND)
        world.clock = world.sender._clock = right
        await world.crash()
        await world.publish("first")
        await world.publish("half.0")
        await world.wait(10 * MINUTE)
        await world.publish("half.1")
        await world.wait(SECOND)
        net.out = OUTAGES["all refused"]
        await world.publish("half.1")  # all that succeeded in the last ten minutes
        await world.wait(10 * SECOND)
        assert world.engine.pulse().outage.state is OutageState.CONFIRMED
        net.out = None
        await world.wait(MINUTE)
        await net.unharmed()

    live(story, STRICT)


# --- one host ---------------------------------------------------------------------------------


def test_trouble_at_one_host_for_ten_minutes_while_others_get_through_is_failed_after_all() -> None:
    async def story(world: World) -> None:
        net = Net(world)
        bad, good = URLS[0], URLS[1]
        net.own[bad] = OUTAGES["dead name servers"]
        await net.connect([bad, good])
        for _ in range(9 * 6):
            await world.publish()
            await world.wait(10 * SECOND)
        endpoint = await world.endpoint(bad)
        assert endpoint.health.failures == 0
        for _ in range(3 * 6):
            await world.publish()
            await world.wait(10 * SECOND)
        endpoint = await world.endpoint(bad)
        assert endpoint.health.failures > 0
        net.own = {}
        await world.wait(2 * MINUTE)
        net.own[bad] = OUTAGES["dead name servers"]  # Healed and ill again: ten new minutes.
        before = (await world.endpoint(bad)).health.failures
        for _ in range(8 * 6):
            await world.publish()
            await world.wait(10 * SECOND)
        assert (await world.endpoint(bad)).health.failures == before

    live(story)


def test_trouble_of_all_hosts_is_ours_however_long_it_lasts() -> None:
    async def story(world: World) -> None:
        net = Net(world)
        await net.connect(URLS[:3])
        net.out = OUTAGES["dead name servers"]
        await world.publish()
        await world.wait(2 * HOUR)
        net.out = None
        await world.wait(2 * MINUTE)
        await net.unharmed(urls=URLS[:3])

    live(story, STRICT)
