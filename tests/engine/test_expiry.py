"""Deliveries that are held back beyond their window are dropped, also when the store fails."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from engine.test_health import QUICK, URL
from engine.world import HOUR, MINUTE, SECOND, World, live
from homing.errors import StoreUnavailable
from homing.model import Reason, Status
from homing.policy.admission import EventDraft
from homing.ports import SettleBatch, SettleResult


def test_what_was_held_beyond_its_window_is_not_attempted_though_no_sweep_has_seen_it() -> None:
    """The store could not be read when its window ended, and then a person enabled."""

    async def story(world: World) -> None:
        one = await world.subscribe(URL)
        await world.engine.freeze(one.endpoint_id, by="bob")
        await world.publish()

        async def away(*_: object, **__: object) -> object:
            raise StoreUnavailable("away")

        await world.wait(QUICK.schedule_of(one, tenant=one.tenant).window_ms - MINUTE)
        real = world.flow.expired
        world.flow.expired = away  # type: ignore[method-assign,assignment]
        await world.wait(MINUTE + SECOND)
        world.flow.expired = real  # type: ignore[method-assign]
        await world.engine.enable(one.endpoint_id, by="ann")
        await world.wait(MINUTE)
        assert world.hits(URL) == []
        row = await world.only_delivery()
        assert (row.status, row.reason) == (Status.DROPPED, Reason.EXPIRED)

    live(story, QUICK)


def test_a_look_for_what_has_expired_goes_on_where_it_failed() -> None:
    """With a store that fails now and then, a search that starts again would never finish."""

    async def story(world: World) -> None:
        one = await world.subscribe(URL)
        await world.engine.freeze(one.endpoint_id, by="bob")
        for _ in range(8):
            await world.publish()
        real, asked = world.flow.expired, list[int]()

        async def every_third_fails(*given: Any, after_id: int, **named: Any) -> Any:
            asked.append(after_id)
            if len(asked) % 3 == 0:
                raise StoreUnavailable("away")
            return await real(*given, after_id=after_id, **named)

        world.flow.expired = every_third_fails  # type: ignore[method-assign]
        await world.wait(QUICK.schedule_of(one, tenant=one.tenant).window_ms + HOUR)
        assert {row.status for row in await world.deliveries()} == {Status.DROPPED}
        failed = [(asked[it], asked[it + 1]) for it in range(2, len(asked) - 1, 3)]
        assert all(there == then for there, then in failed)
        assert any(there for there, _ in failed)  # not only at its beginning

    live(story, msgspec.structs.replace(QUICK, step_rows=2))


def test_many_deliveries_that_expire_one_after_the_other_are_not_read_again_for_each() -> None:
    """A policy with a short window must not make searches of a long one read every row."""
    quick = next(iter(QUICK.schedules.values()))
    short = msgspec.structs.replace(quick, name="short", delays_ms=(), window_ms=MINUTE)
    schedules = QUICK.schedules | {"short": short}

    async def story(world: World) -> None:
        one = await world.subscribe(URL)
        await world.engine.freeze(one.endpoint_id, by="bob")
        for _ in range(60):
            await world.publish()
            await world.wait(SECOND)
        real, asked = world.flow.expired, list[int]()

        async def counted(*given: Any, after_id: int, **named: Any) -> Any:
            asked.append(after_id)
            return await real(*given, after_id=after_id, **named)

        world.flow.expired = counted  # type: ignore[method-assign]
        await world.wait(QUICK.schedule_of(one, tenant=one.tenant).window_ms + HOUR)
        assert {row.status for row in await world.deliveries()} == {Status.DROPPED}
        assert len(asked) < 10 * 60  # 60 × 60 / 2, if each one that expires took a search

    live(story, msgspec.structs.replace(QUICK, step_rows=1, schedules=schedules))


def test_expiry_goes_on_under_a_steady_load_that_never_lets_the_settler_rest() -> None:
    """Each commit takes a while, and meanwhile other attempts always finish."""

    async def story(world: World) -> None:
        held = await world.subscribe(URL, "held")
        await world.subscribe("https://well.example/", "well")
        await world.engine.freeze(held.endpoint_id, by="bob")
        drafts = [EventDraft(tenant="default", type="held", data=b"1", key=None)] * 40
        await world.engine.publish(drafts)
        window_ms = QUICK.schedule_of(held, tenant=held.tenant).window_ms
        await world.wait(window_ms - 5 * SECOND)
        real = world.flow.settle

        async def slow(batch: SettleBatch) -> SettleResult:
            await asyncio.sleep(0.03)
            return await real(batch)

        world.flow.settle = slow  # type: ignore[method-assign]
        for _ in range(10 * 100):
            await world.publish("well")
            await world.wait(10)
        rows = await world.deliveries(endpoint_id=held.endpoint_id)
        dropped = sum(row.status is Status.DROPPED for row in rows)
        assert len(rows) == 40
        assert dropped == 40

    options = msgspec.structs.replace(QUICK, step_rows=10)
    live(story, options)
