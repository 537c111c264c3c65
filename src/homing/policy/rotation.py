"""Signing secrets over time: a new one comes, the old ones sign beside it for a while."""

from __future__ import annotations

from msgspec.structs import replace

from homing.model import Secret

OVERLAP_MS = 24 * 3_600_000
OVERLAP_MS_MOST = 30 * 24 * 3_600_000
LIVE_MOST = 10  # each adds 48 bytes to every request


def live(secrets: tuple[Secret, ...], *, now: int) -> tuple[Secret, ...]:
    """Those that sign."""
    return tuple(one for one in secrets if one.until is None or now < one.until)


def rotated(
    secrets: tuple[Secret, ...], new: str, *, now: int, overlap_ms: int
) -> tuple[Secret, ...]:
    """The new secret first; what signs now goes on no longer than the overlap.

    Of more than ``LIVE_MOST`` the oldest end at once.
    """
    ends = now + overlap_ms
    kept = [
        replace(one, until=ends if one.until is None else min(one.until, ends))
        for one in live(secrets, now=now)
        if one.value != new
    ]
    return live((Secret(new), *kept[: LIVE_MOST - 1]), now=now)
