"""Rotation of secrets and signing keys: for a while the old ones sign alongside the new one."""

from __future__ import annotations

from msgspec.structs import replace

from homing.model import Secret

OVERLAP_MS = 24 * 3_600_000
OVERLAP_MS_MAX = 30 * 24 * 3_600_000
LIVE_MAX = 10  # each secret adds 48 bytes to every request, each signing key 93


def live(secrets: tuple[Secret, ...], *, now: int) -> tuple[Secret, ...]:
    """The secrets that sign at this time."""
    return tuple(one for one in secrets if one.until is None or now < one.until)


def rotated(
    secrets: tuple[Secret, ...], new: str, *, now: int, overlap_ms: int
) -> tuple[Secret, ...]:
    """The new secret, then the present ones, which sign no longer than the overlap.

    Beyond ``LIVE_MAX`` secrets the oldest end at once.
    """
    ends = now + overlap_ms
    kept = [
        replace(one, until=ends if one.until is None else min(one.until, ends))
        for one in live(secrets, now=now)
        if one.value != new
    ]
    return live((Secret(new), *kept[: LIVE_MAX - 1]), now=now)
