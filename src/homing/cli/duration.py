"""Durations as people write them on the command line: ``500ms``, ``30s``, ``2m``, ``1h``."""

from __future__ import annotations

import re

from homing.cli.trouble import Usage

_FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def read_seconds(text: str, flag: str) -> float:
    """Raises Usage."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise Usage(f"{flag} {text} must be a duration like 500ms, 30s or 2m.")
    return float(found[1]) * _SECONDS[found[2]]
