"""Every promise that is cited is on the page of promises, and every promise is cited by a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simulation.findings import RULES

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "what-homing-promises.md"
CITED = re.compile(re.escape(PAGE.name) + r"#([a-z0-9-]+)")
FILES = sorted(
    path
    for folder in ("tests", "src", "bench", "docs")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".md"}
) + sorted(ROOT.glob("*.md"))


def anchors() -> set[str]:
    headings = re.findall(r"^## (.+)$", PAGE.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", it.lower()).replace(" ", "-") for it in headings}


def cited(path: Path) -> set[str]:
    """The headings of the page that a file names."""
    if path == Path(__file__):
        return set()
    return set(CITED.findall(path.read_text()))


def test_every_cited_promise_is_on_the_page() -> None:
    wrong = {str(path.relative_to(ROOT)): cited(path) - anchors() for path in FILES}
    assert {path: left for path, left in wrong.items() if left} == {}


def test_every_promise_is_cited_by_a_test() -> None:
    tests = (path for path in FILES if path.name.startswith("test_"))
    assert anchors() - set().union(*map(cited, tests)) == set()


def test_no_file_cites_a_document_that_is_not_here() -> None:
    elsewhere = re.compile(r"\bthe contract\b|contract §|scoreboard|§ ?\d")
    named = [path for path in FILES if elsewhere.search(path.read_text())]
    assert [path for path in named if path != Path(__file__)] == []


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_of_the_simulation_says_which_promise_it_checks(rule: str) -> None:
    (anchor,) = re.findall(r"\(#([a-z-]+)(?:, #[a-z-]+)*\)$", RULES[rule])
    assert anchor in anchors()


def test_every_rule_with_a_number_has_a_sentence() -> None:
    texts = (path.read_text() for path in (ROOT / "tests" / "simulation").glob("*.py"))
    used = {code for text in texts for code in re.findall(r'"([SL]\d+)"', text)}
    assert used == set(RULES)
