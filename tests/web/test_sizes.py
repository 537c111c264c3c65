"""Sizes and counts as the dashboard writes them."""

from __future__ import annotations

import pytest

from homing.web.dashboard.render import size


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (640, "640 B"), (12_300, "12.3 kB"), (3_200_000, "3.2 MB"), (5e9, "5.0 GB")],
)
def test_a_size_has_its_unit_once(count: int, text: str) -> None:
    assert size(count) == text
