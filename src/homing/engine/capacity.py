"""The limits of a dispatcher: slots by lane, attempts in flight, and memory for queues."""

from __future__ import annotations

import asyncio

from homing.engine.options import EngineOptions
from homing.engine.queue import LANES, EndpointQueue
from homing.model import Lane
from homing.policy.queued import Queued
from homing.policy.slots import LaneSlots

UNSETTLED_MAX = 4_000  # outcomes that wait to be written: with more, nothing new starts


class Capacity:
    """The limits of one dispatcher, and how much of them is used."""

    def __init__(self, options: EngineOptions) -> None:
        # Queues get half of the memory. The other half is for deliveries that can start at once,
        # so that a slow endpoint's queue of large events does not stop reads for other endpoints.
        self.memory = Queued(count_max=options.ready_max, bytes_max=options.ready_bytes_max // 2)
        self._bytes_max = options.ready_bytes_max
        self.slots = {Lane.FRESH: options.fresh_slots, Lane.RETRY: options.retry_slots}
        self.turns: dict[Lane, LaneSlots[EndpointQueue]] = {
            lane: LaneSlots(slots) for lane, slots in self.slots.items()
        }
        self.in_flight = 0  # attempts made and not yet settled, probes included
        self._in_flight_max = UNSETTLED_MAX + options.fresh_slots + options.retry_slots
        self._drained = asyncio.Event()
        self.outage = False  # of the sender: only canaries start

    # --- attempts ----------------------------------------------------------------------------

    def begin_attempt(self) -> None:
        self.in_flight += 1

    def end_attempts(self, count: int) -> None:
        self.in_flight -= count
        if not self.in_flight:
            self._drained.set()

    async def drained(self) -> None:
        """Wait until no attempt is in flight; for a dispatcher that starts nothing new."""
        while self.in_flight:
            self._drained.clear()
            await self._drained.wait()

    def begin_outage(self) -> None:
        self.outage = True

    def end_outage(self) -> None:
        self.outage = False

    def has_slot(self, lane: Lane) -> bool:
        turns = self.turns[lane]
        return turns.held < turns.slots and self.in_flight < self._in_flight_max

    def may_start(self, queue: EndpointQueue, lane: Lane) -> bool:
        """Whether a slot is free that the tenant of this endpoint may take."""
        return self.turns[lane].may_take(queue.endpoint.tenant, queue.rank)

    @property
    def slots_taken(self) -> dict[Lane, int]:
        return {lane: turns.held for lane, turns in self.turns.items()}

    # --- memory ------------------------------------------------------------------------------

    def may_add(self, queue: EndpointQueue) -> bool:
        """Whether one more first attempt of this endpoint may be queued."""
        memory = self.memory
        return memory.free and (
            memory.may_queue(queue.endpoint.tenant)
            or (Lane.FRESH in self.lanes_to_read() and self.goes_at_once(queue, Lane.FRESH))
        )

    def may_queue(self, queue: EndpointQueue) -> bool:
        return self.memory.may_queue(queue.endpoint.tenant)

    def goes_at_once(self, queue: EndpointQueue, lane: Lane) -> bool:
        """Whether a row that is read for this endpoint would start with the next free slot."""
        tenant, rank = queue.endpoint.tenant, queue.rank
        return queue.gap(lane) > 0 and self.turns[lane].at_once(tenant, rank)

    def lanes_to_read(self) -> tuple[Lane, ...]:
        """The lanes that may be read: while queues are full, only for rows that can go at once."""
        if self.memory.room > 0:
            return LANES
        full = self.memory.bytes >= self._bytes_max
        read = LANES if not full else () if self.outage else (Lane.FRESH,)
        return tuple(lane for lane in read if self.has_slot(lane))
