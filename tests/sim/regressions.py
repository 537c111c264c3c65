"""Seeds that once failed, and what was wrong: each fails again when its fix is taken back."""

from __future__ import annotations

REGRESSIONS: list[tuple[int, int, str]] = []
