"""Part i: what it costs to find the subscriptions of an event, in microseconds."""

from __future__ import annotations

import time
from statistics import median

from homing.model import Format, Subscription
from homing.policy.match import Index

TENANT = "default"
TYPE = "shop.order.paid"
_CALLS_MATCHES = 50_000  # calls × subscriptions found, about, in one repetition
_REPETITIONS = 7


def _subscription(number: int, types: tuple[str, ...]) -> Subscription:
    return Subscription(
        id=number,
        tenant=TENANT,
        endpoint_id=number,
        url=f"https://receiver-{number}.example/in",
        types=types,
        format=Format.STANDARD,
        secrets=(),
        created_at=0,
        updated_at=0,
        version=0,
    )


def _index(count: int, *, all_match: bool) -> Index:
    """One subscription to the type itself; the others to the same, or to all sorts of others."""
    index = Index()
    index.add(_subscription(0, (TYPE,)))
    for number in range(1, count):
        other = (f"shop.order.t{number}", f"shop{number}.*")[number % 2]
        index.add(_subscription(number, (TYPE if all_match else other,)))
    return index


def _cost_us(index: Index, found: int) -> float:
    calls = max(_CALLS_MATCHES // found, 10)
    costs = []
    for _ in range(_REPETITIONS):
        began = time.perf_counter()
        for _ in range(calls):
            matches = index.match(TENANT, TYPE)
        costs.append((time.perf_counter() - began) / calls * 1e6)
        assert len(matches) == found
    return median(costs)


def measure() -> dict[str, float]:
    """For 1, 100 and 10,000 subscriptions, of which one matches or all do."""
    costs = {}
    for count in (1, 100, 10_000):
        costs[f"{count} subscriptions, 1 matches"] = _cost_us(_index(count, all_match=False), 1)
        if count > 1:
            all_match = _index(count, all_match=True)
            costs[f"{count} subscriptions, all match"] = _cost_us(all_match, count)
    return costs
