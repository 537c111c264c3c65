"""The event and delivery of a test send."""

from __future__ import annotations

import msgspec

from homing.engine.fan_out import rfc3339
from homing.model import Delivery, Event, Subscription, Work, bucket_of, show_id


def sample_work(subscription: Subscription, *, number: int, now: int, wall: int) -> Work:
    """A delivery that is not stored, of an event whose data says that it is a test."""
    delivery = Delivery(
        id=number,
        bucket=bucket_of(subscription.tenant, subscription.url),
        tenant=subscription.tenant,
        endpoint_id=subscription.endpoint_id,
        subscription_id=subscription.id,
        event_id=number,
        root_id=number,
        accepted_at=now,
        due_at=now,
        expires_at=now,
    )
    data = {"test": True, "subscription": show_id("sub", subscription.id)}
    event = Event(
        id=number,
        tenant=subscription.tenant,
        key=show_id("evt", number),
        type="homing.test",
        time=rfc3339(wall),
        accepted_at=now,
        data=msgspec.json.encode(data),
    )
    return Work(delivery, event)
