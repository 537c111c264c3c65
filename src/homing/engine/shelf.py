"""What the dispatcher has in memory: counted, taken off again, and handed over by bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from homing.engine.held import Held
from homing.engine.options import EngineOptions
from homing.engine.station import LANES, Station
from homing.model import Delivery, Lane, State, Work
from homing.policy.turns import Turns

UNSETTLED_MOST = 4_000  # so many outcomes may wait to be written before nothing new starts
_ENABLED = State.ENABLED  # Python 3.11 looks up a member of an enum slowly.


class Shelf:
    """Stations and what stands in their queues."""

    def __init__(self, options: EngineOptions, held: Held) -> None:
        self._options, self._held, self._mine = options, held, held.mine
        self.stations: dict[int, Station] = {}
        self.ready_count = self.ready_bytes = 0
        self.slots = {Lane.FRESH: options.fresh_slots, Lane.RETRY: options.retry_slots}
        self.flying = {Lane.FRESH: 0, Lane.RETRY: 0}
        self.shut = False  # the gate is closed: only canaries start
        self.airborne = 0  # attempts made and not yet settled, probes included
        self._airborne_most = UNSETTLED_MOST + options.fresh_slots + options.retry_slots
        self._read_upto = 0  # by any station: one that was forgotten may have read so far
        self._turns: dict[Lane, Turns[Station]] = {lane: Turns() for lane in LANES}

    def look(self, station: Station) -> None:
        """Put a station where it belongs now."""
        raise NotImplementedError

    def _count(self, work: Work, sign: int) -> None:
        self.ready_count += sign
        self.ready_bytes += sign * len(work.event.data)

    def _takes_fresh(self, station: Station, delivery: Delivery) -> bool:
        health = station.endpoint.health
        return (
            not station.more_fresh  # else it would overtake what is in the store
            and not station.loading
            and delivery.id > station.read_upto  # else a load may have brought it already
            and health.state is _ENABLED
            and delivery.accepted_at >= health.enabled_since
            and delivery.accepted_at >= station.endpoint.hold_until
            and self.ready_count < self._options.ready_max
            and (self._room() > 0 or self._goes_at_once(station))
        )

    def _goes_at_once(self, station: Station) -> bool:
        return station.gap(Lane.FRESH) > 0 and Lane.FRESH in self._lanes()

    def _epoch(self, delivery: Delivery) -> int:
        return self._held.epochs[delivery.bucket]

    def _room(self) -> int:
        """For queues: half of the memory. The other half is for what can go at once.

        So a slow endpoint's queue of large events keeps nobody else from being read.
        """
        return self._options.ready_bytes_max // 2 - self.ready_bytes

    def _lanes(self) -> tuple[Lane, ...]:
        """Those for which rows may be read: while queues are full, only what can go at once."""
        if self._room() > 0:
            return LANES
        full = self.ready_bytes >= self._options.ready_bytes_max
        read = LANES if not full else () if self.shut else (Lane.FRESH,)
        return tuple(lane for lane in read if self.has_slot(lane))

    def has_slot(self, lane: Lane) -> bool:
        return self.flying[lane] < self.slots[lane] and self.airborne < self._airborne_most

    # --- what is no longer there -------------------------------------------------------------

    def forget_subscription(self, subscription_id: int, endpoint_id: int) -> None:
        """Take its deliveries off the queue: they move, or are cancelled, in the store."""
        station = self.stations.get(endpoint_id)
        if station is None:
            return
        station.stale = station.loading
        for lane in LANES:
            gone = self._filter(
                station, lane, lambda work: work.delivery.subscription_id != subscription_id
            )
            for work in gone:  # Those that stay after all are read again.
                station.left_in_store(work.delivery)
        self.look(station)

    def forget_delivery(self, delivery_id: int, endpoint_id: int) -> None:
        """It was cancelled in the store."""
        station = self.stations.get(endpoint_id)
        if station is None:
            return
        if station.loading:
            station.settled_meanwhile.add(delivery_id)
        for lane in LANES:
            self._filter(station, lane, lambda work: work.delivery.id != delivery_id)
        self.look(station)

    def _filter(self, station: Station, lane: Lane, keep: Callable[[Work], bool]) -> list[Work]:
        """Take off the queue what is not to be kept."""
        gone = station.take_off(lane, keep)
        for work in gone:
            self._count(work, -1)
        return gone

    # --- what other processes do -------------------------------------------------------------

    def arrived(self, endpoint_id: int, *, now: int) -> bool:
        """Another process has published for this endpoint; False: it is not known here yet.

        One that is held back already knows that the store has something for it: nothing is read.
        """
        station = self.stations.get(endpoint_id)
        if station is None:
            return False
        station.more_fresh = True
        station.due_later(now)
        station.expire_at = min(station.expire_at, now + self._options.window_min_ms)
        self.look(station)
        return True

    def unqueue(self, station: Station) -> None:
        """Something in the store was changed by another process: what is queued is read again."""
        station.stale = station.loading
        for work in station.put_back():
            self._count(work, -1)
        self.look(station)

    def in_buckets(self, buckets: Iterable[int]) -> list[Station]:
        wanted = set(buckets)
        return [it for it in self.stations.values() if it.endpoint.bucket in wanted]

    def close(self, buckets: Iterable[int]) -> None:
        """Nothing new starts there; what is in flight is still settled."""
        for station in self.in_buckets(buckets):
            self.unqueue(station)
            station.closed = True
            for lane in LANES:
                self._turns[lane].discard(station.endpoint.tenant, station)

    def reopen(self, buckets: Iterable[int]) -> None:
        """They stay here after all."""
        for station in self.in_buckets(buckets):
            station.closed = False
            self.look(station)

    def busy(self, buckets: Iterable[int]) -> set[int]:
        """Of these the ones where something is in flight or under way."""
        return {
            it.endpoint.bucket
            for it in self.in_buckets(buckets)
            if it.in_flight or it.probing or it.sweeping
        }

    def drop(self, buckets: Iterable[int]) -> None:
        """They are another's: forget them. What is still in flight comes down by itself."""
        buckets = set(buckets)
        self.close(buckets)
        for station in self.in_buckets(buckets):
            del self.stations[station.endpoint.id]
