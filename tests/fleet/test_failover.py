"""The short form of ``make fleet``'s failover: real servers, a real standby, real load."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fleet.failover import Failover, fail_over


@pytest.mark.long
def test_a_standby_that_is_promoted_goes_on_where_the_killed_primary_was(tmp_path: Path) -> None:
    asked = Failover("killed", 1.0, standby_first=True, deliver=1, rate=100, urls=10)
    result = asyncio.run(fail_over(asked, tmp_path))
    print(result.text)
    assert result.wrong == []
    assert result.again_s < 99.0  # `make fleet` judges the time.
