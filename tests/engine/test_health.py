"""The states of an endpoint on virtual time: disabled, probed, enabled, frozen.

Promised: what-homing-promises.md#endpoint-health.
"""

from __future__ import annotations

import msgspec
import pytest

from engine.world import DAY, HOUR, MINUTE, SECOND, Hit, Reply, World, always, failing_with, live
from homing.engine.options import EngineOptions
from homing.model import Failure, Lane, Reason, State, Status
from homing.policy.health import HealthRules

URL = "https://receiver.example/hook"
OTHER = "https://other.example/hook"
QUICK = EngineOptions(
    health=HealthRules(
        rate_after_attempts=10,
        consecutive_disable=20,
        consecutive_freeze=25,
        freeze_after_ms=3 * HOUR,
        consecutive_freeze_always=1000,
    )
)


async def disable(world: World) -> None:
    world.sender.scripts[URL] = always(500)
    await world.subscribe(URL, "a.*")
    for _ in range(12):
        await world.publish()
    await world.settled()
    assert (await world.endpoint(URL)).health.state is State.DISABLED


def test_an_endpoint_over_70_percent_of_more_than_ten_is_disabled_and_gets_nothing_more() -> None:
    async def story(world: World) -> None:
        await disable(world)
        seen = len(world.hits(URL))
        assert seen == 11  # ten are grace; one slot, so nothing else was in flight
        await world.wait(9 * MINUTE)
        assert len(world.hits(URL)) == seen
        (change,) = await world.transitions(URL)
        assert (change.rule, change.after) == ("failure_rate", State.DISABLED)
        assert change.numbers["attempts"] == 11

    live(story, QUICK)


def test_a_disabled_endpoint_gets_one_probe_in_ten_minutes() -> None:
    async def story(world: World) -> None:
        await disable(world)
        before = len(world.hits(URL))
        await world.wait(HOUR + SECOND)
        probes = world.hits(URL)[before:]
        assert probes == [n * 10 * MINUTE for n in range(1, 7)]

    live(story, QUICK)


def test_the_first_probe_takes_the_oldest_never_attempted_and_later_ones_go_round() -> None:
    async def story(world: World) -> None:
        await disable(world)
        before = len(world.hits(URL))
        await world.wait(15 * 10 * MINUTE)
        probed = [hit.delivery for hit in world.sender.hits if hit.url == URL][before:]
        rows = [row for row in await world.deliveries() if row.event_type == "a.b"]
        never_attempted = rows[-1]
        attempts = await world.views.attempts(never_attempted.delivery.id)
        assert attempts[0].lane is Lane.PROBE
        assert len(set(probed)) == 12  # every waiting delivery had its turn

    live(story, QUICK)


def test_the_first_success_of_a_probe_enables_and_all_that_is_overdue_goes() -> None:
    async def story(world: World) -> None:
        await disable(world)
        await world.wait(35 * MINUTE)
        world.sender.scripts[URL] = always(200)
        await world.wait(10 * MINUTE)
        endpoint = await world.endpoint(URL)
        assert endpoint.health.state is State.ENABLED
        assert (endpoint.health.attempts, endpoint.health.failures) != (0, 12)
        rows = [row for row in await world.deliveries() if row.event_type == "a.b"]
        overdue = [row for row in rows if row.status is Status.DELIVERED]
        assert len(overdue) >= 10
        await world.wait(HOUR)
        rows = [row for row in await world.deliveries() if row.event_type == "a.b"]
        assert {row.status for row in rows} == {Status.DELIVERED}

    live(story, QUICK)


def test_a_failed_probe_spends_no_retry() -> None:
    async def story(world: World) -> None:
        await disable(world)
        await world.wait(3 * HOUR)
        for row in await world.deliveries():
            attempts = await world.views.attempts(row.delivery.id)
            ordinary = [one for one in attempts if one.lane is not Lane.PROBE]
            assert len(ordinary) <= 1
            assert row.delivery.retry <= 1 or not ordinary

    live(story, QUICK)


def test_without_anything_pending_there_is_no_probe_and_the_next_delivery_is_it() -> None:
    async def story(world: World) -> None:
        await disable(world)
        await world.wait(3 * DAY)  # all of it expires
        rows = [row for row in await world.deliveries() if row.event_type == "a.b"]
        assert {row.reason for row in rows} == {Reason.EXPIRED}
        before = len(world.hits(URL))
        await world.wait(DAY)
        assert len(world.hits(URL)) == before
        world.sender.scripts[URL] = always(200)
        await world.publish()
        await world.settled()
        assert len(world.hits(URL)) == before + 1
        assert (await world.endpoint(URL)).health.state is State.ENABLED

    options = msgspec.structs.replace(
        QUICK, health=msgspec.structs.replace(QUICK.health, consecutive_freeze=10_000)
    )
    live(story, options)


