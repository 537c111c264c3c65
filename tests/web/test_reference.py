"""The reference pages are what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from homing.cli.reference import PAGES

DIRECTORY = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_as_the_code_makes_it(name: str) -> None:
    written = (DIRECTORY / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), f"docs/reference/{name} is stale: run `make docs`"
