"""Subscriptions in Workfront's format: UUIDs, dates without time zone, masked tokens, warnings."""

from __future__ import annotations

from datetime import UTC, datetime

from homing.model import Endpoint, State, Subscription, Workfront
from homing.policy.admission import mask
from homing.policy.exact import decode
from homing.policy.workfront_ids import show_uuid
from homing.web.show import warnings_of
from homing.web.workfront.schemas import (
    Created,
    OldSubscription,
    SubscriptionOut,
    UrlRecord,
)


def date_text(at_ms: int) -> str:
    """A time in UTC without a time zone, like ``2024-04-11T17:10:10.305000``."""
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}000"


def url_record(endpoint: Endpoint) -> UrlRecord:
    """The URL with its health; the counters start when the endpoint was last enabled."""
    health = endpoint.health
    since = date_text(health.since)
    return UrlRecord(
        url=endpoint.url,
        date_created=date_text(endpoint.created_at),
        successes=health.attempts - health.failures,
        failures=health.failures,
        disabled_at=since if health.state is State.DISABLED else None,
        frozen_at=since if health.state is State.FROZEN else None,
    )


def created(subscription: Subscription) -> Created:
    own = subscription.workfront or Workfront()
    return Created(show_uuid(subscription.id), own.version, warnings_of(subscription))


def subscription_out(
    subscription: Subscription, endpoint: Endpoint, *, in_list: bool = False
) -> SubscriptionOut:
    own = subscription.workfront or Workfront()
    created, changed = date_text(subscription.created_at), date_text(subscription.updated_at)
    obj_code, event_type = _kind(subscription)
    return SubscriptionOut(
        id=show_uuid(subscription.id),
        date_created=created,
        date_modified=changed,
        date_created_camel=created,
        date_modified_camel=changed,
        version=own.version,
        date_version_updated=None if own.version_at is None else date_text(own.version_at),
        customer_id=subscription.tenant,
        obj_id=own.object_id,
        obj_code=obj_code,
        url=subscription.url,
        event_type=event_type,
        auth_token=_masked(subscription),
        base64_encoding=own.base64,
        filters=decode(subscription.filters),
        filter_connector=subscription.filter_connector,
        subscription_url=url_record(endpoint),
        warnings=[] if in_list else warnings_of(subscription),
    )


def old_subscription(subscription: Subscription) -> OldSubscription:
    own = subscription.workfront or Workfront()
    obj_code, event_type = _kind(subscription)
    return OldSubscription(
        id=show_uuid(subscription.id),
        customer_id=subscription.tenant,
        obj_id=own.object_id,
        obj_code=obj_code,
        url=subscription.url,
        event_type=event_type,
        auth_token=_masked(subscription),
    )


def _kind(subscription: Subscription) -> tuple[str, str]:
    obj_code, _, event_type = subscription.types[0].rpartition(".")
    return obj_code, event_type


def _masked(subscription: Subscription) -> str | None:
    return None if subscription.token is None else mask(subscription.token)
