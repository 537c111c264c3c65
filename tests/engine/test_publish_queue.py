"""A store that cannot keep up: tenants take turns, and a tenant that is far ahead is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from engine.world import SECOND, World, balanced, live
from homing.engine.options import EngineOptions
from homing.engine.publish_queue import WAIT_MAX_MS, PublishQueue
from homing.errors import TooMany
from homing.policy.admission import EventDraft
from homing.ports import NewEvent, Receipt

COMMIT_EVENTS = 20
OPTIONS = EngineOptions(publish_events_max=COMMIT_EVENTS)
URL = "https://receiver.example/hook"


class SlowStore:
    """The store of a world; every commit takes so long, one after the other."""

    def __init__(self, world: World, seconds: float) -> None:
        self.commits: list[list[str]] = []  # the tenants of the publishes of each
        self._publish, self._turn, self.seconds = world.flow.publish, asyncio.Lock(), seconds
        world.flow.publish = self._slow  # type: ignore[method-assign]

    async def _slow(self, requests: Sequence[Sequence[NewEvent]], **more: Any) -> Any:
        async with self._turn:
            self.commits.append([events[0].event.tenant for events in requests])
            await asyncio.sleep(self.seconds)
            return await self._publish(requests, **more)


def drafts(count: int, tenant: str = "default") -> list[EventDraft]:
    return [EventDraft(tenant=tenant, type="a.b", data=b"1") for _ in range(count)]


async def press(
    world: World, *, every_ms: int, for_ms: int, events: int, tenant: str = "default"
) -> list[int | TooMany]:
    """Publish so often, whatever becomes of it: how many ms each waited, or its refusal."""
    loop = asyncio.get_running_loop()

    async def once() -> int | TooMany:
        began = loop.time()
        try:
            await world.engine.publish(drafts(events, tenant))
        except TooMany as refusal:
            return refusal
        return round((loop.time() - began) * 1000)

    tasks = []
    for _ in range(for_ms // every_ms):
        tasks.append(asyncio.ensure_future(once()))
        await world.wait(every_ms)
    return list(await asyncio.gather(*tasks))


def waits(results: Sequence[int | TooMany]) -> list[int]:
    return [it for it in results if isinstance(it, int)]


def test_twice_what_the_store_can_write_is_refused_in_part_and_the_rest_waits_no_longer() -> None:
    async def story(world: World) -> None:
        SlowStore(world, 0.1)  # 200 events a second
        results = await press(world, every_ms=25, for_ms=60 * SECOND, events=10)  # 400 a second
        refusals = [it for it in results if isinstance(it, TooMany)]
        assert len(results) * 0.4 < len(refusals) < len(results) * 0.6
        assert {it.after_ms for it in refusals} == {WAIT_MAX_MS}
        assert max(waits(results)) <= 3 * WAIT_MAX_MS
        assert len(world.engine._publisher._waiting) == 0

    live(story, OPTIONS)


def test_another_tenant_is_in_the_next_commit_and_never_refused() -> None:
    async def story(world: World) -> None:
        store = SlowStore(world, 0.1)
        pressing = press(world, every_ms=25, for_ms=10 * SECOND, events=10)
        quiet = press(world, every_ms=500, for_ms=10 * SECOND, events=1, tenant="quiet")
        pressed, calm = await asyncio.gather(pressing, quiet)
        assert len(waits(pressed)) < len(pressed)
        assert len(waits(calm)) == len(calm)
        assert max(waits(calm)) <= 400  # two commits before its own
        assert sum("quiet" in commit for commit in store.commits) >= 15

    live(story, OPTIONS)


def test_two_tenants_that_press_have_equal_shares() -> None:
    async def story(world: World) -> None:
        SlowStore(world, 0.1)
        one, two = await asyncio.gather(
            press(world, every_ms=10, for_ms=10 * SECOND, events=10, tenant="one"),
            press(world, every_ms=40, for_ms=10 * SECOND, events=10, tenant="two"),
        )
        assert len(waits(two)) == pytest.approx(len(waits(one)), rel=0.2)

    live(story, OPTIONS)


def test_what_fits_into_one_commit_is_never_refused() -> None:
    async def story(world: World) -> None:
        SlowStore(world, 2.0)
        results = await press(world, every_ms=400, for_ms=20 * SECOND, events=1)
        assert len(waits(results)) == len(results)

    live(story, OPTIONS)


def test_it_accepts_again_as_soon_as_it_can_write_and_a_refused_event_is_not_kept() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, "a.b")
        store = SlowStore(world, 0.1)
        results = await press(world, every_ms=10, for_ms=5 * SECOND, events=10)
        accepted = len(waits(results))
        assert accepted < len(results)
        store.seconds = 0.001
        again: list[Receipt] = await world.engine.publish(drafts(10))
        assert len(again) == 10
        await world.wait(10 * SECOND)
        assert len(world.sender.hits) == (accepted + 1) * 10
        await balanced(world)

    live(story, OPTIONS)


class _Publish(Struct, eq=False):
    tenant: str
    drafts: list[EventDraft]
    since: int


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4)), max_size=30), st.randoms())
def test_each_tenant_keeps_its_order_and_no_tenant_has_two_turns_while_another_waits(
    publishes: list[tuple[str, int]], random: Any
) -> None:
    queue: PublishQueue[_Publish] = PublishQueue(COMMIT_EVENTS)
    waiting: dict[str, list[_Publish]] = {}
    last, others_waited = "", False
    todo = [_Publish(tenant, drafts(count, tenant), 0) for tenant, count in publishes]
    while todo or len(queue):
        if todo and (not len(queue) or random.random() < 0.6):
            publish = todo.pop(0)
            queue.append(publish)
            waiting.setdefault(publish.drafts[0].tenant, []).append(publish)
        else:
            assert queue.next_events() in {len(it[0].drafts) for it in waiting.values()}
            taken = queue.take()
            tenant = taken.drafts[0].tenant
            assert waiting[tenant].pop(0) is taken
            waiting = {name: left for name, left in waiting.items() if left}
            assert tenant != last or not others_waited
            last, others_waited = tenant, bool(waiting.keys() - {tenant})
    assert not len(queue)
