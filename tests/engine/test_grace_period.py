"""A change waits for the publishes that were matched before it, on every machine.

Promised: what-homing-promises.md#matching.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from engine.fleet_world import LEASE_MS, FleetWorld, Machine, fleet, two
from engine.world import SECOND, changed
from homing.errors import StoreUnavailable
from homing.model import Subscription
from homing.policy.admission import EventDraft
from homing.policy.backfill import PastStart
from homing.ports import NewEvent, Receipt

URL = "https://a.example/"
OTHER = "https://b.example/"
SOON_MS = 50  # messages take a millisecond each


def event(key: str, tenant: str = "default") -> EventDraft:
    return EventDraft(tenant=tenant, type="a.b", data=b"1", key=key)


class Held:
    """The next publish of a machine is held up before it is written, or after."""

    def __init__(self, machine: Machine, *, written: bool = False) -> None:
        self.go_on, self.calls = asyncio.Event(), 0
        flow = machine.engine._core.flow
        publish = flow.publish

        async def held(requests: Sequence[Sequence[NewEvent]], **more: Any) -> Any:
            self.calls += 1
            if self.calls > 1:
                return await publish(requests, **more)
            result = await publish(requests, **more) if written else None
            await self.go_on.wait()
            return result or await publish(requests, **more)

        flow.publish = held  # type: ignore[method-assign]


async def publish(machine: Machine, key: str, tenant: str = "default") -> Receipt:
    (receipt,) = await machine.engine.publish([event(key, tenant)])
    return receipt


async def subscribe(world: FleetWorld, machine: Machine, url: str = URL) -> Subscription:
    return await machine.engine.subscribe(world.draft(url, "a.b"))


def test_a_change_is_answered_as_soon_as_the_others_act_on_it_and_by_a_message() -> None:
    async def story(world: FleetWorld) -> None:
        one, other = await two(world)
        began = world.clock.now()
        made = await subscribe(world, one)
        assert world.clock.now() - began <= SOON_MS
        assert (await publish(other, "k1")).deliveries == 1
        await one.engine.pause(made.id)
        assert other.engine._core.catalog.paused
        assert world.clock.now() - began <= 2 * SOON_MS

    fleet(story)


def test_a_change_waits_for_a_publish_of_another_machine_that_was_matched_before() -> None:
    async def story(world: FleetWorld) -> None:
        one, other = await two(world)
        made = await subscribe(world, one)
        held = Held(other)
        late = asyncio.ensure_future(publish(other, "late"))
        await world.wait(SOON_MS)
        delete = asyncio.ensure_future(one.engine.unsubscribe(made.id))
        await world.wait(SECOND)
        assert not delete.done()
        assert (await publish(one, "meanwhile", "neighbour")).new, "nobody waits for a change"

        held.go_on.set()
        assert (await late).deliveries == 1, "it follows the state before"
        await delete
        await world.wait(SECOND)
        assert [it.status for it in await world.deliveries()] == ["cancelled"]
        assert held.calls == 1, "nothing was matched again"

    fleet(story)


def test_cleanup_begins_after_the_publishes_that_were_matched_before_a_new_url() -> None:
    async def story(world: FleetWorld) -> None:
        one, other = await two(world)
        made = await subscribe(world, one)
        held = Held(other)
        late = asyncio.ensure_future(publish(other, "late"))
        await world.wait(SOON_MS)
        change = asyncio.ensure_future(one.engine.change(made.id, changed(url=OTHER)))
        await world.wait(SECOND)
        assert await one.engine._core.admin.cleanup_jobs(), "they wait, too"
        held.go_on.set()
        await asyncio.gather(late, change)
        await world.wait(5 * SECOND)
        assert await one.engine._core.admin.cleanup_jobs() == []
        assert (len(world.all_hits(URL)), len(world.all_hits(OTHER))) == (0, 1)

    fleet(story)


def test_a_backfill_takes_what_was_being_published_when_its_subscription_was_created() -> None:
    async def story(world: FleetWorld) -> None:
        one, other = await two(world)
        held = Held(other)
        late = asyncio.ensure_future(publish(other, "late"))
        await world.wait(SOON_MS)
        draft = world.draft(URL, "a.b")
        create = asyncio.ensure_future(one.engine.subscribe_from(draft, PastStart(0)))
        await world.wait(2 * SECOND)
        held.go_on.set()
        assert (await late).deliveries == 0
        await create
        await world.wait(10 * SECOND)
        assert len(world.all_hits(URL)) == 1

    fleet(story)


def test_a_machine_that_is_stopped_over_its_lease_writes_nothing_of_what_it_matched_before() -> (
    None
):
    """The change waits for the rest of the lease; the publish is matched again."""

    async def story(world: FleetWorld) -> None:
        one, other = await two(world)
        made = await subscribe(world, one)
        held = Held(other)
        late = asyncio.ensure_future(publish(other, "late"))
        await world.wait(SOON_MS)
        other.beats.silent, other.bus._network.cut = True, True
        began = world.clock.now()
        await one.engine.unsubscribe(made.id)
        waited = world.clock.now() - began
        assert LEASE_MS // 2 <= waited <= LEASE_MS + SECOND

        held.go_on.set()
        other.beats.silent, other.bus._network.cut = False, False
        assert (await late).deliveries == 0
        assert held.calls == 2
        await world.wait(SECOND)
        assert await world.deliveries() == []
        assert (await publish(other, "next")).new

    fleet(story)


def test_a_fenced_machine_without_a_heartbeat_takes_no_events() -> None:
    async def story(world: FleetWorld) -> None:
        one, other = await two(world)
        made = await subscribe(world, one)
        other.beats.silent = True
        await world.wait(2 * LEASE_MS)
        await one.engine.unsubscribe(made.id)
        with pytest.raises(StoreUnavailable):
            await publish(other, "k1")
        other.beats.silent = False
        await world.wait(5 * SECOND)
        assert (await publish(other, "k1")).deliveries == 0

    fleet(story)


def test_a_change_waits_for_a_publish_that_has_no_reply_until_it_cannot_be_written() -> None:
    async def story(world: FleetWorld) -> None:
        one, other = await two(world)
        made = await subscribe(world, one)
        flow = other.engine._core.flow
        publish_now, calls = flow.publish, []

        async def lost(requests: Sequence[Sequence[NewEvent]], **more: Any) -> Any:
            calls.append((requests, more))
            raise StoreUnavailable

        flow.publish = lost  # type: ignore[method-assign]
        other.beats.silent = True  # Nor can it end its doubt.
        with pytest.raises(StoreUnavailable):
            await publish(other, "late")
        delete = asyncio.ensure_future(one.engine.unsubscribe(made.id))
        await world.wait(SECOND)
        assert not delete.done()

        other.beats.silent = False
        await delete
        ((requests, more),) = calls
        with pytest.raises(Exception, match="no longer waited for"):
            await publish_now(requests, **more)  # It comes late.
        assert await world.deliveries() == []

    fleet(story)


def test_a_machine_that_does_not_act_on_a_change_for_as_long_as_a_lease_is_fenced() -> None:
    async def story(world: FleetWorld) -> None:
        one, other = await two(world)
        made = await subscribe(world, one)
        held = Held(other)
        late = asyncio.ensure_future(publish(other, "late"))
        await world.wait(SOON_MS)
        began = world.clock.now()
        await one.engine.unsubscribe(made.id)
        assert LEASE_MS <= world.clock.now() - began <= LEASE_MS + 2 * SECOND
        held.go_on.set()
        assert (await late).deliveries == 0

    fleet(story)


def test_when_messages_are_lost_a_change_is_found_by_polling() -> None:
    async def story(world: FleetWorld) -> None:
        one, _other = await two(world)
        world.air.cut = True
        began = world.clock.now()
        await subscribe(world, one)
        assert world.clock.now() - began <= 3 * SECOND

    fleet(story)
