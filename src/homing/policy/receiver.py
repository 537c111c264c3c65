"""What a receiver says about its subscription: that it is gone (410).

Only a policy with ``on_gone = "deactivate"`` obeys a 410. The subscription becomes inactive and its
pending deliveries are cancelled. A response is about the subscription as it was when the attempt
began: if a person has changed the subscription since (its URL, or made it active again), the
response is an ordinary failure.
"""

from __future__ import annotations

from enum import Enum, auto

from msgspec.structs import replace

from homing.model import NOT_BOUND, Delivery, ReceiverState, Subscription
from homing.policy.retry import OnGone, Schedule

GONE = 410


class Verdict(Enum):
    """What a response means for the subscription."""

    NOTHING = auto()  # an ordinary failure
    CANCEL = auto()  # the subscription is inactive already: only this delivery ends
    DEACTIVATE = auto()


def after_gone(
    subscription: Subscription | None,
    schedule: Schedule,
    *,
    code: int | None,
    endpoint_id: int,
    version: int,
) -> Verdict:
    """What a failed attempt means; it was sent to this endpoint with this version."""
    if code != GONE or schedule.on_gone is not OnGone.DEACTIVATE or subscription is None:
        return Verdict.NOTHING
    if subscription.endpoint_id != endpoint_id:
        return Verdict.NOTHING  # The response is about the URL that it had before.
    if not subscription.active:
        return Verdict.CANCEL
    return Verdict.DEACTIVATE if subscription.version == version else Verdict.NOTHING


def set_gone(subscription: Subscription, *, now: int) -> Subscription:
    """The subscription after a 410."""
    state = replace(subscription.receiver or ReceiverState(), gone_at=now)
    return replace(subscription, active=False, receiver=state, updated_at=now)


def is_gone(subscription: Subscription) -> bool:
    """Whether a 410 has set the subscription inactive."""
    return subscription.receiver is not None and subscription.receiver.gone_at is not None


def is_unbound(subscription: Subscription) -> bool:
    """Whether it is not yet known which deliveries were accepted before the 410: all are over."""
    state = subscription.receiver
    return state is not None and state.gone_at is not None and state.gone_upto == NOT_BOUND


def is_over(subscription: Subscription, delivery: Delivery) -> bool:
    """Whether a delivery is cancelled: it was accepted before the 410, by the order of acceptance.

    A replay that a person makes later is sent like any other. One without a position is in memory
    since it was published, when the subscription was active.
    """
    state = subscription.receiver
    return state is not None and state.gone_at is not None and delivery.position <= state.gone_upto


def after_change(before: Subscription, after: Subscription) -> Subscription:
    """A changed subscription without what its receiver said about it before.

    A 410 is void once a person activates the subscription or gives it another URL.
    """
    if before.receiver is None or not is_gone(before):
        return after
    if not after.active and after.url == before.url:
        return after
    state = replace(before.receiver, gone_at=None, gone_upto=0)
    return replace(after, receiver=None if state == ReceiverState() else state)
