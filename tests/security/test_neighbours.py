"""Bad neighbours and recoveries with real processes: tests that pass on slow machines, too."""

from __future__ import annotations

import asyncio
from pathlib import Path

from security.neighbours import SLOTS, WITHIN_S, disabled, healed, town

HANG, WELL = 20, 30


async def test_urls_that_hang_hold_one_slot_each_and_all_others_are_delivered(
    tmp_path: Path,
) -> None:
    """With all their slots they would fill the lane ten times over."""
    few = {"HOMING_FRESH_SLOTS": "32", "HOMING_GRACE_MS": "0"}
    async with town(tmp_path, rate_after_attempts=1_000_000, environ=few) as at:
        await at.subscribe("ok", WELL)
        await at.subscribe("hang", HANG, deadline_ms=30_000)
        await at.publish("hang", SLOTS)
        await at.until_far("hanging", least=HANG)
        await at.publish("ok", 10)
        await at.until_far("distinct", least=HANG + 10 * WELL)
        assert (await at.far.tell("books"))["hanging"] == HANG
        await at.far.tell("hang_up")


async def test_a_recovered_url_is_never_sent_more_than_slow_start_allows(tmp_path: Path) -> None:
    async with town(tmp_path, rate_after_attempts=20) as at:
        await at.far.tell("set", delay_s=0.01)
        await at.subscribe("ill")
        await disabled(at)
        await at.publish("ill", 200)
        await healed(at)
        async with asyncio.timeout(WITHIN_S):
            while True:
                ramp = (await at.far.tell("books"))["ramps"]["/ill/0"]
                if ramp["responded"] >= 200:
                    break
                await asyncio.sleep(0.05)
        assert ramp["over"] == 0
        assert ramp["peak"] <= SLOTS
