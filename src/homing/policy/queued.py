"""How much of the memory for queued deliveries each tenant may take (a dynamic threshold).

A tenant may queue another delivery only while its queue is smaller than WEIGHT times the free
memory, by count and by bytes. So the queue of one tenant, however long, leaves room for the others,
and a single tenant may fill four fifths. A delivery that can start at once needs no share.

The data of an event is in memory once, however many of its deliveries are queued, and counts once.
"""

from __future__ import annotations

from collections.abc import Sequence

from homing.model import Event

WEIGHT = 4


class Queued:
    """How many deliveries and bytes are queued, in all and by tenant."""

    def __init__(self, *, count_max: int, bytes_max: int) -> None:
        self._count_max, self._bytes_max = count_max, bytes_max
        self.count = self.bytes = 0
        self._tenants: dict[str, tuple[int, int]] = {}
        self._events: dict[int, tuple[Event, int]] = {}  # with the number of queued deliveries

    def put(self, event: Event) -> Event:
        """Count a delivery that is queued; return the copy of its event that is in memory."""
        size = 0
        if kept := self._events.get(event.id):
            event, many = kept
            self._events[event.id] = event, many + 1
        else:
            self._events[event.id] = event, 1
            size = len(event.data)
            self.bytes += size
        self.count += 1
        count, total = self._tenants.get(event.tenant, (0, 0))
        self._tenants[event.tenant] = count + 1, total + size
        return event

    def take(self, event: Event) -> None:
        """Count a delivery that is no longer queued."""
        event, many = self._events.pop(event.id)
        size = 0
        if many > 1:
            self._events[event.id] = event, many - 1
        else:
            size = len(event.data)
            self.bytes -= size
        self.count -= 1
        count, total = self._tenants[event.tenant]
        if count > 1:
            self._tenants[event.tenant] = count - 1, total - size
        else:
            del self._tenants[event.tenant]

    def take_all(self, events: Sequence[Event]) -> None:
        """The same for many deliveries of one tenant, in less time."""
        if not events:
            return
        size, kept = 0, self._events
        for event in events:
            first, many = kept.pop(event.id)
            if many > 1:
                kept[event.id] = first, many - 1
            else:
                size += len(first.data)
        self.count -= len(events)
        self.bytes -= size
        count, total = self._tenants.pop(events[0].tenant)
        if count > len(events):
            self._tenants[events[0].tenant] = count - len(events), total - size

    @property
    def room(self) -> int:
        """The free bytes, for all tenants together."""
        return max(self._bytes_max - self.bytes, 0)

    def may_queue(self, tenant: str) -> bool:
        """Whether this tenant may queue another delivery that cannot start at once."""
        count, total = self._tenants.get(tenant, (0, 0))
        return (
            count < WEIGHT * (self._count_max - self.count)
            and total < WEIGHT * (self._bytes_max - self.bytes)
        )  # fmt: skip
