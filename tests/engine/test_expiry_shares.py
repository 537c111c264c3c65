"""Expiry has its share of commits beside a steady load, and endpoints have their turns at it."""

from __future__ import annotations

import asyncio
from typing import Any

from engine.world import SECOND, World, always, live
from homing.engine.options import EngineOptions
from homing.model import Status
from homing.policy.admission import EventDraft
from homing.ports import SettleBatch, SettleResult

FAILING, URLS, HELD = 12, 24, 40
COMMIT_MS = 100


async def publish(world: World, tenant: str, event_type: str, count: int) -> None:
    draft = EventDraft(tenant=tenant, type=event_type, data=b"1", key=None)
    await world.engine.publish([draft] * count)


async def frozen(world: World, url: str, event_type: str, *, tenant: str) -> int:
    """Return the endpoint of a new subscription: held back, so that its deliveries expire."""
    one = await world.subscribe(url, event_type, tenant=tenant)
    await world.engine.freeze(one.endpoint_id, by="bob")
    return one.endpoint_id


def test_expiry_has_its_share_of_commits_beside_many_tenants_that_fail() -> None:
    """Failures of others use up each commit, and its own tenant always has successes."""

    async def story(world: World) -> None:
        held = await frozen(world, "https://held.example/", "held", tenant="small")
        await world.subscribe("https://well.example/", "well", tenant="small")
        for number in range(FAILING):
            for place in range(URLS):
                url = f"https://fails{number}.example/{place}"
                world.sender.scripts[url] = always(500)
                await world.subscribe(url, "fails", tenant=f"t{number}")
        await publish(world, "small", "held", HELD)
        window_ms = EngineOptions().schedule_of(None, tenant="small").window_ms
        await world.wait(window_ms - SECOND)
        real, commits = world.flow.settle, list[int]()

        async def slow(batch: SettleBatch) -> SettleResult:
            commits.append(sum(it.delivery.endpoint_id == held for it in batch.finished))
            await world.wait(COMMIT_MS)
            return await real(batch)

        world.flow.settle = slow  # type: ignore[method-assign]
        for number in range(FAILING):
            await publish(world, f"t{number}", "fails", 12)
        for _ in range(4 * SECOND // (COMMIT_MS // 4)):
            await publish(world, "small", "well", 1)
            await world.wait(COMMIT_MS // 4)
        rows = await world.deliveries(endpoint_id=held)
        assert sum(row.status is Status.DROPPED for row in rows) == HELD, commits

    live(story)


def test_endpoints_take_turns_at_expiry_and_few_pages_wait_to_be_written() -> None:
    async def story(world: World) -> None:
        crowd = [
            await frozen(world, f"https://{n}.example/", "crowd", tenant="large") for n in range(60)
        ]
        one = await frozen(world, "https://held.example/", "held", tenant="small")
        await publish(world, "large", "crowd", 6)
        await publish(world, "small", "held", 6)
        real, asked, reading, most = world.flow.expired, list[int](), set[int](), 0

        async def expired(endpoint_id: int, **named: Any) -> Any:
            nonlocal most
            asked.append(endpoint_id)
            reading.add(endpoint_id)
            most = max(most, len(reading))
            await asyncio.sleep(0.05)
            reading.discard(endpoint_id)
            return await real(endpoint_id, **named)

        world.flow.expired = expired  # type: ignore[method-assign]
        unsettled = 0
        await world.wait(EngineOptions().schedule_of(None, tenant="small").window_ms - SECOND)
        for _ in range(4_000):
            await world.wait(5)
            unsettled = max(unsettled, world.engine._settler.unsettled)
        rows = await world.deliveries()
        assert {row.status for row in rows if row.event_type == "crowd"} == {Status.DROPPED}
        assert {row.status for row in rows if row.event_type == "held"} == {Status.DROPPED}
        assert most <= 4
        assert unsettled <= 4 * 2
        assert asked.index(one) <= 8
        assert set(asked[:60]) >= set(crowd[:50]), "no endpoint has a second page before the others"

    live(story, EngineOptions(step_rows=2))
