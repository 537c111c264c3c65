"""Retention per tenant, on virtual time."""

from __future__ import annotations

from engine.world import DAY, HOUR, World, always, balanced, live
from homing.engine.options import EngineOptions
from homing.model import Order, Reason, Status


def test_every_tenant_keeps_its_events_for_its_own_time() -> None:
    async def story(world: World) -> None:
        for tenant in ("short", "usual", "long"):
            await world.subscribe(f"https://{tenant}.example/", tenant=tenant)
            await world.publish(tenant=tenant, key="one")

        async def kept() -> set[str]:
            rows, _ = await world.views.events(
                tenant=None, event_type=None, before_id=None, limit=10
            )
            return {row.event.tenant for row in rows}

        await world.wait(3 * DAY)
        assert await kept() == {"usual", "long"}
        assert not await world.deliveries(tenant="short")
        await world.wait(4 * DAY)
        assert await kept() == {"long"}
        await world.wait(10 * DAY)
        assert await kept() == set()
        await balanced(world)

    options = EngineOptions(
        retention_ms=5 * DAY, tenant_retention_ms={"short": 2 * DAY, "long": 15 * DAY}
    )
    live(story, options)


def test_blocked_deliveries_are_dropped_after_their_own_tenants_retention() -> None:
    async def story(world: World) -> None:
        tenants = ("short", "usual")
        for tenant in tenants:
            url = f"https://{tenant}.example/"
            world.sender.scripts[url] = always(500)
            await world.subscribe(url, tenant=tenant, order=Order.KEY)
            for _ in range(10):
                await world.publish(tenant=tenant, order_key="x")
        await world.wait(3 * DAY + 2 * HOUR)

        pending = [len(await world.deliveries(tenant=it, status=Status.PENDING)) for it in tenants]
        assert pending == [1, 9]  # One of each is not blocked any more.
        dropped = await world.deliveries(tenant="short", status=Status.DROPPED)
        expired = [it for it in dropped if it.reason is Reason.EXPIRED]
        assert len(expired) == 8
        await balanced(world)

    options = EngineOptions(
        retention_ms=5 * DAY, tenant_retention_ms={"short": 3 * DAY, "long": 15 * DAY}, step_rows=3
    )
    live(story, options)


def test_the_id_of_an_erased_event_is_forgotten_when_its_tenant_would_have_forgotten_it() -> None:
    async def story(world: World) -> None:
        tenants = ("short", "usual", "long")
        for tenant in tenants:
            await world.subscribe(f"https://{tenant}.example/", tenant=tenant)
            await world.publish(tenant=tenant, key="one")
            await world.wait(1_000)
            await world.engine.erasures.erase_event(tenant, "one")

        async def erasures() -> set[str]:
            found, _ = await world.admin.erasures(tenant=None, before_id=None, limit=10)
            return {it.tenant for it in found}

        async def is_new(tenant: str) -> bool:
            """Whether the erased id makes a new event, which is sent."""
            sent = len(world.sender.hits)
            receipt = await world.publish(tenant=tenant, key="one")
            await world.wait(1_000)
            assert len(world.sender.hits) == sent + receipt.new
            return receipt.new

        assert not any([await is_new(tenant) for tenant in tenants])
        await world.wait(3 * DAY)
        assert [await is_new(tenant) for tenant in tenants] == [True, False, False]
        assert await erasures() == {"usual", "long"}
        await world.wait(3 * DAY)
        assert [await is_new(tenant) for tenant in tenants[1:]] == [True, False]
        assert await erasures() == {"long"}
        await world.wait(10 * DAY)
        assert await is_new("long")
        assert await erasures() == set()
        await balanced(world)

    options = EngineOptions(
        retention_ms=5 * DAY, tenant_retention_ms={"short": 2 * DAY, "long": 15 * DAY}
    )
    live(story, options)
