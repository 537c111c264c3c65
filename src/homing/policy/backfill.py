"""Backfills: which past events a subscription may get, and from what time.

A backfill is a job that makes deliveries for events that are still kept, were accepted since a time
and match the subscription as it is now, if the subscription has no delivery of them: once each, in
the order of acceptance, in the retry lane.
"""

from __future__ import annotations

import msgspec

from homing.errors import Conflict, FieldProblem, Invalid
from homing.languages.sentences import At, say
from homing.model import Event, Subscription, SubscriptionSpec, Verification
from homing.policy.match import type_matches
from homing.policy.moments import moment

NOTICES = "homing."
PER_SECOND = 100  # deliveries that a job makes, unless it is asked for another rate
PER_SECOND_MAX = 10_000
# Allows a duration as long as the retention, and the oldest time that a refusal names: both
# are a little too old when they are checked.
TOLERANCE_MS = 10 * 60_000
NO_URL = say(
    "This subscription has no URL: its readers start in the past by themselves. A new reader "
    "begins with the oldest event, and an acknowledged cursor is never moved back."
)
INACTIVE = say("This subscription is inactive and gets no events: activate it first.")
UNVERIFIED = say(
    "The receiver has not proved that it owns the URL, so this subscription gets no events: verify "
    "it first."
)


WITHOUT_URL = say(
    "must not be given without a URL: readers start in the past by themselves, and a new reader "
    "begins with the oldest event"
)
NOT_ACTIVE = say(
    "must not be given for an inactive subscription, which gets no events: start a backfill when "
    "it is active"
)
NOT_PROVED = say(
    "must not be given with a verification: start a backfill when the receiver has proved that it "
    "owns the URL"
)
RATE_ALONE = say(
    "must not be given without from: it is the rate of past events; rate_per_second limits all "
    "deliveries"
)


class PastStart(msgspec.Struct, frozen=True):
    """From what time a subscription gets past events, and how many deliveries a job makes."""

    since: int
    per_second: int = PER_SECOND


class _About(msgspec.Struct):
    url: str | None = None


_about = msgspec.json.Decoder(_About)


def past_start(
    since: str | None, per_second: int | None, *, now: int
) -> tuple[PastStart | None, tuple[FieldProblem, ...]]:
    """The start in the past that a request asks for, and its problems."""
    if since is None:
        return None, () if per_second is None else (FieldProblem("per_second", RATE_ALONE),)
    try:
        at = moment(since, "from", now=now)
    except Invalid as error:
        return None, error.problems
    return PastStart(at, PER_SECOND if per_second is None else per_second), ()


def check_start(start: PastStart, *, retention_ms: int, now: int) -> None:
    """Raises Invalid if a backfill cannot begin at this time, or at this rate."""
    problems = _start_problems(start, retention_ms=retention_ms, now=now)
    if problems:
        raise Invalid(problems=problems)


def creation_problems(
    draft: SubscriptionSpec, start: PastStart, *, retention_ms: int, now: int
) -> tuple[FieldProblem, ...]:
    """Why a new subscription cannot start in the past; empty if it can."""
    problems = _start_problems(start, retention_ms=retention_ms, now=now)
    if not draft.url:
        problems += (FieldProblem("from", WITHOUT_URL),)
    elif not draft.active:
        problems += (FieldProblem("from", NOT_ACTIVE),)
    elif draft.verification is not Verification.NONE:
        problems += (FieldProblem("from", NOT_PROVED),)
    return problems


def _start_problems(start: PastStart, *, retention_ms: int, now: int) -> tuple[FieldProblem, ...]:
    problems = []
    oldest = now - retention_ms
    if start.since < oldest - TOLERANCE_MS:
        reason = say("must not be before {at}: older events are not kept", at=At(oldest))
        problems.append(FieldProblem("from", reason))
    if start.since > now:
        problems.append(FieldProblem("from", say("must not be in the future")))
    if not 1 <= start.per_second <= PER_SECOND_MAX:
        reason = say("must be {min} to {max}", min="1", max=str(PER_SECOND_MAX))
        problems.append(FieldProblem("per_second", reason))
    return tuple(problems)


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
