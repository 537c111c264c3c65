"""Outcomes of attempts that began under a lost lease: they are dropped or refused."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.fleet_world import URL, FleetWorld, at, fleet, two
from engine.world import MINUTE, SECOND, always, balanced
from homing.engine.decide import Deferred, Misrouted, Terminated
from homing.errors import StoreUnavailable
from homing.model import Reason, Status
from homing.ports import SettleBatch, SettleResult


def test_an_outcome_that_comes_after_the_lease_was_lost_is_dropped_and_not_settled_twice() -> None:
    async def story(world: FleetWorld) -> None:
        await two(world)
        owner, other, _ = await at(world)
        calls = []

        def slow_then_quick(hit: object) -> object:
            calls.append(hit)
            return always(200, latency_ms=4_900 if len(calls) == 1 else 5)(hit)  # type: ignore[arg-type]

        world.sender.scripts[URL] = slow_then_quick  # type: ignore[assignment]
        world.engine = owner.engine
        await world.publish()
        await world.wait(100)
        assert len(owner.hits(URL)) == 1
        # As if it had been stopped for longer than its lease, with the attempt in the air.
        taken = list(owner.buckets)
        await owner.beats.give(owner.me.id, taken)
        owner.beats.silent = True
        other.engine.fleet._wake.set()  # type: ignore[union-attr]
        await world.wait(60 * SECOND)
        assert len(other.hits(URL)) == 1
        (row,) = await world.deliveries()
        assert row.status is Status.DELIVERED
        assert len(await world.views.attempts(row.delivery.id)) == 1
        assert owner.engine._settler.late == 1
        assert owner.engine._dispatcher.capacity.in_flight == 0
        assert owner.engine._dispatcher.capacity.slots_taken == {"fresh": 0, "retry": 0}
        await balanced(world)

    fleet(story)


@pytest.mark.parametrize("code", [200, 500])
def test_a_bucket_lost_while_its_outcomes_are_written_leaves_no_slot_taken(code: int) -> None:
    async def story(world: FleetWorld) -> None:
        await two(world)
        owner, _, endpoint = await at(world)
        settle, settler = owner.engine._settler._flow.settle, owner.engine._settler

        async def settles(batch: SettleBatch) -> SettleResult:
            gone = await settle(batch)
            settler.on_lost(frozenset({endpoint.bucket}))  # A heartbeat has just found it.
            return gone

        settler._flow.settle = settles  # type: ignore[method-assign]
        world.sender.scripts[URL] = always(code)
        world.engine = owner.engine
        await world.publish()
        await world.wait(100)
        assert owner.engine._dispatcher.capacity.in_flight == 0
        assert owner.engine._dispatcher.capacity.slots_taken == {"fresh": 0, "retry": 0}

    fleet(story)


def test_a_settle_that_is_refused_late_does_not_lose_the_bucket_that_was_taken_again() -> None:
    async def story(world: FleetWorld) -> None:
        await two(world)
        owner, _, endpoint = await at(world)
        settle, settler = owner.engine._settler._flow.settle, owner.engine._settler
        epochs = owner.engine._core.ownership.epochs
        before = epochs[endpoint.bucket]

        async def settles(batch: SettleBatch) -> SettleResult:
            settler._flow.settle = settle  # type: ignore[method-assign]
            await owner.beats.give(owner.me.id, [endpoint.bucket])
            while epochs[endpoint.bucket] in {before, 0}:  # Lost, and taken again meanwhile.
                owner.engine.fleet._wake.set()  # type: ignore[union-attr]
                await world.wait(SECOND)
            return await settle(batch)

        settler._flow.settle = settles  # type: ignore[method-assign]
        world.engine = owner.engine
        await world.publish()
        await world.wait(MINUTE)
        assert epochs[endpoint.bucket] > before
        (row,) = await world.deliveries()
        assert row.status is Status.DELIVERED
        assert settler.late == 1

    fleet(story)


def test_what_was_found_under_an_old_lease_is_not_written_under_the_new_one() -> None:
    async def story(world: FleetWorld) -> None:
        await two(world)
        owner, _, endpoint = await at(world)
        world.sender.scripts[URL] = always(503)
        world.engine = owner.engine
        await world.publish()
        await world.wait(SECOND)
        (row,) = await world.deliveries()
        assert row.delivery.attempts == 1
        older = replace(row.delivery, attempts=0, retry=0, t0=None)
        epoch = owner.engine._core.ownership.epochs[endpoint.bucket]
        settler = owner.engine._settler
        settler.add(Deferred(older, world.clock.now() + 500, epoch - 1))
        settler.add(Misrouted(older, epoch - 1))
        settler.add(Terminated(older, Status.DROPPED, Reason.EXPIRED, epoch - 1))
        await world.wait(SECOND)
        assert await world.deliveries() == [row]
        assert settler.late == 3

    fleet(story)


def test_one_whose_settle_failed_and_then_lost_its_lease_goes_on_with_what_it_gets_next() -> None:
    async def story(world: FleetWorld) -> None:
        await two(world)
        owner, other, _ = await at(world)
        settle, broken = owner.engine._settler._flow.settle, [True]

        async def settles(batch: SettleBatch) -> SettleResult:
            if broken:
                raise StoreUnavailable
            return await settle(batch)

        owner.engine._settler._flow.settle = settles  # type: ignore[method-assign]
        world.engine = owner.engine
        await world.publish()
        await world.wait(100)
        assert not owner.engine.pulse().store_ok
        await owner.beats.give(owner.me.id, list(owner.buckets))
        owner.beats.silent = True
        other.engine.fleet._wake.set()  # type: ignore[union-attr]
        await world.wait(SECOND)
        broken.clear()
        await world.wait(5 * SECOND)
        assert owner.engine._settler.late == 1
        assert owner.engine.pulse().store_ok
        owner.beats.silent = False
        await world.wait(20 * SECOND)
        assert len(owner.buckets) == 128
        before = len(owner.sender.hits)
        for number in range(20):
            await world.subscribe(f"https://{number}.example/")
        await world.publish()
        await world.wait(5 * SECOND)
        assert len(owner.sender.hits) > before
        await balanced(world)

    fleet(story)
