"""Builders: values with sensible defaults, of which a test names only what matters to it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from homing.model import (
    Delivery,
    Endpoint,
    Event,
    Format,
    Health,
    State,
    Subscription,
)
from homing.policy.retry import Anchor, Schedule

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

NOW = 1_794_492_000_000  # 12 Nov 2026, 14:00:00 UTC


def a_delivery(**given: Any) -> Delivery:
    """Accepted now, never attempted."""
    row = Delivery(
        id=7,
        bucket=0,
        tenant="acme",
        endpoint_id=1,
        subscription_id=2,
        event_id=3,
        root_id=7,
        accepted_at=NOW,
        due_at=NOW,
        expires_at=NOW + 173_585_600,
    )
    return replace(row, **given)


def a_health(**given: Any) -> Health:
    """Enabled ten days ago, nothing sent."""
    row = Health(state=State.ENABLED, since=NOW - 10 * DAY, enabled_since=NOW - 10 * DAY)
    return replace(row, **given)


def an_endpoint(*, health: Health | None = None, **given: Any) -> Endpoint:
    """Enabled and unremarkable."""
    row = Endpoint(
        id=1,
        bucket=0,
        tenant="acme",
        url="https://example.com/",
        created_at=NOW - 10 * DAY,
        generation=0,
        health=health or a_health(),
    )
    return replace(row, **given)


def a_subscription(**given: Any) -> Subscription:
    """Active, to all events."""
    row = Subscription(
        id=2,
        tenant="acme",
        endpoint_id=1,
        url="https://example.com/",
        types=("*",),
        format=Format.STANDARD,
        secrets=(),
        created_at=NOW,
        updated_at=NOW,
        version=1,
    )
    return replace(row, **given)


def an_event(**given: Any) -> Event:
    """Something small."""
    row = Event(
        id=3,
        tenant="acme",
        key="evt_1",
        type="order.paid",
        time="2026-11-12T14:00:00Z",
        accepted_at=NOW,
        data=b'{"amount": 1.10}',
    )
    return replace(row, **given)


def a_schedule(**given: Any) -> Schedule:
    """Three retries after 1, 3 and 7 minutes, counted from the first failure."""
    row = Schedule(
        name="short",
        delays_ms=(MINUTE, 3 * MINUTE, 7 * MINUTE),
        anchor=Anchor.FIRST_FAILURE,
        window_ms=7 * MINUTE,
    )
    return replace(row, **given)
