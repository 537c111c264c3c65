"""Shares of tenants with real processes: tests that pass on slow machines, too."""

from __future__ import annotations

from pathlib import Path

from security.neighbours import town
from security.shares import publish, subscribe

HANG, WELL = 60, 10


async def test_hanging_urls_of_one_tenant_leave_slots_to_another(tmp_path: Path) -> None:
    """They would hold the lane of 32 slots twice over, each for 30 seconds."""
    few = {"HOMING_FRESH_SLOTS": "32", "HOMING_GRACE_MS": "0"}
    async with town(tmp_path, rate_after_attempts=1_000_000, environ=few) as at:
        await at.subscribe("ok", WELL)
        for number in range(HANG):
            await subscribe(at, "hang", number, deadline_ms=30_000)
        await publish(at, "hang", 1)
        await at.until_far("hanging", least=16)
        await at.publish("ok", 10)
        await at.until_far("distinct", least=16 + 10 * WELL)
        hanging = (await at.far.tell("books"))["hanging"]
        assert 16 <= hanging < 32
        await at.far.tell("hang_up")
