"""``kill -9`` under load: nothing acknowledged is lost, and only what was in flight comes twice.

Promised: what-homing-promises.md#nothing-is-lost.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from acceptance.killing import kill_again_and_again
from chaos.broken import build


def test_eight_kills_under_load_lose_nothing(tmp_path: Path) -> None:
    """``make chaos`` kills a thousand times."""
    toll = asyncio.run(kill_again_and_again(tmp_path, kills=8))
    print(toll)
    assert toll.kills == 8
    assert toll.acknowledged > 40  # Between kills there is time for some on any machine.
    assert (toll.lost, toll.unexpected, toll.unexplained) == (0, 0, 0)
    assert 0 < toll.duplicated <= toll.unsettled


@pytest.mark.long
def test_a_build_that_acknowledges_before_the_commit_is_found(tmp_path: Path) -> None:
    broken = (str(Path(__file__).with_name("acks_early.py")),)
    toll = asyncio.run(kill_again_and_again(tmp_path, kills=5, argv=broken))
    print(toll)
    assert toll.lost > 0


@pytest.mark.long
def test_a_build_that_settles_late_is_found(tmp_path: Path) -> None:
    late = build("settles_late")
    toll = asyncio.run(kill_again_and_again(tmp_path, kills=2, argv=late, long_every=1))
    print(toll)
    assert toll.unexplained > 0
