"""Chooses what goes next: endpoints by time in a heap, tenants and endpoints by turns in each lane.

The heap holds endpoints, never deliveries: a million held back behind one URL are one entry.
Rows come from the store for many endpoints in one statement, a few for each. A slot is taken when
an attempt starts. A success gives it back at once; any other outcome when it is settled, so that
what it decided (disabled, held, one slot again) is known before the next attempt begins.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable

import structlog
from msgspec.structs import replace

from homing.engine.attempt import Letters, Made
from homing.engine.core import Core
from homing.engine.decide import REPORT_EVERY_MS, Ended, Stray
from homing.engine.load import Loader
from homing.engine.rated import Rated
from homing.engine.station import LANES, Station, within_reach
from homing.model import (
    Endpoint,
    Failure,
    Lane,
    Outcome,
    Phases,
    Reason,
    Status,
    Subscription,
    Work,
    show_id,
)
from homing.policy.health import Ramp
from homing.policy.outcome import judge
from homing.policy.slots import TRUSTED
from homing.ports import Answer, EndpointStart

log = structlog.get_logger("homing.dispatch")

STARTS_COST_MAX = 256  # of the attempts that begin in one turn of the event loop
START_COST = (1, 4, 4)  # by rank: an endpoint that did not respond last has no open connection
# Python 3.11 looks up a member of an enum slowly; the hot path has these at hand.
_FRESH, _PROBE, _DELIVERED = Lane.FRESH, Lane.PROBE, Outcome.DELIVERED


class Dispatcher(Rated):
    """Stations, lanes and the heap. Everything here runs on the event loop, in small steps."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._sender = core.sender
        options = core.options
        self._loader = Loader(
            core.flow,
            core.clock,
            on_start=self.know,
            on_rows=self._loaded,
            look=self.look,
            room=self._room,
            lanes=self._lanes,
            may_queue=self._may_queue,
            goes_at_once=self._goes_at_once,
        )
        self.read_again = self._loader.endpoint  # its row was changed by somebody else
        self._letters = Letters(deadline_of=options.deadline_of)
        self._grounded = asyncio.Event()
        self.paused = False  # the store cannot settle: nothing new starts
        self.draining = False
        self._heap: list[tuple[int, int, Station]] = []
        self._tick = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._soon: asyncio.Handle | None = None
        # Set by the engine: where answers, and stations whose time has come, go.
        self.on_made: Callable[[Made], None]
        self.on_time: Callable[[Station, int], None]
        self.on_probe_ended: Callable[[str], None]
        self.may_expire: Callable[[int], bool]

    # --- what comes in ---------------------------------------------------------------------

    def know(self, start: EndpointStart) -> None:
        """Take an endpoint over as the store has it."""
        station = self.stations.get(start.endpoint.id)
        if station is None and not self._mine[start.endpoint.bucket]:
            self._held.work_abroad(start.endpoint.bucket, start.endpoint.id)
            return
        if station is None:
            rules = self._options.rules_of(start.endpoint.tenant)
            endpoint = within_reach(start.endpoint, rules, now=self._clock.now())
            station = self._add_station(endpoint)
        elif start.endpoint.generation > station.endpoint.generation:
            since = station.endpoint.health.enabled_since
            again = start.endpoint.health.enabled_since != since
            self.changed(start.endpoint, enabled=again)  # Otherwise what is here is the newer one.
        station.more_fresh = station.more_fresh or start.first
        if start.first:
            station.due_later(start.endpoint.created_at)
        if start.next_due is not None:
            station.due_later(start.next_due)
        self.look(station)

    def accept(self, works: Iterable[Work]) -> None:
        """Fresh deliveries, just committed: they go on in memory where there is room."""
        touched: dict[Station, None] = {}
        mine = self._mine
        for work in works:
            delivery = work.delivery
            if not mine[delivery.bucket]:
                self._held.work_abroad(delivery.bucket, delivery.endpoint_id)
                continue
            station = self.stations.get(delivery.endpoint_id)
            if station is None:
                self._loader.endpoint(delivery.endpoint_id)
                continue
            touched[station] = None
            if station.rated:
                self._shared_now(station)
            if self._takes_fresh(station, delivery):
                station.fresh.append(work)
                self._put(work)
            else:
                station.left_in_store(delivery)
        now = self._clock.now()
        for station in touched:
            if station.in_store or not station.ready(_FRESH, now):
                self.look(station)
            else:  # All that look would find.
                self._turns[_FRESH].add(station.endpoint.tenant, station, station.rank)
                self._pump_soon()

    def changed(self, endpoint: Endpoint, *, enabled: bool = False) -> None:
        """An endpoint's row was committed. ``enabled``: it was enabled just now."""
        self.learn(endpoint, enabled=enabled)
        station = self.stations.get(endpoint.id)
        if station is not None:
            self.look(station)

    def learn(self, endpoint: Endpoint, *, enabled: bool) -> None:
        """The same, for who looks at its station afterwards."""
        station = self.stations.get(endpoint.id)
        if station is None and not self._mine[endpoint.bucket]:
            self._held.change_abroad(endpoint.bucket, endpoint.id)
            return
        if station is None:  # Kept: what is being read of it just now may be older.
            self._add_station(endpoint)
            self.read_again(endpoint.id)
            return
        held_before = not station.enabled
        station.set_endpoint(endpoint)
        enabled = enabled or (held_before and station.enabled)
        if enabled:
            station.ramp = Ramp()
            station.more_fresh = True  # What waited is looked for again, in its new lane.
            station.due_later(self._clock.now())
        held = endpoint.hold_until > self._clock.now()  # What waits so long waits in the store.
        if enabled or held or not station.enabled:
            self._put_back(station)
            self._loader.go()  # There may be room for others now.
        if not (station.enabled or held_before):
            station.expire_at = 0

    # --- what goes out ---------------------------------------------------------------------

    def look(self, station: Station) -> None:
        """Put a station where it belongs now: lanes, hunger, heap."""
        if station.closed:
            return  # Its bucket goes to another process.
        now = self._clock.now()
        for lane in LANES:
            turns = self._turns[lane]
            if station.ready(lane, now):
                turns.add(station.endpoint.tenant, station, station.rank)
                self._pump_soon()
            elif station in turns:
                turns.discard(station)
                self._loader.again(station)
            if station.wants(lane, now):
                self._loader.rows(station, lane)
        at = station.next_time(now, report_every_ms=REPORT_EVERY_MS)
        if at != station.wake_at:
            station.wake_at = at
            if at is not None:
                self._tick += 1
                heapq.heappush(self._heap, (at, self._tick, station))
                self._set_timer()
        crowded = len(self.stations) > self._options.stations_max
        if crowded and station.idle and station.endpoint.id not in self._loader.reading:
            self._forget_station(station.endpoint.id)  # Else what is being read may be older.

    def _pump_soon(self) -> None:
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self.pump)

    def pump(self) -> None:
        """Start all that may start now."""
        self._soon = None
        self._start_ready()
        self._loader.go()  # There may be room again.

    def _start_ready(self) -> None:
        if self.paused or self.draining or self._clock.now() >= self._held.good_until:
            return
        self._wake_due()
        if self.shut:
            return
        left = STARTS_COST_MAX
        for lane in LANES:
            turns = self._turns[lane]
            while self.has_slot(lane):
                if left <= 0:
                    self._pump_soon()
                    return
                station, now = turns.next(), self._clock.now()
                if station is None or now >= self._held.good_until:
                    break  # Looked at each time: we may have been stopped on the way.
                left -= START_COST[station.rank]
                self.start(station, lane, now)
        if self._pacer.next_at is not None:
            self._set_timer()

    def start(self, station: Station, lane: Lane, now: int) -> None:
        """The next of a lane goes, or is found not to."""
        work = station.take(lane)
        delivery = work.delivery
        self._queued.take(delivery.tenant, len(work.event.data))
        subscription = self._catalog.get(delivery.subscription_id)
        if subscription is None or subscription.endpoint_id != station.endpoint.id:
            station.in_flight[delivery.id] = lane  # Known, until it is settled.
            self.on_unsendable(Stray(delivery, self._epoch(delivery)))
        elif (
            delivery.expires_at <= now
            and station.held_too_long(delivery, now)
            and self.may_expire(now)
        ):
            station.in_flight[delivery.id] = lane
            epoch = self._epoch(delivery)
            self.on_unsendable(Ended(delivery, Status.DROPPED, Reason.EXPIRED, epoch))
        elif (subscription.rate_per_second or self._pacer.host_rate) and (
            pace := self._pacer.take(subscription, (station, lane), now)
        ) is not None:
            self._wait_for(pace, station, work, lane, now)
        else:
            station.flying[lane] += 1
            rank = station.rank
            self._turns[lane].take(delivery.tenant, rank)
            self.send(station, work, lane, subscription, now, rank)
        if not station.ready(lane, now):
            self._turns[lane].discard(station)
            if station.in_store:
                self.look(station)
        self._loader.again(station)

    def send(
        self,
        station: Station,
        work: Work,
        lane: Lane,
        subscription: Subscription,
        now: int,
        rank: int = TRUSTED,
    ) -> None:
        """Make one attempt; its answer goes to ``on_made``. ``rank``: of the slot that it holds."""
        delivery = work.delivery
        number = delivery.attempts + 1
        station.in_flight[delivery.id] = lane
        self.airborne += 1
        endpoint_id, epoch = station.endpoint.id, self._held.epochs[station.endpoint.bucket]
        lines = b""

        def done(answer: Answer) -> None:
            outcome, ended = judge(answer.code, answer.failure), self._clock.now()
            if outcome is _DELIVERED and lane is not _PROBE:
                self._free(station, lane, rank)
            made = Made(
                work, endpoint_id, lane, number, now, ended, lines, answer, outcome, epoch, rank
            )
            if answer.retry_after is not None:  # It may be a date, by the wall clock of now.
                made = replace(made, wall_ahead_ms=self._clock.state().ahead_ms)
            self.on_made(made)

        try:
            letter = self._letters.of(subscription)
            wall = self._clock.wall()  # Read now: it may have been set a moment ago.
            request, lines = letter.write(work, number=number, now=now, wall=wall)
            self._sender.send(request, done)
        except Exception as error:
            log.exception("an attempt could not be made", delivery=show_id("dlv", delivery.id))
            fault = Answer(None, Failure.OUR_FAULT, type(error).__name__, None, Phases())
            asyncio.get_running_loop().call_soon(done, fault)

    def _free(self, station: Station, lane: Lane, rank: int) -> None:
        """A success decides nothing that the next attempt must know: its slot is free now."""
        station.flying[lane] -= 1
        self._turns[lane].give(station.endpoint.tenant, rank)
        self._loader.again(station)
        if station.queue(lane) or station.in_store:
            self.look(station)
        if self._soon is None and self.ready_count:
            self._pump_soon()

    def landed(self, station: Station, delivery_id: int, made: Made | None) -> None:
        """An outcome is settled: its slot is free, at the latest now."""
        station.landed(delivery_id)
        if made is None:
            return
        if made.lane is _PROBE:
            station.end_probe()
        elif made.outcome is not _DELIVERED:
            station.flying[made.lane] -= 1
        self.down(made)

    def down(self, made: Made) -> None:
        """One attempt less is in the air; it may belong to a bucket that is no longer ours."""
        self.airborne -= 1
        if not self.airborne:
            self._grounded.set()
        if made.lane is _PROBE:
            self.on_probe_ended(made.work.delivery.tenant)
        elif made.outcome is not _DELIVERED:
            self._turns[made.lane].give(made.work.delivery.tenant, made.rank)
        if self._soon is None:
            self._pump_soon()

    async def grounded(self) -> None:
        """Until nothing is in flight; for a dispatcher that starts nothing new."""
        while self.airborne:
            self._grounded.clear()
            await self._grounded.wait()

    def pause(self) -> None:
        """The store cannot settle: nothing new starts."""
        self.paused = True
        self._loader.pause()

    def resume(self) -> None:
        """The store settles again."""
        self.paused = False
        self._pump_soon()
        self._loader.resume()

    # --- time ------------------------------------------------------------------------------

    def _wake_due(self) -> None:
        now = self._clock.now()
        while self._heap and self._heap[0][0] <= now:
            at, _, station = heapq.heappop(self._heap)
            if station.wake_at != at or self.stations.get(station.endpoint.id) is not station:
                continue  # It has been put elsewhere since.
            station.wake_at = None
            self.on_time(station, now)
            self.look(station)
        for pace, (station, lane) in self._pacer.due(now):
            self._call(pace, station, lane, now)
        self._set_timer()

    @property
    def next_at(self) -> int | None:
        """Nothing happens by itself before this time; None: never."""
        times = [self._heap[0][0]] if self._heap else []
        if self._pacer.next_at is not None:
            times.append(self._pacer.next_at)
        return min(times, default=None)

    def _set_timer(self) -> None:
        at = self.next_at
        if at is None:
            return
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        wait_ms = max(at - self._clock.now(), 0)
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._rings)

    def _rings(self) -> None:
        self._timer = None
        self._pump_soon()

    def stop(self) -> None:
        """No more timers, no more loads."""
        self.draining = True
        self._loader.pause()
        if self._timer is not None:
            self._timer.cancel()