def test_what_is_held_back_expires_exactly_at_the_end_of_its_window() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200)
        subscription = await world.subscribe(URL, "a.*")
        await world.engine.freeze(subscription.endpoint_id, by="ada")
        await world.publish()
        await world.wait(173_585_600 - 1)
        assert (await world.only_delivery()).status is Status.PENDING
        await world.wait(1)
        await world.settled()
        row = await world.only_delivery()
        assert (row.status, row.reason) == (Status.DROPPED, Reason.EXPIRED)
        assert world.hits(URL) == []

    live(story)


def test_a_hopeless_endpoint_is_frozen_and_only_a_person_brings_it_back() -> None:
    async def story(world: World) -> None:
        await disable(world)
        await world.wait(5 * HOUR)
        endpoint = await world.endpoint(URL)
        assert endpoint.health.state is State.FROZEN
        assert [change.after for change in await world.transitions(URL)] == [
            State.DISABLED,
            State.FROZEN,
        ]
        before = len(world.hits(URL))
        world.sender.scripts[URL] = always(200)
        await world.wait(DAY)
        assert len(world.hits(URL)) == before
        await world.engine.enable(endpoint.id, by="ada")
        await world.wait(HOUR)
        rows = [row for row in await world.deliveries() if row.event_type == "a.b"]
        assert {row.status for row in rows} == {Status.DELIVERED}
        assert (await world.transitions(URL))[-1].by == "ada"

    live(story, QUICK)


def test_the_state_and_the_probe_times_survive_a_crash() -> None:
    async def story(world: World) -> None:
        await disable(world)
        before = len(world.hits(URL))
        for _ in range(8):
            await world.wait(5 * MINUTE)
            await world.crash()
        await world.wait(MINUTE)
        assert world.hits(URL)[before:] == [n * 10 * MINUTE for n in range(1, 5)]

    live(story, QUICK)


def test_a_crash_with_a_probe_in_flight_makes_no_second_probe_in_the_period() -> None:
    async def story(world: World) -> None:
        await disable(world)
        before = len(world.hits(URL))
        world.sender.scripts[URL] = always(500, latency_ms=4 * SECOND)
        await world.wait(10 * MINUTE + SECOND)
        await world.crash()
        await world.wait(9 * MINUTE)
        assert world.hits(URL)[before:] == [10 * MINUTE]
        await world.wait(MINUTE)
        assert world.hits(URL)[before:] == [10 * MINUTE, 20 * MINUTE]

    live(story, QUICK)


def test_people_are_told_but_never_at_the_endpoint_it_is_about() -> None:
    async def story(world: World) -> None:
        await world.subscribe(OTHER, "homing.*")
        await world.subscribe(URL, "homing.*")
        await disable(world)
        await world.settled()
        told = [hit.headers["homing-event-type"] for hit in world.sender.hits if hit.url == OTHER]
        assert "homing.endpoint.disabled" in told
        about_itself = [
            hit for hit in world.sender.hits if hit.url == URL and b"homing." in hit.body
        ]
        assert about_itself == []

    live(story, QUICK)


def test_drops_are_told_at_most_once_a_minute_with_their_count() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200)
        await world.subscribe(OTHER, "homing.delivery.dropped")
        subscription = await world.subscribe(URL, "a.*")
        await world.engine.freeze(subscription.endpoint_id, by="ada")
        for _ in range(5):
            await world.publish()
            await world.wait(10 * SECOND)
        await world.wait(3 * DAY)
        counts = [
            msgspec.json.decode(hit.body)["data"]["count"]
            for hit in world.sender.hits
            if hit.url == OTHER
        ]
        assert counts == [1, 4]

    live(story)


def test_an_attempt_that_ends_after_a_person_froze_still_counts_and_finishes_its_delivery() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=3 * SECOND)
        subscription = await world.subscribe(URL, "a.*")
        await world.publish()
        await world.wait(SECOND)
        await world.engine.freeze(subscription.endpoint_id, by="ada")
        await world.wait(5 * SECOND)
        assert (await world.only_delivery()).status is Status.DELIVERED
        endpoint = await world.endpoint(URL)
        assert endpoint.health.state is State.FROZEN
        assert endpoint.health.last_success_at == world.start_ms + 3 * SECOND

    live(story)


def test_our_own_trouble_spends_nothing_and_counts_for_nobody() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = failing_with(Failure.SENDER_DNS)
        await world.subscribe(URL, "a.*")
        await world.publish()
        await world.wait(10 * MINUTE)
        assert world.hits(URL)[:6] == [0, 5_000, 15_000, 35_000, 75_000, 135_000]
        endpoint = await world.endpoint(URL)
        assert (endpoint.health.attempts, endpoint.health.failures) == (0, 0)
        world.sender.scripts[URL] = always(200)
        await world.wait(MINUTE)
        assert (await world.only_delivery()).status is Status.DELIVERED

    live(story)


def test_a_limit_of_our_own_is_never_the_hosts_however_long_others_get_through() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = failing_with(Failure.SENDER_LIMITS)
        await world.subscribe(URL, "a.*")
        await world.subscribe("https://other.test/", "a.*")
        for _ in range(40):
            await world.publish()
            await world.wait(MINUTE)
        health = (await world.endpoint(URL)).health
        assert (health.attempts, health.failures) == (0, 0)
        assert (await world.endpoint("https://other.test/")).health.attempts == 40

    live(story)


