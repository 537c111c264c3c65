"""Turns published events into rows: an event, and a delivery for every matching subscription."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from homing.engine.catalog import Catalog
from homing.engine.options import EngineOptions
from homing.model import Delivery, Event, Ids, Order, Subscription, bucket_of, show_id
from homing.policy.admission import EventDraft
from homing.policy.order import longest_wait_ms
from homing.policy.retry import window_end
from homing.ports import Latest, NewEvent


@lru_cache(maxsize=16)
def _to_the_second(at_s: int) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%S}"


@lru_cache(maxsize=16)  # All events of a commit have the same time.
def rfc3339(at_ms: int) -> str:
    return f"{_to_the_second(at_ms // 1000)}.{at_ms % 1000:03d}Z"


class _Route(Struct, frozen=True, gc=False):
    """Where the deliveries of one version of a subscription go, and for how long."""

    version: int
    bucket: int
    window_ms: int


def _keyed(delivery: Delivery, subscription: Subscription, key: str) -> Delivery:
    """The delivery of an event with a key; with the order ``latest`` it may wait for quiet."""
    if subscription.order is Order.LATEST and subscription.quiet_ms:
        due_at = delivery.due_at + subscription.quiet_ms
        return replace(delivery, order_key=key, due_at=due_at)
    return replace(delivery, order_key=key)


class FanOut:
    """Makes events with their deliveries, ready to be written."""

    def __init__(self, *, catalog: Catalog, ids: Ids, options: EngineOptions) -> None:
        self._catalog, self._ids, self._options = catalog, ids, options
        self._payload_fields = options.payload_fields or None
        self._is_fair = options.is_fair
        self._routes: dict[int, _Route] = {}  # by subscription

    def event(
        self,
        draft: EventDraft,
        *,
        now: int,
        wall: int,
        not_to_endpoint: int | None = None,
        matches: list[Subscription] | None = None,
        fields: tuple[bytes, ...] | None = None,
    ) -> NewEvent:
        """The event with its deliveries; its time is ``wall`` unless its publisher gave one.

        ``matches`` are the subscriptions of an event that was matched before, ``fields`` the hashes
        of its payload fields. Without them, raises OutOfSteps if its data takes long to read.
        """
        if matches is None:
            matches = self._catalog.match(
                draft.tenant, draft.type, data=draft.data, now=now, not_to_endpoint=not_to_endpoint
            )
        if fields is None and self._payload_fields is not None:
            fields = self._payload_fields.at_once(draft.data)
        pulled: tuple[int, ...] = ()
        if self._catalog.pulled:
            pulled = tuple([it.id for it in matches if not it.endpoint_id])
            matches = [it for it in matches if it.endpoint_id] if pulled else matches
        number, tenant, kind, data = self._ids.take(now), draft.tenant, draft.type, draft.data
        key, time = draft.key or show_id("evt", number), draft.time or rfc3339(wall)
        about = draft.order_key or ""
        event = Event(
            number,
            tenant,
            key,
            kind,
            time,
            now,
            data,
            draft.trace,
            draft.context,
            about,
            draft.warning,
        )
        deliveries = tuple([self._delivery(event, match, now) for match in matches])
        ordered: tuple[int, ...] = ()
        latest: tuple[Latest, ...] = ()
        if about and deliveries:
            pairs = [
                (_keyed(it, match, about), match)
                for it, match in zip(deliveries, matches, strict=True)
            ]
            deliveries = tuple([it for it, _ in pairs])
            ordered = tuple([it.id for it, match in pairs if match.order is not Order.NONE])
            latest = tuple(
                [
                    Latest(it.id, match.quiet_ms or 0, longest_wait_ms(match))
                    for it, match in pairs
                    if match.order is Order.LATEST
                ]
            )
        if self._is_fair and deliveries:
            part = self._options.fair_by_of(tenant).part(data)
            deliveries = tuple([replace(it, fair_part=part) for it in deliveries])
        if draft.key is None or not self._catalog.knows_erased_ids:
            return NewEvent(
                event, draft.time or "", deliveries, fields, (), pulled, ordered, latest
            )
        erased = self._options.erased_ids.of(tenant, key)
        return NewEvent(
            event, draft.time or "", deliveries, fields, erased, pulled, ordered, latest
        )

    def _delivery(self, event: Event, subscription: Subscription, now: int) -> Delivery:
        number = self._ids.take(now)
        route = self._route(subscription)
        return Delivery(  # By position: keywords are slower.
            number,
            route.bucket,
            event.tenant,
            subscription.endpoint_id,
            subscription.id,
            event.id,
            number,  # it is its own root
            now,
            now,
            now + route.window_ms,
        )

    def _route(self, subscription: Subscription) -> _Route:
        """The values that a subscription's deliveries have in common; kept until it changes."""
        route = self._routes.get(subscription.id)
        if route is None or route.version != subscription.version:
            if len(self._routes) >= self._options.queues_max:
                self._routes.clear()
            bucket = bucket_of(subscription.tenant, subscription.url)
            schedule = self._options.schedule_of(subscription, tenant=subscription.tenant)
            route = _Route(subscription.version, bucket, window_end(0, schedule))
            self._routes[subscription.id] = route
        return route

    def bucket(self, subscription: Subscription) -> int:
        """The bucket of the subscription's endpoint."""
        return self._route(subscription).bucket
