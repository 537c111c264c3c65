"""Time zones by name, from the database of the system."""

from __future__ import annotations

from datetime import UTC, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo


@lru_cache(maxsize=1_000)
def zone_of(name: str) -> tzinfo | None:
    """The time zone with this name; None if there is none."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError):  # ZoneInfoNotFoundError is a KeyError.
        return None
    except KeyError:
        return None
