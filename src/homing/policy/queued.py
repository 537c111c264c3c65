"""How much of the memory for queued deliveries each tenant may take (a dynamic threshold).

A tenant may queue another delivery only while its queue is smaller than WEIGHT times the free
memory, by count and by bytes. So the queue of one tenant, however long, leaves room for the others,
and a single tenant may fill four fifths. A delivery that can start at once needs no share.

An event is in memory once, however many of its deliveries are queued: its data counts once, and a
delivery whose event is there already counts half.
"""

from __future__ import annotations

from collections.abc import Sequence

from homing.model import Event

WEIGHT = 4
FIRST, OTHER = 2, 1  # units of memory: of the first queued delivery of an event, and of the others


class Queued:
    """How many deliveries and bytes are queued, in all and by tenant."""

    def __init__(self, *, count_max: int, bytes_max: int) -> None:
        """``count_max``: of deliveries that have an event of their own."""
        self._units_max, self._bytes_max = FIRST * count_max, bytes_max
        self.count = self.bytes = self._units = 0
        self._tenants: dict[str, tuple[int, int]] = {}  # units and bytes
        self._events: dict[int, tuple[Event, int]] = {}  # with the number of queued deliveries

    def put(self, event: Event) -> Event:
        """Count a queued delivery; return the copy of its event that is in memory already."""
        units, size = OTHER, 0
        if kept := self._events.get(event.id):
            event, many = kept
            self._events[event.id] = event, many + 1
        else:
            self._events[event.id] = event, 1
            units, size = FIRST, len(event.data)
            self.bytes += size
        self.count += 1
        self._units += units
        own, total = self._tenants.get(event.tenant, (0, 0))
        self._tenants[event.tenant] = own + units, total + size
        return event

    def take(self, event: Event) -> None:
        """Count a delivery that is no longer queued."""
        self.take_all((event,))

    def take_all(self, events: Sequence[Event]) -> None:
        """Count deliveries of one tenant that are no longer queued."""
        if not events:
            return
        units, size, kept = OTHER * len(events), 0, self._events
        for event in events:
            first, many = kept.pop(event.id)
            if many > 1:
                kept[event.id] = first, many - 1
            else:
                units += FIRST - OTHER
                size += len(first.data)
        self.count -= len(events)
        self.bytes -= size
        self._units -= units
        own, total = self._tenants.pop(events[0].tenant)
        if own > units:
            self._tenants[events[0].tenant] = own - units, total - size

    @property
    def free(self) -> bool:
        """Whether there is memory for one more delivery of any tenant."""
        return self._units < self._units_max

    @property
    def room(self) -> int:
        """The free bytes, for all tenants together."""
        return max(self._bytes_max - self.bytes, 0)

    def may_queue(self, tenant: str) -> bool:
        """Whether this tenant may queue another delivery that cannot start at once."""
        units, total = self._tenants.get(tenant, (0, 0))
        return (
            units < WEIGHT * (self._units_max - self._units)
            and total < WEIGHT * (self._bytes_max - self.bytes)
        )  # fmt: skip
