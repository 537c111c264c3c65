"""Rows of an endpoint that are read while it is active may be older than the state in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from engine.world import HOUR, MINUTE, SECOND, World, always, live
from homing.engine import load
from homing.engine.options import EngineOptions
from homing.errors import StoreUnavailable
from homing.model import Lane, Status
from homing.ports import DueAsk

URL = "https://receiver.example/hook"
BUSY = "https://busy.example/hook"


def slowly(call: Callable[..., Awaitable[Any]]) -> Any:
    """The call is done at once; its result takes a while."""

    async def response(*args: Any, **more: Any) -> Any:
        try:
            return await call(*args, **more)
        finally:
            await asyncio.sleep(0.05)

    return response


def test_an_endpoint_is_not_forgotten_while_an_older_row_of_it_is_on_its_way() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=20)
        world.sender.scripts[BUSY] = always(200, latency_ms=4_000)
        await world.subscribe(URL, "a.*")
        await world.subscribe(BUSY, "busy.*")
        await world.publish("busy.x")  # It stays: there is no room for another that is idle.
        await world.settled()
        await world.publish()
        await world.wait(10)  # In ten more its response comes.
        world.flow.publish = slowly(world.flow.publish)  # type: ignore[method-assign]
        world.flow.endpoints = slowly(world.flow.endpoints)  # type: ignore[method-assign]
        second = asyncio.ensure_future(world.publish())
        await world.settled()
        world.engine._dispatcher.reload_endpoint((await world.endpoint(URL)).id)
        await second
        await world.wait(500)
        assert len(world.hits(URL)) == 2
        assert (await world.endpoint(URL)).health.attempts == 2

    live(story, EngineOptions(queues_max=1))


def test_an_enable_during_a_load_leaves_first_attempts_in_the_order_of_acceptance() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200, latency_ms=500)
        await world.subscribe(URL)
        await world.publish()
        await world.wait(100)
        world.flow.due = slowly(world.flow.due)  # type: ignore[method-assign]
        for _ in range(3):  # One of them is queued here, for the others there is no room.
            await world.publish()
        await world.wait(10)  # They are being read.
        await world.engine.enable((await world.endpoint(URL)).id, by="ann")
        await world.wait(5_000)
        seen = [hit.delivery for hit in world.sender.hits]
        assert len(seen) == 4
        assert seen == sorted(seen)

    live(story, EngineOptions(ready_max=1))


def test_a_queue_has_a_length_and_what_is_beyond_it_follows_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("homing.engine.queue.LENGTH_MAX", 100)
    asked: list[int] = []

    async def story(world: World) -> None:
        due = world.flow.due

        async def noted(asks: Sequence[DueAsk], **more: Any) -> Any:
            asked.extend(ask.fresh for ask in asks)
            return await due(asks, **more)

        world.flow.due = noted  # type: ignore[method-assign]
        world.sender.scripts[URL] = always(200, latency_ms=100)
        await world.subscribe(URL)
        await world.publish()
        await world.wait(1_000)
        longest = 0
        for _ in range(300):
            await world.publish()
            longest = max(longest, world.engine.pulse().ready[Lane.FRESH])
        assert longest == 100
        assert max(asked) < 100  # No load reads the whole queue again.
        await world.wait(10_000)
        seen = [hit.delivery for hit in world.sender.hits]
        assert len(seen) == 301
        assert seen == sorted(seen)

    live(story)


def test_events_that_are_read_for_several_endpoints_are_in_memory_once() -> None:
    async def story(world: World) -> None:
        for number in range(20):
            world.sender.scripts[f"https://r{number}.example/"] = always(200, latency_ms=60_000)
            await world.subscribe(f"https://r{number}.example/")
        for _ in range(5):  # The first is in flight everywhere; the others wait, or are read.
            await world.publish(data="x" * 9_998)
            await world.wait(100)
        pulse = world.engine.pulse()
        assert pulse.ready[Lane.FRESH] > 20
        assert pulse.memory_bytes <= 4 * 10_000

    live(story, EngineOptions(ready_bytes_max=100_000))


def test_a_publish_during_the_read_of_its_endpoint_is_sent_before_later_ones() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(200)
        await world.subscribe(URL)
        endpoint_id = (await world.endpoint(URL)).id
        endpoints, calls = slowly(world.flow.endpoints), 0

        async def refused_once(endpoint_ids: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise StoreUnavailable
            return await endpoints(endpoint_ids)

        world.flow.endpoints = refused_once  # type: ignore[method-assign]
        world.engine._dispatcher.reload_endpoint(endpoint_id)
        await world.wait(10)  # It is being read, and has nothing yet.
        await world.publish()
        await world.wait(100)  # The second read was refused, and the next is in a second.
        for _ in range(2):
            await world.publish()
        await world.wait(5_000)
        assert calls == 3
        seen = [hit.delivery for hit in world.sender.hits]
        assert len(seen) == 3
        assert seen == sorted(seen)

    live(story)


def test_a_pause_asked_for_during_a_load_ends_when_it_should() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(503, latency_ms=30, retry_after="3")
        await world.subscribe(URL)
        await world.publish()
        await world.wait(10)
        world.flow.due = slowly(world.flow.due)  # type: ignore[method-assign]
        await world.publish()  # It is being read when the response to the first one comes.
        await world.wait(2_900)
        assert len(world.hits(URL)) == 1
        await world.wait(500)
        assert len(world.hits(URL)) == 2

    live(story, EngineOptions(ready_max=0))


def test_a_pause_asked_for_during_a_load_that_fails_ends_when_it_should() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(503, latency_ms=30, retry_after="3")
        await world.subscribe(URL)
        await world.publish()
        await world.wait(10)
        due = world.flow.due

        async def fails(*_args: Any, **_more: Any) -> Any:
            world.flow.due = due  # type: ignore[method-assign]
            raise StoreUnavailable

        world.flow.due = slowly(fails)  # type: ignore[method-assign]
        await world.publish()
        await world.wait(2_900)
        assert len(world.hits(URL)) == 1
        await world.wait(500)
        assert len(world.hits(URL)) == 2

    live(story, EngineOptions(ready_max=0))


def test_a_delivery_that_was_read_before_its_publisher_is_answered_goes_once() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(503)
        world.sender.scripts[BUSY] = always(200, latency_ms=4_000)
        await world.subscribe(URL, "a.*")
        await world.subscribe(BUSY, "busy.*")
        await world.publish("busy.x")
        world.flow.publish = slowly(world.flow.publish)  # type: ignore[method-assign]
        published = asyncio.ensure_future(world.publish())
        await world.wait(10)
        # Somebody else's publish is in doubt: what the store has is looked for.
        world.engine._dispatcher.check_store((await world.endpoint(URL)).id)
        await world.wait(30)  # It has gone, was settled, forgotten for lack of room, read again.
        assert not published.done()
        await published
        await world.wait(SECOND)
        assert len(world.hits(URL)) == 1

    live(story, EngineOptions(queues_max=1))


def test_a_delivery_that_was_in_flight_when_the_expired_were_read_is_not_dropped() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(503, latency_ms=30)
        await world.subscribe(URL)
        await world.wait(2 * HOUR)  # Nothing expires before.
        await world.publish()
        await world.wait(10)
        (row,) = await world.deliveries()
        queue = world.engine._dispatcher.queues[row.delivery.endpoint_id]

        async def expired(*_args: Any, **_more: Any) -> Any:
            return [row.delivery], None, None  # as if its window had ended before this attempt

        world.flow.expired = slowly(expired)  # type: ignore[method-assign]
        world.engine._maintenance.expire(queue)
        await world.wait(SECOND)
        (row,) = await world.deliveries()
        assert (row.delivery.attempts, row.status) == (1, Status.PENDING)

    live(story)


def test_a_delivery_whose_endpoint_was_enabled_before_its_window_ended_is_not_dropped() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(503)
        await world.subscribe(URL)
        endpoint_id = (await world.endpoint(URL)).id
        await world.wait(2 * HOUR)  # Nothing expires before.
        await world.publish()
        await world.wait(SECOND)
        await world.engine.freeze(endpoint_id, by="ann")
        (row,) = await world.deliveries()

        async def expired(*_args: Any, **_more: Any) -> Any:
            return [row.delivery], None, None  # as if its window ended a moment after the look

        world.flow.expired = slowly(expired)  # type: ignore[method-assign]
        world.engine._maintenance.expire(world.engine._dispatcher.queues[endpoint_id])
        await world.engine.enable(endpoint_id, by="ann")
        await world.wait(SECOND)
        (row,) = await world.deliveries()
        assert (row.delivery.retry, row.status) == (1, Status.PENDING)
        await world.wait(2 * MINUTE)
        assert len(world.hits(URL)) == 2

    live(story)


def test_those_who_read_for_first_attempts_all_the_time_leave_retries_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        await world.subscribe(URL, "retried")
        await world.publish("retried")
        await world.wait(84_800 - SECOND)
        for number in range(10):
            busy = f"https://busy{number}.example/"
            world.sender.scripts[busy] = always(200, latency_ms=20)
            await world.subscribe(busy, "busy")
        world.flow.due = slowly(world.flow.due)  # type: ignore[method-assign]
        for _ in range(1_000):
            await world.publish("busy")
        await world.wait(1_500)
        assert len(world.hits("https://busy0.example/")) < 1_000  # They are at it still.
        assert len(world.hits(URL)) == 2

    monkeypatch.setattr(load, "LOAD_MAX", 2)
    live(story, EngineOptions(ready_max=0))
