"""Quiet times: a key's quiet is counted from its newest event, whatever becomes of the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from engine.test_order import OTHER, URL, number, numbers, publish
from engine.world import HOUR, MINUTE, SECOND, Reply, World, always, balanced, changed, live
from homing.model import Order, Status, Subscription

QUIET = 5 * SECOND


async def _quiet(world: World, quiet_ms: int = QUIET, longest: int | None = None) -> Subscription:
    return await world.subscribe(URL, order=Order.LATEST, quiet_ms=quiet_ms, max_wait_ms=longest)


async def _erase(world: World, subscription: Subscription) -> None:
    del subscription
    await publish(world, "x", 1)
    (oldest, _) = await world.deliveries(status=Status.PENDING)
    await world.engine.erasures.erase_event("default", oldest.event_key)


async def _oldest(world: World) -> int:
    return next(it.delivery.id for it in await world.deliveries(status=Status.PENDING))


async def _pause(world: World, subscription: Subscription) -> None:
    await world.engine.pause(subscription.id)
    await world.wait(2 * QUIET)
    await publish(world, "x", 1)
    await world.engine.resume(subscription.id)


async def _freeze(world: World, subscription: Subscription) -> None:
    await world.engine.freeze(subscription.endpoint_id, by="me")
    await world.wait(2 * QUIET)
    await publish(world, "x", 1)
    await world.engine.enable(subscription.endpoint_id, by="me")


async def _cancel(world: World, subscription: Subscription) -> None:
    del subscription
    await publish(world, "x", 1)
    await world.engine.cancel(await _oldest(world))


async def _cancel_while_frozen(world: World, subscription: Subscription) -> None:
    await world.engine.freeze(subscription.endpoint_id, by="me")
    await publish(world, "x", 1)
    await world.engine.cancel(await _oldest(world))
    await world.engine.enable(subscription.endpoint_id, by="me")


@pytest.mark.parametrize("end", [_pause, _freeze, _cancel, _cancel_while_frozen, _erase])
def test_the_quiet_of_the_newest_is_whole(
    end: Callable[[World, Subscription], Awaitable[None]],
) -> None:
    async def story(world: World) -> None:
        subscription = await _quiet(world)
        await publish(world, "x", 0)
        await world.wait(SECOND)
        await end(world, subscription)
        newest = max(await world.deliveries(), key=lambda it: it.delivery.id).delivery
        await world.wait(QUIET - SECOND)
        assert numbers(world) == []
        await world.wait(MINUTE)
        assert numbers(world) == [1]
        assert newest.accepted_at + QUIET <= world.sender.hits[0].at
        await balanced(world)

    live(story)


def test_what_is_published_during_an_attempt_waits_for_quiet() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = lambda hit: Reply(
            500 if number(hit) == 2 else 200, latency_ms=4 * SECOND
        )
        await _quiet(world)
        await publish(world, "x", 0)
        await world.wait(QUIET + 3 * SECOND)  # Its attempt takes one second more.
        await publish(world, "x", 1)
        await world.wait(12 * SECOND)
        assert world.hits() == [QUIET, 2 * QUIET + 3 * SECOND]
        await world.wait(HOUR)
        begun = world.since_start()
        await publish(world, "x", 2)
        await world.wait(QUIET + 3 * SECOND)
        await publish(world, "x", 3)  # The one in flight fails, and this one does not.
        await world.wait(MINUTE)
        assert numbers(world) == [0, 1, 2, 3]
        assert world.hits()[-1] == begun + 2 * QUIET + 3 * SECOND
        await balanced(world)

    live(story)


def test_a_key_that_is_never_quiet_waits_from_the_first_event_after_an_attempt() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=4 * SECOND)
        await _quiet(world, longest=20 * SECOND)
        for n in range(50):
            await publish(world, "x", n)
            await world.wait(SECOND)
        first, second = world.hits()
        assert first == 20 * SECOND
        assert 40 * SECOND <= second <= 41 * SECOND  # from the first event after that attempt
        await world.wait(MINUTE)
        assert numbers(world)[-1] == 49
        await balanced(world)

    live(story)


@pytest.mark.parametrize(
    "change",
    [
        {"quiet_ms": None},
        {"quiet_ms": QUIET},
        {"max_wait_ms": HOUR},
        {"order": Order.NONE, "quiet_ms": None},
        {"order": Order.KEY, "quiet_ms": None},
        {"quiet_ms": None, "url": OTHER},
        {"order": Order.NONE, "quiet_ms": None, "url": OTHER},
    ],
    ids=str,
)
def test_what_waits_for_quiet_waits_as_its_subscription_says_now(
    change: dict[str, object],
) -> None:
    async def story(world: World) -> None:
        subscription = await _quiet(world, HOUR)
        await publish(world, "x", 0)
        await publish(world, "x", 1)
        await world.wait(10 * MINUTE)
        await world.engine.change(subscription.id, changed(**change))
        await world.wait(SECOND)
        if "max_wait_ms" in change:
            assert numbers(world) == []
            await world.wait(50 * MINUTE)
        if change.get("order") in {Order.NONE, Order.KEY}:
            assert sorted(numbers(world)) == [0, 1]
        else:
            assert numbers(world) == [1]
        await publish(world, "x", 2)
        await world.wait(2 * HOUR)
        assert numbers(world)[-1] == 2
        await balanced(world)

    live(story)


def test_a_longer_quiet_time_holds_what_waits() -> None:
    async def story(world: World) -> None:
        subscription = await _quiet(world)
        await publish(world, "x", 0)
        await world.engine.change(subscription.id, changed(quiet_ms=MINUTE))
        await world.wait(50 * SECOND)
        assert numbers(world) == []
        await world.wait(11 * SECOND)
        assert world.hits() == [MINUTE]

    live(story)


def test_a_person_has_a_delivery_tried_before_its_key_is_quiet() -> None:
    async def story(world: World) -> None:
        await _quiet(world, HOUR)
        await publish(world, "x", 0)
        (waiting,) = await world.deliveries()
        await world.engine.try_now(waiting.delivery)
        await world.wait(SECOND)
        assert numbers(world) == [0]

    live(story)
