"""Sizes and counts as the dashboard writes them."""

from __future__ import annotations

import pytest

from homing.languages.language import LANGUAGES
from homing.web.dashboard.render import Writer


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (640, "640 B"), (12_300, "12.3 kB"), (3_200_000, "3.2 MB"), (5e9, "5.0 GB")],
)
def test_a_size_has_its_unit_once(count: int, text: str) -> None:
    assert Writer(LANGUAGES["en"]).size(count) == text


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("en", ("3.2 MB", "12.3k", "1,204", "2 d 3 h", "48 min 2 s", "1.5 ms", "3.2 s", "–")),
        ("nl", ("3,2 MB", "12,3k", "1.204", "2 d 3 u", "48 min 2 s", "1,5 ms", "3,2 s", "–")),
        ("ja", ("3.2 MB", "12.3k", "1,204", "2日3時間", "48分2秒", "1.5ミリ秒", "3.2秒", "–")),
    ],
)
def test_numbers_and_durations_are_written_in_the_language(
    code: str, expected: tuple[str, ...]
) -> None:
    writer = Writer(LANGUAGES[code])
    spans = (writer.span(183_600_000), writer.span(2_882_000), writer.took(1_500))
    sizes = (writer.size(3_200_000), writer.short(12_300), writer.number(1_204))
    found = (*sizes, *spans, writer.took(3_200_000), writer.span(None))
    assert tuple(it.replace(" ", "") for it in found) == tuple(
        it.replace(" ", "") for it in expected
    )
