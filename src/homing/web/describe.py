"""What people want to know: why a delivery is where it is, and why an event went nowhere else."""

from __future__ import annotations

from functools import partial

from msgspec import Struct

from homing.model import Attempt, Endpoint, Event, Status, Subscription
from homing.policy.explain import Facts, explain
from homing.policy.retry import remaining
from homing.policy.wants import why_unmatched
from homing.ports import DeliveryRow
from homing.web.options import Parts
from homing.web.query import LIMIT_MOST


class Described(Struct, frozen=True):
    """A delivery with its explanation, its attempts and the retries ahead."""

    row: DeliveryRow
    explanation: str
    attempts: list[Attempt]
    ahead: tuple[tuple[int, int], ...]  # retry n, due at
    endpoint: Endpoint | None
    subscription: Subscription | None  # also a deleted one


async def describe(parts: Parts, row: DeliveryRow, *, now: int) -> Described:
    """All there is to say of it now."""
    views, engine, delivery = parts.views, parts.engine, row.delivery
    attempts = await views.attempts(delivery.id)
    endpoint = await views.endpoint(delivery.endpoint_id)
    subscription = await views.subscription(delivery.subscription_id)
    schedule = engine.schedule_of(subscription, tenant=delivery.tenant)
    facts = Facts(
        status=row.status,
        reason=row.reason,
        finished_at=row.finished_at,
        arrived=row.arrived,
        delivery=delivery,
        endpoint=endpoint,
        in_flight=engine.in_flight(delivery.id, delivery.endpoint_id),
        schedule=schedule,
        rules=engine.rules_of(delivery.tenant),
        rated=engine.is_rated(subscription),
    )
    ahead = remaining(delivery, schedule) if row.status is Status.PENDING else ()
    return Described(
        row=row,
        explanation=explain(facts, now=now),
        attempts=attempts,
        ahead=tuple(ahead),
        endpoint=endpoint,
        subscription=subscription,
    )


async def unmatched(
    parts: Parts, event: Event, rows: list[DeliveryRow], *, now: int
) -> tuple[list[tuple[Subscription, str]], bool]:
    """Why the newest subscriptions of its tenant do not get this event; whether there are more.

    ``rows`` are its deliveries, more than LIMIT_MOST of them where some are left out.
    """
    found, after = await parts.views.subscriptions(
        tenant=event.tenant, before_id=None, limit=LIMIT_MOST
    )
    reached = {row.delivery.subscription_id for row in rows}
    others = [one for one in found if one.id not in reached]
    if not others:
        return [], after is not None
    slices = parts.slices
    reading = await slices.read(event.data)
    told: list[tuple[Subscription, str]] = []
    for one in others:
        ask = partial(why_unmatched, one, event, reading, now=now)
        reason = await slices.ask(reading, ask)
        if reason is None and len(rows) > LIMIT_MOST:
            continue  # It is among the deliveries that are not shown.
        told.append(
            (one, reason or "The event is about its endpoint: such a one never goes there.")
        )
    return told, after is not None
