"""Order by key: which delivery of a key may be attempted, and how its times are counted.

The unfinished deliveries of one subscription and key form a waiting line. One that is not
blocked may be attempted; the others are blocked and have a place (``Delivery.order_seq``). Places
grow in the order of commits, whatever the clocks of the publishing processes say. When none is left
that is not blocked, the one with the lowest place is unblocked.

While the endpoint is enabled, the time in which a delivery was blocked does not count: its window
and its lane are counted from the moment at which it was unblocked. While the endpoint is disabled
or frozen, everything counts from acceptance, as for any other delivery.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

from msgspec.structs import replace

from homing.errors import FieldProblem
from homing.languages.sentences import say
from homing.model import Delivery, Order, SubscriptionSpec

QUIET_TIMES = 10  # a key waits at most this many quiet times, unless its subscription says how long
LOCK_CLASSES = 1_024  # of all keys: a batch with many keys needs no more locks of the database


def lock_class(subscription_id: int, key: str) -> int:
    """The class of a key: publish and settle of keys of one class come one after the other."""
    return crc32(b"%d:%b" % (subscription_id, key.encode())) % LOCK_CLASSES


def next_place(delivery_id: int, last: int) -> int:
    """The place behind the last one; ids grow with time, so it is usually the delivery's id."""
    return max(delivery_id, last + 1)


def unblocked(delivery: Delivery, *, now: int, enabled: bool, after_drop: bool) -> Delivery:
    """A blocked delivery that may be attempted from now on.

    If the one before it was dropped, it goes in the retry lane. If its endpoint is not enabled,
    it is as if it had never been blocked.
    """
    if not enabled:
        return replace(delivery, order_seq=0)
    return replace(
        delivery,
        order_seq=0,
        unblocked_at=-now if after_drop else now,
        due_at=now,
        expires_at=now + delivery.expires_at - delivery.accepted_at - delivery.paused_ms,
        paused_ms=0,
    )


# --- latest: only the newest event of a key is worth sending -----------------------------------


def order_problems(spec: SubscriptionSpec) -> Iterator[FieldProblem]:
    """Quiet times of a subscription that cannot have them."""
    if spec.quiet_ms is not None and spec.order is not Order.LATEST:
        reason = say("needs the order latest: leave it out, or set the order")
        yield FieldProblem("quiet_ms", reason)
    if spec.max_wait_ms is None:
        return
    if spec.quiet_ms is None:
        reason = say("needs {field}: leave it out, or give a quiet time", field="quiet_ms")
        yield FieldProblem("max_wait_ms", reason)
    elif spec.max_wait_ms < spec.quiet_ms:
        yield FieldProblem("max_wait_ms", say("must be at least {field}", field="quiet_ms"))


def longest_wait_ms(spec: SubscriptionSpec) -> int:
    """How long the first attempt of a key waits for quiet, at most."""
    quiet_ms = spec.quiet_ms or 0
    return spec.max_wait_ms if spec.max_wait_ms is not None else QUIET_TIMES * quiet_ms


def waiting_rules(spec: SubscriptionSpec) -> tuple[bool, int | None, int | None]:
    """The fields that say how deliveries with a key wait: another value changes those that do."""
    return spec.order is not Order.NONE, spec.quiet_ms, spec.max_wait_ms


def quiet_at(spec: SubscriptionSpec, *, since: int, newest: Delivery) -> int:
    """When a key is quiet, or has waited long enough since its first event; 0: it never waits."""
    if not spec.quiet_ms:
        return 0
    return min(newest.accepted_at + spec.quiet_ms, since + longest_wait_ms(spec))


def was_just_unblocked(delivery: Delivery) -> bool:
    """Whether it was unblocked and is due since then: it may not have waited for quiet.

    All others got their times when they were accepted, or when a person or a change set them.
    """
    first = not (delivery.attempts or delivery.replay)
    return first and 0 < abs(delivery.unblocked_at) >= delivery.due_at - delivery.paused_ms


def instead(older: Delivery, newest: Delivery, *, now: int, enabled_since: int | None) -> Delivery:
    """The newest delivery of a key in the place of an older one that is superseded.

    It is due when the older one was, in the same lane: a busy key never starves. ``enabled_since``
    is that of its endpoint, None while that is not enabled.
    """
    if enabled_since is None:
        return unblocked(newest, now=now, enabled=False, after_drop=False)
    tried = older.attempts or older.replay or older.unblocked_at < 0
    retry = bool(tried or older.ready_at < enabled_since)
    free = unblocked(newest, now=now, enabled=True, after_drop=retry)
    return replace(free, due_at=min(older.due_at, now))
