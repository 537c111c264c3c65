"""Times and durations as people write them: ``2025-01-31T12:00:00Z``, ``30m``, ``7d``."""

from __future__ import annotations

import re

from homing.errors import FieldProblem, Invalid
from homing.languages.sentences import say
from homing.policy.admission import read_time

TIME_MAX = (1 << 42) - 1  # the last time that an id can carry

_DURATION = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def read_duration(text: str) -> int | None:
    """``2h`` in milliseconds; None if the text is no duration."""
    found = _DURATION.fullmatch(text)
    return int(found[1]) * _UNITS_MS[found[2]] if found else None


def moment(value: str, name: str, *, now: int) -> int:
    """An RFC 3339 time, or a duration back from now; raises Invalid."""
    duration = read_duration(value)
    at = now - duration if duration is not None else read_time(value)
    if at is None:
        reason = say("must be a time after RFC 3339, or a duration back from now like 2h")
        raise Invalid(problems=(FieldProblem(name, reason),))
    return min(max(at, 0), TIME_MAX)
