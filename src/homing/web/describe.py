"""A delivery as people want to know it: why it is where it is, what was tried, what is ahead."""

from __future__ import annotations

from msgspec import Struct

from homing.model import Attempt, Endpoint, Status, Subscription
from homing.policy.explain import Facts, explain
from homing.policy.retry import remaining
from homing.ports import DeliveryRow
from homing.web.options import Parts


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
        in_flight=engine.in_flight(delivery.id),
        schedule=schedule,
        rules=engine.rules_of(delivery.tenant),
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
