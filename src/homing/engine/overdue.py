"""Finds the delivery that has been due longest although its slot was free.

Health checks ask for it often, and some callers have no key, so one call checks a bounded number of
queues and the next call continues from there. The worst queue found is checked again each time, so
the result is true at that moment. With as few queues as one call checks, the result is exact; with
more, a stuck delivery is found after one round over all.
"""

from __future__ import annotations

from homing.engine.dispatch import Dispatcher
from homing.engine.queue import LANES, EndpointQueue

EACH_TIME = 64  # queues checked by every call
MAX_AT_ONCE = 1_000  # queues checked by a call after a pause
ROUND_MS = 30_000  # in which all queues are checked, as far as the bound above allows


class OverdueSearch:
    """Remembers where the last call stopped, and the worst queue so far."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher, self._queues = dispatcher, dispatcher.queues
        self._left: list[EndpointQueue] = []  # of the round under way, in reverse
        self._worst: EndpointQueue | None = None
        self._asked_at = 0
        self._longest: EndpointQueue | None = None
        self.due_at: int | None = None  # of the oldest due delivery found, with or without a slot

    def oldest(self, *, now: int) -> int | None:
        """Since when the worst queue found has had something due; None if there is none."""
        count = self._count(now)
        if count >= len(self._queues):
            self._left = list(self._queues.values())
        checked = self._next(count)
        if self._worst is not None:
            checked.append(self._worst)
        if self._longest is not None:
            checked.append(self._longest)
        oldest, self._worst, self.due_at, self._longest = None, None, None, None
        for queue in checked:
            if self._queues.get(queue.endpoint.id) is not queue:
                continue  # The queue was forgotten meanwhile.
            since = _due_since(queue, self._dispatcher, now)
            if since is not None and (oldest is None or since < oldest):
                oldest, self._worst = since, queue
            due_at = _first_due(queue, now)
            if due_at is not None and (self.due_at is None or due_at < self.due_at):
                self.due_at, self._longest = due_at, queue
        return oldest

    def _count(self, now: int) -> int:
        passed_ms, self._asked_at = max(now - self._asked_at, 0), now
        share = len(self._queues) * passed_ms // ROUND_MS
        return min(max(share, EACH_TIME), MAX_AT_ONCE)

    def _next(self, count: int) -> list[EndpointQueue]:
        if not self._left:
            self._left = list(self._queues.values())
        taken = self._left[-count:]
        del self._left[-count:]
        return taken


def _due_since(queue: EndpointQueue, dispatcher: Dispatcher, now: int) -> int | None:
    """Since when a delivery of this queue could have been sent, and was not."""
    if dispatcher.paused or not queue.enabled or now < queue.endpoint.hold_until:
        return None
    times = [
        since
        for lane in LANES
        if dispatcher.capacity.may_start(queue, lane)
        and (since := queue.due_since(lane, now)) is not None
    ]
    if not times:
        return None
    floor = max(queue.endpoint.hold_until, queue.endpoint.health.enabled_since)
    return max(min(times), floor)


def _first_due(queue: EndpointQueue, now: int) -> int | None:
    """When the first due delivery of an enabled queue was due, even if no slot is free."""
    if not queue.enabled or queue.suspended or now < queue.endpoint.hold_until:
        return None
    times = [queued[0].delivery.due_at for lane in LANES if (queued := queue.queued(lane))]
    if queue.next_due is not None:
        times.append(queue.next_due)
    first = min(times, default=None)
    if first is None or first > now:
        return None
    return max(first, queue.endpoint.hold_until, queue.endpoint.health.enabled_since)
