"""An address that the guard refuses: the operator's mistake, or the receiver's."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.world import DAY, HOUR, MINUTE, SECOND, Reply, Script, World, always, live
from homing.engine.options import EngineOptions
from homing.model import Failure, Outcome, Reason, State, Status
from homing.policy.health import HealthRules
from homing.policy.reach import REFUSED_SINCE
from homing.policy.retry import SENDER_ERROR_MAX_MS
from homing.ports import SettleBatch, SettleResult

URL = "https://receiver.example/hook"
BEFORE, AFTER = 11, 22  # fingerprints of the settings
OPTIONS = EngineOptions(guard=BEFORE, health=HealthRules(consecutive_disable=3))


def refused() -> Script:
    return lambda _: Reply(None, Failure.FORBIDDEN_ADDRESS)


async def restart(world: World, guard: int) -> None:
    world.options = replace(world.options, guard=guard)
    await world.crash()


async def outcomes(world: World) -> list[Outcome]:
    found = []
    for row in await world.deliveries():
        found += [it.outcome for it in await world.views.attempts(row.delivery.id)]
    return found


def test_changed_settings_that_refuse_a_url_hold_its_deliveries_and_blame_nobody() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        await world.publish()
        await world.wait(SECOND)
        world.sender.scripts[URL] = refused()
        await restart(world, AFTER)
        for _ in range(20):
            await world.publish()
        await world.wait(2 * HOUR)
        endpoint = await world.endpoint(URL)
        assert endpoint.health.state is State.ENABLED
        assert (endpoint.health.attempts, endpoint.health.failures) == (1, 0)
        assert endpoint.guard_passed == BEFORE
        assert len(world.hits(URL)) < 2 * 2 * 60 + 40, "the endpoint is held, not each delivery"
        (shown,) = await world.views.refused_endpoints(since=world.clock.now() - HOUR, limit=9)
        assert shown.id == endpoint.id
        (row, *_) = await world.deliveries(status=Status.PENDING)
        attempt = (await world.views.attempts(row.delivery.id))[-1]
        assert (attempt.outcome, attempt.detail) == (Outcome.SENDER_ERROR, REFUSED_SINCE)
        world.sender.scripts[URL] = always(200)
        await restart(world, BEFORE)
        await world.wait(SENDER_ERROR_MAX_MS + 10 * SECOND)
        assert not await world.deliveries(status=Status.PENDING)
        endpoint = await world.endpoint(URL)
        assert (endpoint.guard_passed, endpoint.guard_refused_at) == (BEFORE, 0)
        assert not await world.views.refused_endpoints(since=0, limit=9)

    live(story, OPTIONS)


@pytest.mark.long
def test_the_window_of_a_held_delivery_ends() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        await world.publish()
        await world.wait(SECOND)
        world.sender.scripts[URL] = refused()
        await restart(world, AFTER)
        for _ in range(300):
            await world.publish()
        await world.wait(48 * HOUR)
        assert len(await world.deliveries(status=Status.PENDING)) == 300
        await world.wait(20 * MINUTE)
        dropped = await world.deliveries(status=Status.DROPPED)
        assert {row.reason for row in dropped} == {Reason.EXPIRED}
        assert len(dropped) == 300
        assert (await world.endpoint(URL)).health.state is State.ENABLED

    live(story, OPTIONS)


def test_nothing_expires_in_the_first_hour_after_a_start_with_changed_settings() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        await world.publish()
        await world.wait(SECOND)
        await world.publish()
        await world.engine.stop(grace_ms=0)
        await world.wait(3 * DAY)
        world.sender.scripts[URL] = refused()
        rows = await world.deliveries(status=Status.PENDING)
        await restart(world, AFTER)
        await world.wait(55 * MINUTE)
        assert len(await world.deliveries(status=Status.PENDING)) == len(rows)

    live(story, OPTIONS)


def test_a_name_that_now_points_to_a_forbidden_address_is_the_receivers_failure() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        await world.publish()
        await world.wait(SECOND)
        world.sender.scripts[URL] = refused()
        for _ in range(3):
            await world.publish()
        await world.wait(SECOND)
        assert (await world.endpoint(URL)).health.state is State.DISABLED
        assert await outcomes(world) == [Outcome.DELIVERED, *[Outcome.FAILED] * 3]

    live(story, OPTIONS)


def test_a_url_that_never_passed_fails_whatever_the_settings_were() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = refused()
        await world.subscribe(URL)
        await restart(world, AFTER)
        await world.publish()
        await world.wait(SECOND)
        assert await outcomes(world) == [Outcome.FAILED]

    live(story, OPTIONS)


def test_a_url_with_an_address_passed_when_it_was_subscribed() -> None:
    url = "http://127.0.0.1:9000/hook"

    async def story(world: World) -> None:
        world.sender.scripts[url] = refused()
        made = await world.subscribe(url)
        assert (await world.engine.test_send(made.id)).outcome is Outcome.FAILED
        await restart(world, AFTER)
        assert (await world.engine.test_send(made.id)).outcome is Outcome.SENDER_ERROR
        await world.publish()
        await world.wait(SECOND)
        assert await outcomes(world) == [Outcome.SENDER_ERROR]

    live(story, OPTIONS)


def test_a_refused_probe_leaves_a_disabled_url_as_it_is() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        await world.publish()
        await world.wait(SECOND)
        world.sender.scripts[URL] = always(500)
        for _ in range(3):
            await world.publish()
        await world.wait(SECOND)
        world.sender.scripts[URL] = refused()
        await restart(world, AFTER)
        before = (await world.endpoint(URL)).health
        await world.wait(HOUR)
        after = await world.endpoint(URL)
        assert (before.state, after.health) == (State.DISABLED, before)
        assert after.guard_refused_at > 0

    live(story, OPTIONS)


def test_the_settings_are_written_when_they_change_and_not_with_every_delivery() -> None:
    async def story(world: World) -> None:
        written: list[tuple[int, ...]] = []
        settle = world.flow.settle

        async def seen(batch: SettleBatch) -> SettleResult:
            written.append(batch.guarded)
            return await settle(batch)

        world.flow.settle = seen  # type: ignore[method-assign]
        await world.subscribe(URL)
        for _ in range(5):
            await world.publish()
            await world.wait(SECOND)
        endpoint = await world.endpoint(URL)
        assert endpoint.guard_passed == BEFORE
        assert written == [(endpoint.id,), (), (), (), ()]

    live(story, OPTIONS)
