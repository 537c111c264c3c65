"""A tenant's rate: what is published uses it up, and time gives it back."""

from __future__ import annotations

import pytest

from homing.policy.quota import BURST_MS, Use, use_rate
from policy.build import NOW


@pytest.mark.parametrize(
    ("until", "count", "per_second", "expected"),
    [
        pytest.param(0, 1, 10, Use(NOW - BURST_MS + 100, 0), id="long ago: a burst is saved up"),
        pytest.param(NOW - BURST_MS, 1, 10, Use(NOW - BURST_MS + 100, 0), id="just as much"),
        pytest.param(NOW - 500, 5, 10, Use(NOW, 0), id="what it uses is used up"),
        pytest.param(NOW, 1, 10, Use(NOW + 100, 0), id="used up to now: it may go"),
        pytest.param(NOW, 1_000, 10, Use(NOW + 100_000, 0), id="a batch may go over it once"),
        pytest.param(NOW + 1, 1, 10, Use(NOW + 1, 1), id="used up beyond: it waits, uses nothing"),
        pytest.param(NOW, 1, 3, Use(NOW + 334, 0), id="rounded up"),
    ],
)
def test_the_rate(until: int, count: int, per_second: int, expected: Use) -> None:
    assert use_rate(until, count, per_second, now=NOW) == expected
