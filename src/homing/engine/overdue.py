"""Finds the delivery that has been due for longest although its slot was free.

Health checks ask for it often, and some of those who ask have no key, so one question looks at a
bounded number of stations and the next goes on from there. The worst station found is looked at
again each time: what is reported is true at that moment. With as few stations as one question
looks at, the answer is exact; with more, something stuck is found after one round over all.
"""

from __future__ import annotations

from homing.engine.dispatch import Dispatcher
from homing.engine.station import LANES, Station
from homing.model import Lane

EACH_TIME = 64  # stations looked at for every question
MOST_AT_ONCE = 1_000  # where nobody has asked for a while
ROUND_MS = 30_000  # in which all stations are looked at, as far as the bound above allows


class OverdueSearch:
    """Remembers where the last question stopped, and the worst station so far."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher, self._stations = dispatcher, dispatcher.stations
        self._left: list[Station] = []  # of the round under way, in reverse
        self._worst: Station | None = None
        self._asked_at = 0

    def oldest(self, *, now: int) -> int | None:
        """Since when the worst station found has had something due; None if there is none."""
        count = self._count(now)
        if count >= len(self._stations):
            self._left = list(self._stations.values())
        looked_at = self._next(count)
        if self._worst is not None:
            looked_at.append(self._worst)
        oldest, self._worst = None, None
        for station in looked_at:
            if self._stations.get(station.endpoint.id) is not station:
                continue  # It was forgotten meanwhile.
            since = _due_since(station, self._dispatcher, now)
            if since is not None and (oldest is None or since < oldest):
                oldest, self._worst = since, station
        return oldest

    def _count(self, now: int) -> int:
        passed_ms, self._asked_at = max(now - self._asked_at, 0), now
        share = len(self._stations) * passed_ms // ROUND_MS
        return min(max(share, EACH_TIME), MOST_AT_ONCE)

    def _next(self, count: int) -> list[Station]:
        if not self._left:
            self._left = list(self._stations.values())
        taken = self._left[-count:]
        del self._left[-count:]
        return taken


def _due_since(station: Station, dispatcher: Dispatcher, now: int) -> int | None:
    """Since when something of this station could have gone, and has not."""
    if dispatcher.paused or not station.enabled or now < station.endpoint.hold_until:
        return None
    times: list[int] = []
    for lane in LANES:
        free = (
            lane not in station.rated
            and dispatcher.may_start(station, lane)
            and station.flying[lane] < station.ramp.slots
        )
        if not free:
            continue
        queue = station.queue(lane)
        if queue:
            times.append(queue[0].delivery.due_at)
        elif lane is Lane.RETRY and station.next_due is not None and station.next_due <= now:
            times.append(station.next_due)
    if not times:
        return None
    floor = max(station.endpoint.hold_until, station.endpoint.health.enabled_since)
    return max(min(times), floor)
