"""The page of speed says what the last full run measured."""

from __future__ import annotations

import json

from bench.page import LATEST, PAGE, page


def test_the_page_says_what_was_measured() -> None:
    assert PAGE.read_text() == page(json.loads(LATEST.read_text()))
