"""A relay killed at any moment loses and doubles nothing: real processes, real SIGKILL."""

from __future__ import annotations

from pathlib import Path

import pytest

from outbox.killing import kill_relays


@pytest.mark.long
async def test_killed_relays_lose_and_double_nothing(app: str, tmp_path: Path) -> None:
    toll = await kill_relays(tmp_path, app, kills=1 if app.startswith("sqlite") else 2)
    assert toll.committed > 0
    assert toll.rolled_back > 0
    assert (toll.lost, toll.unexpected, toll.doubled, toll.refused) == (0, 0, 0, 0), toll
    assert toll.events == toll.arrived == toll.committed
