"""Looks, while faults are on, for what could go and does not: due, nothing in its way, and waiting.

It is lenient: a minute after any trouble of the store, of the process or of the network it says
nothing, and nothing of an endpoint that has anything on its way. What is left would wait for a
wake-up that never comes.
"""

from __future__ import annotations

import asyncio

from simulation.faults import Faults
from simulation.health_model import DeliveryModel, EndpointModel
from simulation.machine import Machine
from simulation.reference import Reference

LOOKS = 150  # in one run
LATE_MS = 60_000
CALM_MS = 90_000  # without trouble before a look says anything


class Overdue:
    """Looks now and then, until it is over."""

    def __init__(self, world: Machine, reference: Reference, faults: Faults) -> None:
        self._world, self._reference, self._faults = world, reference, faults
        self._fired, self._calm_since = 0, 0
        self.over = False

    async def look(self) -> None:
        step_s = max(self._reference.mix.run_for_ms / 1000 / LOOKS, CALM_MS / 3000)
        while not self.over:
            await asyncio.sleep(step_s)
            self._look()

    def _look(self) -> None:
        reference, now = self._reference, self._reference.clock()
        troubles = sum(self._faults.fired[it] for it in self._faults.fired if is_sender_fault(it))
        if troubles != self._fired or not self._world.up or self._faults.store_down:
            self._fired, self._calm_since = troubles, now
        if now - self._calm_since < CALM_MS or not self._said_much():
            return
        busy = {it.endpoint_id for it in reference.flights.values()}
        for endpoint in reference.endpoints.values():
            if endpoint.id not in busy and self._free(endpoint) and self._open(endpoint, now):
                late = [
                    it
                    for it in reference.waiting.get(endpoint.id, {}).values()
                    if _late(reference, it, now)
                ]
                reference.must(
                    not late,
                    "L5",
                    lambda it=endpoint, of=late: f"{it.url} is free, and {len(of)} wait",  # type: ignore[misc]
                )

    def _said_much(self) -> bool:
        """Slots are free, and there is room for every endpoint; there is surely no outage."""
        reference, options = self._reference, self._reference.mix.options
        flying = len(reference.flights)
        room = options.queues_max > len(reference.endpoints) and not reference.mix.cuts
        return room and flying < min(options.fresh_slots, options.retry_slots)

    def _free(self, endpoint: EndpointModel) -> bool:
        """Its tenant has less in flight than its share, whatever its endpoints are like."""
        reference, options = self._reference, self._reference.mix.options
        slots = min(options.fresh_slots, options.retry_slots)
        tenants = [reference.endpoints[it.endpoint_id].tenant for it in reference.flights.values()]
        mine = tenants.count(endpoint.tenant)
        return not mine or mine < 2 * (slots - len(tenants) - max(1, slots // 16))

    def _open(self, endpoint: EndpointModel, now: int) -> bool:
        return is_open(self._reference, endpoint, now, since_ms=LATE_MS)


def is_open(reference: Reference, endpoint: EndpointModel, now: int, *, since_ms: int) -> bool:
    """Whether nothing has stood in its way for so long, and the engine knows it."""
    known = reference.first.known.get(endpoint.id)
    free = endpoint.state == "enabled" and now >= endpoint.hold_until + since_ms
    told = known is not None and known.state == "enabled" and endpoint.id not in reference.unsure
    return free and told and now >= endpoint.enabled_since + since_ms


def _late(reference: Reference, delivery: DeliveryModel, now: int) -> bool:
    late = reference.due_of(delivery, now) + LATE_MS < now
    return late and delivery.sender_errors == 0 and not delivery.moved and not delivery.blocked


def is_sender_fault(kind: str) -> bool:
    """Whether this kind of fault is one of the store, of the process or of the network."""
    return not kind.startswith(("receiver_", "publish_", "person_", "tenant_"))
