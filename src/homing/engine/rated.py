"""Deliveries that wait for a rate: a lane waits in the store, or one subscription in memory."""

from __future__ import annotations

from collections.abc import Callable

from homing.engine.core import Core
from homing.engine.decide import Ended, Later, Stray
from homing.engine.pace import Pace, Pacer
from homing.engine.shelf import Shelf
from homing.engine.station import Station
from homing.model import Lane, Work

FAST_US = 100_000  # between turns: so fast that a few rows are kept in memory for the next ones
ASIDE_MAX = 256  # deliveries of one endpoint that wait in memory while others of it go on …
LATER_MIN_MS, LATER_MAX_MS = 60_000, 3_600_000  # … and how long those beyond wait in the store


class Rated(Shelf):
    """The paces, and what waits for them."""

    on_unsendable: Callable[[Stray | Ended | Later], None]  # set by the engine

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._catalog = core.catalog
        self._pacer = Pacer(core.options.host_rate_per_second, rate_of=core.catalog.rate_of)

    def _wait_for(self, pace: Pace, station: Station, work: Work, lane: Lane, now: int) -> None:
        """Its subscription, or its host, takes no more now: it waits for the next turn.

        Nothing is written: the lane waits, and its rows stay in the store. Where others share the
        endpoint only this subscription waits, a bounded number in memory; what is beyond that gets
        a later due time, so that the rows behind it can be read.
        """
        delivery, waits = work.delivery, (station, lane)
        if isinstance(pace.key, str) or self._waits_as_a_lane(delivery.endpoint_id):
            station.put_first(lane, work)
            self._put(work)
            station.rated.add(lane)
            fast = pace.interval_us < FAST_US
            self._taken_off(station.keep_first(lane, station.ramp.slots if fast else 0))
            self._pacer.wait(pace, waits, now)
        elif station.aside_count < ASIDE_MAX and self._queued.may_queue(delivery.tenant):
            station.set_aside(pace.key, lane, work)
            self._put(work)
            self._aside += 1
            self._pacer.wait(pace, waits, now)
        else:
            station.in_flight[delivery.id] = lane
            wait_ms = min(max(ASIDE_MAX * pace.interval_us // 1000, LATER_MIN_MS), LATER_MAX_MS)
            self.on_unsendable(Later(delivery, now + wait_ms, self._epoch(delivery)))

    def _waits_as_a_lane(self, endpoint_id: int) -> bool:
        """Whether all that is behind a delivery at this endpoint waits for the same rate."""
        return self._catalog.is_alone_at(endpoint_id)

    def _shared_now(self, station: Station) -> None:
        """Where another subscription shares the endpoint by now, no lane waits for one of them."""
        if not (self._pacer.host_rate or self._waits_as_a_lane(station.endpoint.id)):
            station.rated.clear()

    def _call(self, pace: Pace, station: Station, lane: Lane, now: int) -> None:
        """Its turn has come."""
        station.rated.discard(lane)
        if self.stations.get(station.endpoint.id) is not station:
            return
        if station.aside and not isinstance(pace.key, str):
            aside = station.aside_count
            count = 1 if self._catalog.rate_of(pace.key) else aside
            station.take_back(pace.key, lane, count)
            self._aside -= aside - station.aside_count
            if (pace.key, lane) in station.aside:
                self._pacer.stay(pace, (station, lane), now)
        self.look(station)
