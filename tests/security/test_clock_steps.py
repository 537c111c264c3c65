"""The wall clock of a real server is stepped by libfaketime: its receivers do not notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from security.clock_steps import libfaketime, restarted, stepped

needs_libfaketime = pytest.mark.skipif(
    libfaketime() is None, reason="libfaketime is not installed: clock steps were NOT tested"
)
TEN_MINUTES_S = 600


@needs_libfaketime
async def test_no_signature_is_stale_and_no_endpoint_changes_when_the_clock_is_stepped(
    tmp_path: Path,
) -> None:
    toll = await stepped(tmp_path, (TEN_MINUTES_S, -86_400), each_s=1.2, last_s=2, within_s=60)
    assert (toll.bad, toll.fired) == (0, 2), (toll.line, toll.first)
    assert toll.figures["stale_signatures"] == 0
    assert int(str(toll.figures["verified"])) > 0


@needs_libfaketime
async def test_a_restart_after_the_clock_ran_a_day_ahead_keeps_no_retry_waiting(
    tmp_path: Path,
) -> None:
    toll = await restarted(tmp_path, -86_400, while_down=True, wait_s=0)
    assert toll.bad == 0, (toll.line, toll.first)


@needs_libfaketime
@pytest.mark.parametrize("by_s", [15, 2 * 86_400])
async def test_a_clock_that_was_set_forward_while_the_server_was_down_sends_nothing_early(
    tmp_path: Path, by_s: int
) -> None:
    toll = await restarted(tmp_path, by_s, while_down=True, wait_s=0)
    assert toll.bad == 0, (toll.line, toll.first)
