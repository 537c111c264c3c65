"""Groups of publishes: their size, their order, and which result each caller gets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from engine.world import MINUTE, SECOND, World, live
from homing.engine.options import EngineOptions
from homing.engine.publish import PublishResult
from homing.errors import StoreUnavailable, TooLarge
from homing.model import WIDE_NODES, id_time
from homing.policy.admission import EventDraft
from homing.ports import NewEvent

URL = "https://receiver.example/hook"


def draft(key: str, kind: str = "a.b") -> EventDraft:
    return EventDraft(tenant="default", type=kind, data=b"1", key=key)


def test_publishers_that_come_back_when_they_are_answered_come_in_two_equal_groups() -> None:
    async def story(world: World) -> None:
        groups: list[int] = []
        publish = world.flow.publish

        async def slow(requests: Sequence[Sequence[NewEvent]], **more: Any) -> Any:
            groups.append(len(requests))
            await asyncio.sleep(0.01)
            return await publish(requests, **more)

        world.flow.publish = slow  # type: ignore[method-assign]

        async def publisher() -> None:
            for _ in range(10):
                await world.publish()

        first = asyncio.ensure_future(publisher())
        await asyncio.sleep(0.005)  # It is being written, alone.
        await asyncio.gather(first, *(publisher() for _ in range(63)))
        assert groups[0] == 1
        assert sum(groups) == 640
        even = groups[8:-2]  # They need a few turns to become so.
        assert even == [32] * len(even)
        await world.publish()
        assert groups[-1] == 1

    live(story)


def test_a_change_is_answered_when_the_group_that_was_matched_before_has_ended() -> None:
    """The group is written as it was matched, and so are those of others meanwhile."""

    async def story(world: World) -> None:
        await world.subscribe(URL, "a.b")
        publish, calls = world.flow.publish, 0
        released = asyncio.Event()

        async def slow(requests: Sequence[Sequence[NewEvent]], **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 1:
                await released.wait()
            return await publish(requests, **more)

        world.flow.publish = slow  # type: ignore[method-assign]
        before = asyncio.ensure_future(world.publish("a.b"))
        await world.wait(SECOND)
        change = asyncio.ensure_future(world.subscribe("https://other.example/", "a.b"))
        await world.wait(SECOND)
        assert not change.done()
        after = await world.publish("a.b")
        assert after.deliveries == 2, "it was matched with the change, which is stored"
        assert not change.done()

        released.set()
        assert (await before).deliveries == 1
        await change
        assert calls == 2, "nothing was matched again"
        assert (await world.publish("a.b")).deliveries == 2

    live(story)


def test_who_was_refused_is_not_told_again_when_the_others_fail() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, "a.b")
        await world.subscribe(f"{URL}/2", "a.b")

        async def refuse(*_args: Any, **_more: Any) -> Any:
            raise StoreUnavailable

        world.flow.publish = refuse  # type: ignore[method-assign]
        world.engine._publisher._last_group = 8  # as after a busy moment: both go together
        far: list[PublishResult] = []
        near: list[PublishResult] = []
        world.engine._publisher.publish_then([draft("x")], far.append)
        world.engine._publisher.publish_then([draft("y", "nobody")], near.append)
        await world.settled()
        assert [type(it) for it in far] == [TooLarge]
        assert [type(it) for it in near] == [StoreUnavailable]

    live(story, EngineOptions(request_deliveries_max=1))


def test_nobody_waits_behind_a_commit_that_is_not_answered() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL)
        publisher, publish, held = world.engine._publisher, world.flow.publish, asyncio.Event()

        async def hangs(*args: Any, **more: Any) -> Any:
            await held.wait()
            return await publish(*args, **more)

        world.flow.publish = hangs  # type: ignore[method-assign]
        told: dict[str, PublishResult] = {}
        for key in ("being written", "this one too", "waits"):
            publisher.publish_then([draft(key)], partial(told.__setitem__, key))
            await world.settled()
        await world.wait(4_990)
        assert told == {}
        await world.wait(20)
        assert list(told) == ["waits"]  # Nothing was written of it: that is certain.
        assert isinstance(told["waits"], StoreUnavailable)
        with pytest.raises(StoreUnavailable, match="five seconds"):
            await world.publish(key="new")
        await world.wait(MINUTE)
        held.set()
        await world.settled()
        assert [isinstance(it, list) for it in told.values()] == [False, True, True]
        assert (await world.publish(key="new")).new
        await world.settled()
        assert len(world.hits(URL)) == 3

    live(story)


def test_a_store_that_is_slow_and_responds_keeps_its_publishers() -> None:
    async def story(world: World) -> None:
        publish = world.flow.publish

        async def slow(*args: Any, **more: Any) -> Any:
            await asyncio.sleep(4)
            return await publish(*args, **more)

        world.flow.publish = slow  # type: ignore[method-assign]
        receipts = await asyncio.gather(*(world.publish(key=f"k-{n}") for n in range(40)))
        assert all(it.new for it in receipts)

    live(story, EngineOptions(publish_events_max=5))


def test_a_commit_that_is_cancelled_begins_no_other() -> None:
    async def story(world: World) -> None:
        publisher, begun = world.engine._publisher, 0

        async def wait(*_args: Any, **_more: Any) -> Any:
            nonlocal begun
            begun += 1
            await asyncio.sleep(3600)

        world.flow.publish = wait  # type: ignore[method-assign]
        for number in range(3):
            publisher.publish_then([draft(f"k-{number}")], lambda _told: None)
            await world.settled()
        assert begun == 2
        for commit in list(publisher._commits):
            commit.cancel()
        await world.settled()
        assert begun == 2

    live(story)


def test_no_id_is_stored_before_its_time() -> None:
    async def story(world: World) -> None:
        for number in range(20):
            await world.subscribe(f"https://{number}.example/", "a.b")
        await world.engine.publish([draft(f"k{number}") for number in range(1_000)])
        assert id_time(await world.flow.last_id()) <= world.clock.now()

    live(story, EngineOptions(node=WIDE_NODES))
