"""Backfills: which past events a subscription may get, and from when on.

A backfill is a job that makes deliveries for events that are still kept, were accepted since a time
and match the subscription as it is now, if the subscription has no delivery of them: once each, in
the order of acceptance, in the retry lane.
"""

from __future__ import annotations

import msgspec

from homing.errors import Conflict, FieldProblem, Invalid
from homing.model import Event, Subscription
from homing.policy.match import type_matches
from homing.policy.moments import rfc3339

NOTICES = "homing."
PER_SECOND = 100  # deliveries that a job makes, unless it is asked for another rate
PER_SECOND_MAX = 10_000
NO_URL = (
    "This subscription has no URL: its readers start in the past by themselves. A new reader "
    "begins with the oldest event, and an acknowledged cursor is never moved back."
)
INACTIVE = "This subscription is inactive and gets no events: activate it first."
UNVERIFIED = (
    "The receiver has not proved that it owns the URL, so this subscription gets no events: verify "
    "it first."
)


class _About(msgspec.Struct):
    url: str | None = None


_about = msgspec.json.Decoder(_About)


def check_start(since: int, *, per_second: int, retention_ms: int, now: int) -> None:
    """Raises Invalid if a backfill cannot begin at this time, or at this rate."""
    problems = []
    oldest = now - retention_ms
    if since < oldest:
        reason = f"must not be before {rfc3339(oldest)}: older events are not kept"
        problems.append(FieldProblem("from", reason))
    if since > now:
        problems.append(FieldProblem("from", "must not be in the future"))
    if not 1 <= per_second <= PER_SECOND_MAX:
        problems.append(FieldProblem("per_second", f"must be 1 to {PER_SECOND_MAX}"))
    if problems:
        raise Invalid(problems=tuple(problems))


def check_subscription(subscription: Subscription) -> None:
    """Raises Conflict if a subscription cannot get past events."""
    if not subscription.url:
        raise Conflict(NO_URL)
    if not subscription.active:
        raise Conflict(INACTIVE)
    if subscription.is_unverified:
        raise Conflict(UNVERIFIED)


def gets_events(subscription: Subscription | None) -> bool:
    """Whether a backfill of this subscription goes on."""
    if subscription is None or not subscription.url:
        return False
    return subscription.active and not subscription.is_unverified


def may_be_notice(event_type: str) -> bool:
    """Whether Homing itself publishes events of this type: some are about an endpoint."""
    return event_type.startswith(NOTICES)


def is_about(subscription: Subscription, event: Event) -> bool:
    """Whether an event is a notice about the URL of a subscription, which never gets it."""
    if not may_be_notice(event.type):
        return False
    try:
        return _about.decode(event.data).url == subscription.url
    except msgspec.DecodeError:
        return False


def is_of_type(subscription: Subscription, event_type: str) -> bool:
    """Whether the types of a subscription name this one."""
    return any(type_matches(pattern, event_type) for pattern in subscription.types)
