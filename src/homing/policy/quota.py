"""How much a tenant may have: events a second, pending deliveries, subscriptions.

A rate is kept as the time until which what was published has used it up. A batch may go over it
once, so that none is refused for ever; what follows waits until the rate has caught up.
"""

from __future__ import annotations

from msgspec import Struct

BURST_MS = 2_000  # what a tenant may save up


class Quota(Struct, frozen=True):
    """Limits of one tenant; 0 is no limit."""

    publish_per_second: int = 0
    pending_max: int = 0
    subscriptions_max: int = 0


class Use(Struct, frozen=True):
    """Until when the rate is used up, and until when it must not be asked again."""

    until: int
    wait_ms: int  # 0: it may go


def use_rate(until: int, count: int, per_second: int, *, now: int) -> Use:
    """Take ``count`` events at ``now`` where the rate was used up to ``until``."""
    until = max(until, now - BURST_MS)
    if until > now:
        return Use(until, until - now)
    return Use(until + -(-count * 1_000 // per_second), 0)
