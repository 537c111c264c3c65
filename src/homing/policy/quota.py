"""The quota of a tenant: events per second, pending deliveries, subscriptions, changes.

The use of a rate is stored as the time until which published events have used it up. A batch may
exceed the rate once, so that no batch is refused for ever; the next one waits until the rate has
caught up.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from homing.errors import TooMany
from homing.languages.sentences import many

BURST_MS = 2_000  # unused rate of publishing that a tenant may save up
SUBSCRIPTIONS_AGAIN_MS = 60_000
ELSEWHERE_MAX_MS = 120_000  # that a tenant waits for what others granted it
MINUTE_MS = 60_000  # of a rate per minute, all of which may be used at once


class Spent(Struct, frozen=True, array_like=True):
    """What a process has used of a tenant's rate since it told the others."""

    rate: Literal["publish", "change"]
    tenant: str
    ms: int  # for so long it is used up


class Quota(Struct, frozen=True):
    """The limits of one tenant; 0: no limit."""

    publish_per_second: int = 0
    pending_max: int = 0
    subscriptions_max: int = 0
    changes_per_minute: int = 0


class Use(Struct, frozen=True):
    """The use of a rate after a request, and how long the caller must wait."""

    until: int  # the rate is used up until then
    wait_ms: int  # 0: the request is allowed


def room_for_jobs(pending: int, pending_max: int) -> int:
    """How many deliveries the jobs of a tenant may make now.

    Jobs leave a tenth of the quota to what is published.
    """
    return max(max(pending_max * 9 // 10, 1) - pending, 0)


def too_many_subscriptions(tenant: str, limit: int) -> TooMany:
    """The error for one subscription more than a tenant may have."""
    detail = many(
        "The tenant {tenant} may have at most {count} subscription.",
        "The tenant {tenant} may have at most {count} subscriptions.",
        limit,
        tenant=tenant,
    )
    return TooMany(detail, after_ms=SUBSCRIPTIONS_AGAIN_MS)


def use_elsewhere(until: int, ms: int, *, now: int, burst_ms: int) -> int:
    """Until when a rate is used up after others have used it for so long."""
    return min(max(until, now - burst_ms) + ms, now + ELSEWHERE_MAX_MS)


def use_rate(until: int, count: int, per_second: int, *, now: int) -> Use:
    """Use the rate for ``count`` events; so far it was used up until ``until``."""
    return _use(until, -(-count * 1_000 // per_second), now=now, burst_ms=BURST_MS)


def use_change(until: int, per_minute: int, *, now: int) -> Use:
    """Use the rate for one change; so far it was used up until ``until``."""
    return _use(until, -(-MINUTE_MS // per_minute), now=now, burst_ms=MINUTE_MS)


def _use(until: int, cost_ms: int, *, now: int, burst_ms: int) -> Use:
    until = max(until, now - burst_ms)
    if until > now:
        return Use(until, until - now)
    return Use(until + cost_ms, 0)
