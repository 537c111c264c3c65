"""Changes of subscriptions while deliveries are pending, on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from engine.world import DAY, HOUR, SECOND, Reply, World, always, balanced, changed, live
from homing.errors import NotFound
from homing.model import Reason, State, Status

URL = "https://receiver.example/hook"
OTHER = "https://other.example/hook"


def test_a_subscription_whose_url_changed_takes_its_pending_deliveries_along() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        subscription = await world.subscribe(URL)
        for _ in range(5):
            await world.publish()
        await world.settled()
        await world.engine.change(subscription.id, changed(url=OTHER))
        await world.wait(HOUR)
        assert len(world.hits(URL)) == 5
        assert len(world.hits(OTHER)) == 5
        assert {row.status for row in await world.deliveries()} == {Status.DELIVERED}
        assert {row.url for row in await world.deliveries()} == {OTHER}

    live(story)


def test_a_delivery_in_flight_while_the_url_changes_is_retried_at_the_new_one() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500, latency_ms=3 * SECOND)
        subscription = await world.subscribe(URL)
        await world.publish()
        await world.wait(SECOND)
        await world.engine.change(subscription.id, changed(url=OTHER))
        await world.wait(HOUR)
        assert world.hits(URL) == [0]
        assert world.hits(OTHER) == [3 * SECOND + 84_800]

    live(story)


def test_a_corrected_token_reaches_what_is_pending() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = lambda hit: Reply(
            code=200 if hit.headers["authorization"] == "Bearer right" else 401
        )
        subscription = await world.subscribe(URL, token="wrong")
        await world.publish()
        await world.settled()
        await world.engine.change(subscription.id, changed(token="right"))
        await world.wait(HOUR)
        assert (await world.only_delivery()).status is Status.DELIVERED

    live(story)


def test_after_a_subscription_is_deleted_no_attempt_starts_and_all_is_cancelled() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500, latency_ms=SECOND)
        subscription = await world.subscribe(URL)
        for _ in range(20):
            await world.publish()
        await world.wait(1500)
        await world.engine.unsubscribe(subscription.id)
        seen = len(world.sender.hits)
        await world.wait(3 * DAY)
        assert len(world.sender.hits) == seen
        rows = await world.deliveries()
        assert {row.status for row in rows} == {Status.CANCELLED}
        assert {row.reason for row in rows} == {Reason.SUBSCRIPTION_DELETED}
        await balanced(world)
        with pytest.raises(NotFound):
            await world.engine.unsubscribe(subscription.id)

    live(story)


def test_recreating_a_subscription_does_not_unfreeze_its_url() -> None:
    async def story(world: World) -> None:
        subscription = await world.subscribe(URL)
        await world.engine.freeze(subscription.endpoint_id, by="ada")
        await world.engine.unsubscribe(subscription.id)
        again = await world.subscribe(URL)
        assert again.endpoint_id == subscription.endpoint_id
        assert (await world.endpoint(URL)).health.state is State.FROZEN

    live(story)


def test_an_inactive_subscription_gets_nothing_new_and_what_is_pending_goes_on() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        subscription = await world.subscribe(URL)
        await world.publish()
        await world.settled()
        await world.engine.change(subscription.id, changed(active=False))
        assert (await world.publish()).deliveries == 0
        world.sender.scripts[URL] = always(200)
        await world.wait(HOUR)
        assert (await world.only_delivery()).status is Status.DELIVERED

    live(story)


def test_deliveries_never_attempted_at_a_frozen_url_go_at_once_to_the_corrected_one() -> None:
    async def story(world: World) -> None:
        subscription = await world.subscribe(URL, "a.*")
        await world.subscribe(OTHER, "unrelated")
        await world.publish("unrelated")
        await world.engine.freeze(subscription.endpoint_id, by="ada")
        for _ in range(40):
            await world.publish("a.b")
        await world.wait(HOUR)
        assert world.hits(URL) == []
        await world.engine.change(subscription.id, changed(url=OTHER))
        await world.wait(SECOND)
        assert len(world.hits(OTHER)) == 41

    live(story)


def test_a_url_changed_there_and_back_leaves_nothing_behind() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=100)
        subscription = await world.subscribe(URL)
        for _ in range(30):
            await world.publish()
        await world.wait(50)
        await asyncio.gather(
            world.engine.change(subscription.id, changed(url=OTHER)),
            world.engine.change(subscription.id, changed(url=URL)),
        )
        await world.wait(HOUR)
        assert {row.status for row in await world.deliveries()} == {Status.DELIVERED}
        assert len(world.sender.hits) == 30

    live(story)


def test_deliveries_that_move_go_before_what_was_accepted_after_them() -> None:
    async def story(world: World) -> None:
        moving = await world.subscribe(URL)
        await world.engine.freeze(moving.endpoint_id, by="ada")
        await world.subscribe(OTHER)
        world.sender.scripts[OTHER] = always(200, latency_ms=SECOND)
        for _ in range(4):
            await world.publish()
        await world.engine.change(moving.id, changed(url=OTHER))
        await world.wait(HOUR)
        sent = [hit.delivery for hit in world.sender.hits if hit.url == OTHER]
        assert len(sent) == 8
        assert sent[1:] == sorted(sent[1:])  # One was in flight when the URL changed.

    live(story)
