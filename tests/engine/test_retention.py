"""Retention per tenant, on virtual time."""

from __future__ import annotations

from engine.world import DAY, World, balanced, live
from homing.engine.options import EngineOptions


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