@pytest.mark.parametrize("failure", [Failure.SENDER_CERTIFICATE, Failure.SENDER_PROXY])
def test_our_certificate_and_our_proxy_are_never_the_hosts(failure: Failure) -> None:
    """No retry is spent and nothing is disabled, in three hours in which others get through."""

    async def story(world: World) -> None:
        world.sender.scripts[URL] = failing_with(failure)
        await world.subscribe(URL, "a.*")
        await world.subscribe("https://other.test/", "a.*")
        for _ in range(36):
            await world.publish()
            await world.wait(5 * MINUTE)
        health = (await world.endpoint(URL)).health
        assert (health.state, health.attempts, health.failures) == (State.ENABLED, 0, 0)
        pending = [row for row in await world.deliveries() if row.status is Status.PENDING]
        assert len(pending) == 36
        assert {(row.delivery.retry, row.delivery.t0) for row in pending} == {(0, None)}
        world.sender.scripts[URL] = always(200)
        await world.wait(5 * MINUTE)
        assert {row.status for row in await world.deliveries()} == {Status.DELIVERED}

    live(story, QUICK)


@pytest.mark.parametrize("proxied", [True, False])
def test_a_tunnel_that_fails_is_the_hosts_only_if_others_get_through_the_proxy(
    proxied: bool,
) -> None:
    async def story(world: World) -> None:
        failing = Reply(code=None, failure=Failure.SENDER_TUNNEL, proxied=True)
        world.sender.scripts[URL] = lambda _: failing
        world.sender.scripts[OTHER] = lambda _: Reply(proxied=proxied)
        await world.subscribe(URL, "a.*")
        await world.subscribe(OTHER, "a.*")
        for _ in range(40):
            await world.publish()
            await world.wait(MINUTE)
        failures = (await world.endpoint(URL)).health.failures
        assert (failures > 0) is proxied

    live(story)


def test_our_downtime_alone_drops_nothing() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        await world.subscribe(URL, "a.*")
        for _ in range(12):
            await world.publish()
        await world.settled()
        world.engine._dispatcher.stop()  # the process is gone for four days
        world.engine._maintenance.stop()
        await world.wait(4 * DAY)
        world.sender.scripts[URL] = always(200)
        await world.crash()
        await world.wait(30 * MINUTE)
        rows = [row for row in await world.deliveries() if row.event_type == "a.b"]
        assert {row.status for row in rows} == {Status.DELIVERED}

    live(story, QUICK)


def test_slow_start_doubles_its_slots_and_a_timeout_puts_it_back_to_one() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=100)
        await world.subscribe(URL, "a.*")
        for _ in range(200):
            await world.publish()
        await world.wait(90)
        flying = []
        for _ in range(12):
            flying.append(world.engine.pulse().in_flight["fresh"])
            await world.wait(100)
        assert flying[:5] == [1, 2, 4, 8, 16]
        assert max(flying) == 16

        def hang_once(_: Hit) -> Reply:
            world.sender.scripts[URL] = always(200, latency_ms=100)
            return Reply(latency_ms=60 * SECOND)

        await world.wait(5 * SECOND)
        world.sender.scripts[URL] = hang_once
        for _ in range(60):
            await world.publish()
        await world.wait(5 * SECOND + 1)
        queue = world.engine._dispatcher.queues[(await world.endpoint(URL)).id]
        assert queue.ramp.slots == 1

    live(story)


def test_a_hanging_url_leaves_another_ones_latency_as_it_was() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=60 * SECOND)
        await world.subscribe(URL, "slow.*")
        await world.subscribe(OTHER, "fast.*")
        for _ in range(50):
            await world.publish("slow.one")
        for n in range(20):
            await world.wait(SECOND)
            await world.publish("fast.one")
            await world.settled()
            assert world.hits(OTHER)[-1] == (n + 1) * SECOND
        assert world.sender.most_flying[URL] <= 2

    live(story)


def test_an_endpoint_enabled_by_a_probe_begins_with_one_slot() -> None:
    async def story(world: World) -> None:
        await disable(world)
        await world.wait(35 * MINUTE)
        world.sender.scripts[URL] = always(200, latency_ms=100)
        world.sender.most_flying.clear()
        await world.wait(5 * MINUTE + 150)
        assert (await world.endpoint(URL)).health.state is State.ENABLED
        assert world.sender.most_flying[URL] == 1

    live(story, QUICK)


def test_an_attempt_that_we_cannot_even_write_is_our_own_trouble_and_blocks_nobody() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, "a.*")
        real = world.sender.send

        def broken(*_: object) -> None:
            raise RuntimeError("a bug")

        world.sender.send = broken  # type: ignore[method-assign,assignment]
        await world.publish()
        await world.wait(SECOND)
        world.sender.send = real  # type: ignore[method-assign]
        await world.wait(MINUTE)
        assert (await world.only_delivery()).status is Status.DELIVERED
        assert (await world.endpoint(URL)).health.failures == 0

    live(story)
