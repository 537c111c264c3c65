"""Pauses of a subscription: how its deliveries wait, and how their times move.

While a subscription is paused, its deliveries are not attempted. Neither pausing nor resuming
writes them, however many wait: a subscription keeps the list of its pauses, and the times of a
delivery are computed from it. A pause moves a due time, a t₀ and the end of a window by its length,
counted from the acceptance of the delivery (or from the moment at which it was unblocked) if that
is later than the start of the pause. So a window runs only while the subscription is not paused.

``Delivery.paused_ms`` says by how much the stored times of a row have moved already. The times of a
first attempt that was due at acceptance move too, except its due time: it is due at once when the
pause ends, in its old place.
"""

from __future__ import annotations

from msgspec.structs import replace

from homing.model import Delivery, Pauses, Subscription

PAST_MAX = 500  # pauses that are kept; the oldest are joined


def paused(subscription: Subscription, *, now: int) -> Subscription:
    """The subscription after its owner paused it; the same one if it is paused already."""
    before = subscription.pauses or Pauses()
    if before.since is not None:
        return subscription
    last = before.past[-1][1] if before.past else 0  # by another clock, which may be ahead
    return replace(subscription, pauses=replace(before, since=max(now, last)))


def resumed(subscription: Subscription, *, now: int) -> Subscription:
    """The subscription after its owner resumed it; the same one if it is not paused."""
    before = subscription.pauses
    if before is None or before.since is None:
        return subscription
    past = before.past
    if now > before.since:
        past = _kept((*past, (before.since, now)))
    return replace(subscription, pauses=Pauses(past=past) if past else None)


def _kept(past: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """At most ``PAST_MAX`` pauses: the two oldest become one that ends with the second.

    A delivery from between those two, if one is still pending, then waits longer, never shorter.
    """
    if len(past) <= PAST_MAX:
        return past
    (first_begin, first_end), (begin, end) = past[:2]
    return ((begin - (first_end - first_begin), end), *past[2:])


def paused_ms(pauses: Pauses | None, *, since: int, until: int) -> int:
    """For how long, between two times, a subscription was paused."""
    if pauses is None or until <= since:
        return 0
    total = 0
    if pauses.since is not None:
        total = max(0, until - max(since, pauses.since))
    for begin, end in reversed(pauses.past):
        if end <= since:
            break
        total += max(0, min(end, until) - max(begin, since))
    return total


def as_of(delivery: Delivery, pauses: Pauses | None, at: int) -> Delivery:
    """The row with its times moved by the pauses until then."""
    if pauses is None:
        return delivery
    in_all = paused_ms(pauses, since=delivery.ready_at, until=at)
    by_ms = in_all - delivery.paused_ms
    if not by_ms:
        return delivery
    return replace(
        delivery,
        due_at=delivery.due_at if delivery.is_first else delivery.due_at + by_ms,
        expires_at=delivery.expires_at + by_ms,
        t0=None if delivery.t0 is None else delivery.t0 + by_ms,
        paused_ms=in_all,
    )


def waits(delivery: Delivery, subscription: Subscription, *, now: int) -> bool:
    """Whether a delivery whose times are as of now must wait: for the end of a pause, or its time.

    A row that was read as due may be due later by now: a pause has moved its due time.
    """
    later = delivery.due_at > now and not delivery.is_first
    return subscription.paused_since is not None or later


def moved(pauses: Pauses, *, by_ms: int, from_ms: int) -> Pauses:
    """The pauses after the clock was set: times from ``from_ms`` on move with it."""

    def fit(at: int) -> int:
        return at + by_ms if at >= from_ms else at

    past: list[tuple[int, int]] = []
    for begin, end in pauses.past:
        after = max(fit(begin), past[-1][1] if past else 0)
        if fit(end) > after:
            past.append((after, fit(end)))
    since = None if pauses.since is None else fit(pauses.since)
    return Pauses(since, tuple(past))


def is_over_age(
    delivery: Delivery, subscription: Subscription, *, retention_ms: int, now: int
) -> bool:
    """Whether a delivery of a paused subscription is dropped: its event is past the retention."""
    since = subscription.paused_since
    return since is not None and now >= since and now >= delivery.accepted_at + retention_ms
