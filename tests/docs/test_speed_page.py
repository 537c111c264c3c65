"""The page about speed says what the last full run measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LATEST = ROOT / "bench" / "latest.json"
PAGE = ROOT / "docs" / "explanation" / "speed.md"


def _page(latest: Path) -> str:
    argv = [sys.executable, "-m", "bench.page", "--show", str(latest)]
    made = subprocess.run(argv, cwd=ROOT, capture_output=True, check=True)
    return made.stdout.decode()


def test_the_page_says_what_was_measured() -> None:
    assert _page(LATEST) == PAGE.read_text()


def test_a_run_renews_the_figures_and_nothing_else(tmp_path: Path) -> None:
    run = json.loads(LATEST.read_text())
    run["commit"] = "0123456789abcdef"
    (tmp_path / "new.json").write_text(json.dumps(run))
    old, new = PAGE.read_text(), _page(tmp_path / "new.json")
    assert "commit `0123456`" in new
    assert new.replace("0123456", json.loads(LATEST.read_text())["commit"][:7]) == old


def test_a_part_that_was_not_measured_is_not_on_the_page(tmp_path: Path) -> None:
    run = json.loads(LATEST.read_text())
    goal = {"value": 1.5}
    run["medians"] |= {part: {"value": 4_000.0, "unit": "/s"} for part in "mnq"}
    run["ratios"] |= {"m/d": goal, "n/c": goal, "q/c": goal, "s/c": goal}
    costs = ("c CPU", "o CPU", "t CPU", "t RSS", "r WAL", "n RSS above", "q search p99")
    saturated = ("s p99", "s p99 of another tenant", "s RSS above")
    run["limits"] |= dict.fromkeys(costs + saturated, goal)
    (tmp_path / "all.json").write_text(json.dumps(run))
    everything = _page(tmp_path / "all.json")
    assert "one by one on PostgreSQL | 4,000/s | 1.50 × of one by one" in everything
    assert "1.5 kB" in everything
    assert "payload fields indexed for searches | 4,000/s | 1.50 × of batches" in everything
    assert "99 of 100 within 1.5 ms" in everything
    assert "`429` and `Retry-After`" in everything
    for name in costs + saturated:
        del run["limits"][name]
    for name in ("m/d", "n/c", "q/c", "s/c"):
        del run["ratios"][name]
    run["medians"] = {part: one for part, one in run["medians"].items() if part not in "mnq"}
    (tmp_path / "older.json").write_text(json.dumps(run))
    older = _page(tmp_path / "older.json")
    assert "one by one on PostgreSQL" not in older
    assert "What it costs" not in older
    assert "Retry-After" not in older
