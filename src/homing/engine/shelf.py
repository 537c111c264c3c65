"""What the dispatcher has in memory: counted, taken off again, and handed over by bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from homing.engine.core import Core
from homing.engine.station import LANES, Station
from homing.engine.station_counts import StationCounts
from homing.model import Delivery, Endpoint, Lane, State, Work
from homing.policy.queued import Queued
from homing.policy.slots import LaneSlots

UNSETTLED_MOST = 4_000  # so many outcomes may wait to be written before nothing new starts
_ENABLED = State.ENABLED  # Python 3.11 looks up a member of an enum slowly.


class Shelf:
    """Stations and what stands in their queues."""

    read_again: Callable[[int], None]  # its row was changed by somebody else

    def __init__(self, core: Core) -> None:
        self._options, self._clock = core.options, core.clock
        self._held, self._mine = core.held, core.held.mine
        self.stations: dict[int, Station] = {}
        self.counts = StationCounts()
        # For queues: half of the memory. The other half is for what can go at once.
        # So a slow endpoint's queue of large events keeps nobody else from being read.
        self._queued = Queued(
            count_max=core.options.ready_max, bytes_max=core.options.ready_bytes_max // 2
        )
        self.slots = {Lane.FRESH: core.options.fresh_slots, Lane.RETRY: core.options.retry_slots}
        self._turns: dict[Lane, LaneSlots[Station]] = {
            lane: LaneSlots(slots) for lane, slots in self.slots.items()
        }
        self._aside = 0
        self.shut = False  # the gate is closed: only canaries start
        self.airborne = 0  # attempts made and not yet settled, probes included
        self._airborne_most = UNSETTLED_MOST + core.options.fresh_slots + core.options.retry_slots
        self._read_upto = 0  # by any station: one that was forgotten may have read so far
        # Set by the gate: a station has come from the store; an endpoint is another process's.
        self.on_station: Callable[[Station], None] = lambda _: None
        self.on_gone: Callable[[int], None] = lambda _: None

    def look(self, station: Station) -> None:
        """Put a station where it belongs now."""
        raise NotImplementedError

    def _add_station(self, endpoint: Endpoint) -> Station:
        station = Station(endpoint, counts=self.counts, read_upto=self._read_upto)
        self.stations[endpoint.id] = station
        self.on_station(station)
        return station

    def _forget_station(self, endpoint_id: int) -> None:
        station = self.stations.pop(endpoint_id, None)
        if station is not None:
            station.forgotten()

    def in_store(self, delivery: Delivery) -> None:
        """The store has this delivery, and it is not here."""
        station = self.stations.get(delivery.endpoint_id)
        if not self._mine[delivery.bucket]:
            self._held.work_abroad(delivery.bucket, delivery.endpoint_id)
        elif station is None:
            self.read_again(delivery.endpoint_id)
        else:
            station.left_in_store(delivery)
            self.look(station)

    def all_in_store(self, endpoint_id: int) -> None:
        """The store may have deliveries for this endpoint that were never here: they moved, say."""
        station = self.stations.get(endpoint_id)
        if station is None:
            self.read_again(endpoint_id)
            return
        station.more_fresh, station.expire_at = True, 0
        station.due_later(self._clock.now())
        self.look(station)

    @property
    def ready_count(self) -> int:
        """Deliveries in the queues, without those set aside until their rate lets them go."""
        return self._queued.count - self._aside

    @property
    def ready_bytes(self) -> int:
        """The event data in the queues."""
        return self._queued.bytes

    @property
    def flying(self) -> dict[Lane, int]:
        """The slots that are taken, by lane."""
        return {lane: turns.held for lane, turns in self._turns.items()}

    def _put(self, work: Work) -> None:
        """It is in a queue."""
        self._queued.put(work.delivery.tenant, len(work.event.data))

    def _taken_off(self, works: Iterable[Work]) -> None:
        """They are in a queue no longer."""
        for work in works:
            self._queued.take(work.delivery.tenant, len(work.event.data))

    def _takes_fresh(self, station: Station, delivery: Delivery) -> bool:
        health = station.endpoint.health
        return (
            not station.more_fresh  # else it would overtake what is in the store
            and not station.rated  # what waits for a rate waits in the store
            and not station.loading
            and delivery.id > station.read_upto  # else a load may have brought it already
            and health.state is _ENABLED
            and delivery.accepted_at >= health.enabled_since
            and delivery.accepted_at >= station.endpoint.hold_until
            and self._queued.count < self._options.ready_max
            and (
                self._queued.may_queue(delivery.tenant)
                or (Lane.FRESH in self._lanes() and self._goes_at_once(station, Lane.FRESH))
            )
        )

    def _goes_at_once(self, station: Station, lane: Lane) -> bool:
        """Whether what is read for this station would start with the next free slot."""
        tenant, rank = station.endpoint.tenant, station.rank
        return station.gap(lane) > 0 and self._turns[lane].at_once(tenant, rank)

    def _may_queue(self, station: Station) -> bool:
        return self._queued.may_queue(station.endpoint.tenant)

    def _epoch(self, delivery: Delivery) -> int:
        return self._held.epochs[delivery.bucket]

    def _room(self) -> int:
        """The bytes that are left for queues."""
        return self._queued.room

    def _lanes(self) -> tuple[Lane, ...]:
        """Those for which rows may be read: while queues are full, only what can go at once."""
        if self._room() > 0:
            return LANES
        full = self.ready_bytes >= self._options.ready_bytes_max
        read = LANES if not full else () if self.shut else (Lane.FRESH,)
        return tuple(lane for lane in read if self.has_slot(lane))

    def has_slot(self, lane: Lane) -> bool:
        return self._turns[lane].free > 0 and self.airborne < self._airborne_most

    def _loaded(self, station: Station, fresh: Sequence[Work], retry: Sequence[Work]) -> None:
        """Rows have come, of which none is here already: they go into the queues."""
        station.read_upto = max([station.read_upto, *(it.delivery.id for it in fresh)])
        self._read_upto = max(self._read_upto, station.read_upto)
        if station.closed:
            return
        if station.enabled:
            for put, works in ((station.fresh.append, fresh), (station.put_due, retry)):
                for work in works:
                    put(work)
                    self._put(work)
        elif fresh or retry:
            station.more_fresh = True
            station.due_later(self._clock.now())
        self.look(station)

    def may_start(self, station: Station, lane: Lane) -> bool:
        """Whether a slot is free that its tenant may take."""
        return self._turns[lane].may_take(station.endpoint.tenant, station.rank)

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
        aside = station.aside_count
        gone = station.take_off(lane, keep)
        self._aside -= aside - station.aside_count
        self._taken_off(gone)
        return gone

    def _put_back(self, station: Station) -> None:
        """What is queued for it stays in the store, and will be read again."""
        self._aside -= station.aside_count
        self._taken_off(station.put_back())

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
        self._put_back(station)
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
                self._turns[lane].discard(station)

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
            self._forget_station(station.endpoint.id)
            self.on_gone(station.endpoint.id)
