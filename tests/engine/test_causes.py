"""Causes in the engine: what settle counts, closes and continues, also after a crash.

Promised: what-homing-promises.md#causes-and-notices.
"""

from __future__ import annotations

from engine.world import HOUR, MINUTE, SECOND, World, always, failing_with, live
from homing.model import Cause, Failure, Outcome

URL = "https://receiver.example/hook"


async def causes(world: World, *, is_open: bool | None = None) -> list[Cause]:
    rows, _ = await world.views.causes(
        tenant=None, endpoint_id=None, is_open=is_open, before_id=None, limit=100
    )
    return [row.cause for row in rows]


def test_every_failed_attempt_is_in_one_cause() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(503)
        await world.subscribe(URL)
        for _ in range(3):
            await world.publish()
        await world.wait(10 * MINUTE)
        (cause,) = await causes(world)
        assert (cause.key.failure, cause.key.code) == ("http_status", 503)
        assert cause.attempts == len(world.hits()) == 12
        assert cause.deliveries == 3
        assert (await world.endpoint(URL)).failing
        assert {row.delivery.cause_id for row in await world.deliveries()} == {cause.id}

    live(story)


def test_a_success_closes_a_cause_and_its_return_within_an_hour_continues_it() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        world.sender.scripts[URL] = failing_with(Failure.REFUSED)
        await world.publish()
        await world.wait(SECOND)
        first_seen = (await causes(world))[0].first_seen
        world.sender.scripts[URL] = always(200)
        await world.wait(2 * MINUTE)
        (cause,) = await causes(world, is_open=False)
        assert cause.closed_at is not None
        assert not (await world.endpoint(URL)).failing

        await world.wait(30 * MINUTE)
        world.sender.scripts[URL] = failing_with(Failure.REFUSED)
        await world.publish()
        await world.wait(SECOND)
        (cause,) = await causes(world)
        assert (cause.first_seen, cause.attempts, cause.closed_at) == (first_seen, 2, None)

        world.sender.scripts[URL] = always(200)
        await world.wait(2 * HOUR)
        world.sender.scripts[URL] = failing_with(Failure.REFUSED)
        await world.publish()
        await world.wait(SECOND)
        assert [it.attempts for it in await causes(world)] == [1, 2]

    live(story)


def test_a_person_who_enables_an_endpoint_does_not_close_its_causes() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        await world.subscribe(URL)
        await world.publish()
        await world.wait(SECOND)
        await world.engine.enable((await world.endpoint(URL)).id, by="ada")
        assert len(await causes(world, is_open=True)) == 1

        world.sender.scripts[URL] = always(200)
        await world.wait(2 * MINUTE)
        assert await causes(world, is_open=True) == []

    live(story)


def test_sender_side_failures_and_test_sends_belong_to_no_cause() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = failing_with(Failure.SENDER_NETWORK)
        made = await world.subscribe(URL)
        await world.publish()
        await world.wait(SECOND)
        world.sender.scripts[URL] = always(500)
        assert (await world.engine.test_send(made.id)).outcome is Outcome.FAILED
        assert await causes(world) == []

    live(story)


def test_causes_go_on_after_a_crash() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(503)
        await world.subscribe(URL)
        await world.publish()
        await world.wait(SECOND)
        await world.crash()
        await world.start()
        await world.wait(2 * MINUTE)
        (cause,) = await causes(world)
        assert (cause.attempts, cause.deliveries) == (2, 1)

        await world.crash()
        await world.start()
        world.sender.scripts[URL] = always(200)
        await world.wait(10 * MINUTE)
        assert await causes(world, is_open=True) == []

    live(story)


def test_a_url_that_is_given_up_has_no_open_cause() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(503)
        made = await world.subscribe(URL)
        await world.publish()
        await world.wait(SECOND)
        await world.engine.unsubscribe(made.id)
        assert [it.closed_at is None for it in await causes(world)] == [False]

    live(story)
