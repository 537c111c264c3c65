"""The performance page says what the last full run measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_says_what_was_measured() -> None:
    made = subprocess.run(
        [sys.executable, "-m", "bench.page", "--show"], cwd=ROOT, capture_output=True, check=True
    )
    assert made.stdout == (ROOT / "docs" / "explanation" / "performance.md").read_bytes()
