"""An endpoint as the dispatcher has it in memory.

The store holds every pending delivery; a station holds the few that are next. What it knows of
the rest is two facts: whether the store has fresh ones (``more_fresh``), and when the earliest of
the others is due (``next_due``). Both are kept exact by what this process publishes and settles,
and by every load. A row is *known* while it is queued or in flight here; a load leaves out the
known ones, and also those that were settled while it ran, because it may have read them before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import chain

from msgspec.structs import replace

from homing.engine.station_counts import StationCounts
from homing.model import PART_FIRST, Delivery, Endpoint, Lane, State, Work
from homing.policy.health import HealthRules, Ramp
from homing.policy.retry import RETRY_AFTER_MOST_MS, held_past_window
from homing.policy.slots import FAILING, NEW, TRUSTED
from homing.policy.url import host_of

# Python 3.11 looks up a member of an enum slowly; the hot path has these at hand.
_FRESH, _RETRY, _ENABLED = Lane.FRESH, Lane.RETRY, State.ENABLED
LANES = (_FRESH, _RETRY)


def within_reach(endpoint: Endpoint, rules: HealthRules, *, now: int) -> Endpoint:
    """Its times, if they were set by a clock that was ahead of ours: no later than from now on."""
    probe_at, hold_until = endpoint.next_probe_at, endpoint.hold_until
    if probe_at is not None:
        probe_at = min(probe_at, now + rules.probe_every_ms)
    hold_until = min(hold_until, now + RETRY_AFTER_MOST_MS)
    return replace(endpoint, next_probe_at=probe_at, hold_until=hold_until)


def waited_its_turn(delivery: Delivery, *, enabled_since: int) -> bool:
    """Never attempted, not a replay, accepted since: it is fresh, whatever its due time."""
    first = not (delivery.attempts or delivery.replay)
    return first and delivery.accepted_at >= enabled_since


class Station:
    """One endpoint at work."""

    __slots__ = (
        "aside",
        "closed",
        "counts",
        "endpoint",
        "expire_at",
        "flying",
        "fresh",
        "host",
        "in_flight",
        "loading",
        "more_fresh",
        "next_due",
        "paced",
        "probing",
        "ramp",
        "rated",
        "read_upto",
        "reporting",
        "retry",
        "settled_in_sweep",
        "settled_meanwhile",
        "stale",
        "sweep_left",
        "sweeping",
        "wake_at",
    )

    def __init__(
        self, endpoint: Endpoint, *, counts: StationCounts | None = None, read_upto: int = 0
    ) -> None:
        self.endpoint = endpoint
        self.counts = counts or StationCounts()
        self.counts.states[endpoint.health.state] += 1
        self.host = host_of(endpoint.url)
        self.ramp = Ramp()
        self.fresh: deque[Work] = deque()
        self.retry: deque[Work] = deque()
        self.rated: set[Lane] = set()  # lanes that wait for a rate: nothing of them is read
        # Of subscriptions that wait for their rate while others of this endpoint go on.
        self.aside: dict[tuple[int, Lane], deque[Work]] = {}
        self.paced = 0  # of ``fresh``: they waited their turn in the store, and were due
        self.in_flight: dict[int, Lane] = {}  # delivery id → how it went out
        self.flying = {Lane.FRESH: 0, Lane.RETRY: 0}
        self.probing = False  # a probe is being taken or is in flight
        self.sweeping = False  # its expired deliveries are being looked for
        self.reporting = False  # its drops are being reported
        self.more_fresh = False
        self.read_upto = read_upto  # the highest id of a fresh delivery that came from the store
        self.next_due: int | None = None
        self.loading = False
        self.settled_meanwhile: set[int] = set()  # while loading
        self.sweep_left: tuple[int, int] | None = None  # the id and time at which a look failed
        self.settled_in_sweep: set[int] = set()  # in flight at its beginning, or settled since
        self.stale = False  # what is being loaded may have moved away meanwhile, or was put back
        self.expire_at = 0  # when it is held: look for expired deliveries then
        self.wake_at: int | None = None
        self.closed = False  # its bucket goes, or has gone, to another process

    @property
    def enabled(self) -> bool:
        return self.endpoint.health.state is _ENABLED

    @property
    def rank(self) -> int:
        """Whether it may be trusted to give its slots back soon (``policy/slots``)."""
        if self.ramp.slots > 1:
            return TRUSTED
        health = self.endpoint.health
        if health.consecutive_failures:
            return FAILING
        return NEW if health.last_success_at is None else TRUSTED

    @property
    def in_store(self) -> bool:
        """Whether the store has deliveries for it that are not here."""
        return self.more_fresh or self.next_due is not None

    @property
    def idle(self) -> bool:
        return not (
            self.in_store
            or self.fresh
            or self.retry
            or self.in_flight
            or self.aside
            or self.loading
            or self.probing
            or self.endpoint.dropped_unreported
        )

    def set_endpoint(self, endpoint: Endpoint) -> None:
        """Its row as it is now."""
        states = self.counts.states
        states[self.endpoint.health.state] -= 1
        states[endpoint.health.state] += 1
        self.endpoint = endpoint

    def begin_probe(self) -> None:
        self.probing = True
        self.counts.probes += 1

    def end_probe(self) -> None:
        """It may have ended already: it was of a station that was forgotten and is here again."""
        if self.probing:
            self.probing = False
            self.counts.probes -= 1

    def forgotten(self) -> None:
        """It no longer counts, whatever still comes back to it."""
        counts = self.counts
        counts.states[self.endpoint.health.state] -= 1
        counts.retries -= len(self.retry)
        counts.probes -= self.probing
        self.counts = StationCounts()
        self.counts.states[self.endpoint.health.state] += 1
        self.counts.retries, self.counts.probes = len(self.retry), int(self.probing)

    def queue(self, lane: Lane) -> deque[Work]:
        return self.fresh if lane is _FRESH else self.retry

    def ready(self, lane: Lane, now: int) -> bool:
        """Something is queued, and it may go."""
        queue = self.fresh if lane is _FRESH else self.retry
        if not queue or self.flying[lane] >= self.ramp.slots:
            return False
        if self.rated and lane in self.rated:
            return False
        endpoint = self.endpoint
        return endpoint.health.state is _ENABLED and now >= endpoint.hold_until

    def gap(self, lane: Lane) -> int:
        """So many attempts more could start at once, and nothing is queued for them."""
        if self.queue(lane) or (self.paced and lane is not _FRESH):
            return 0
        return max(self.ramp.slots - self.flying[lane], 0)

    def wants(self, lane: Lane, now: int, *, at_once: bool = False) -> bool:
        """The store has something for this lane, and the queue runs low, or there is a gap."""
        if lane is _FRESH:
            there, queued = self.more_fresh, len(self.fresh)
        else:
            there = self.next_due is not None and self.next_due <= now
            queued = len(self.retry) + self.paced
        if not there or self.loading or self.closed or lane in self.rated:
            return False
        if not self.enabled or now < self.endpoint.hold_until:
            return False
        return self.gap(lane) > 0 if at_once else queued < self.ramp.slots

    def due_later(self, at: int) -> None:
        """A delivery in the store falls due then."""
        if self.next_due is None or at < self.next_due:
            self.next_due = at

    def left_in_store(self, delivery: Delivery) -> None:
        """The store has this delivery, and it is not here."""
        if delivery.part == PART_FIRST:
            self.more_fresh = True
        if (
            _FRESH not in self.rated or delivery.part != PART_FIRST
        ):  # Else it is looked for in vain.
            self.due_later(delivery.due_at)
        self.expire_at = min(self.expire_at, delivery.expires_at)

    def held_too_long(self, delivery: Delivery, now: int) -> bool:
        """It was held back until its window ended."""
        since = min(self.endpoint.health.enabled_since, now)  # Set by a clock that was ahead?
        return held_past_window(delivery, enabled_since=since)

    def put_due(self, work: Work) -> None:
        """Queue what was due in the store: in the fresh lane if it only waited its turn."""
        if waited_its_turn(work.delivery, enabled_since=self.endpoint.health.enabled_since):
            self.fresh.append(work)
            self.paced += 1
        else:
            self.retry.append(work)
            self.counts.retries += 1

    def take(self, lane: Lane) -> Work:
        """The next of a queue."""
        work = self.queue(lane).popleft()
        if lane is _RETRY:
            self.counts.retries -= 1
        if self.paced and lane is _FRESH and work.delivery.part != PART_FIRST:
            self.paced -= 1
        return work

    def put_first(self, lane: Lane, work: Work) -> None:
        """It could not go: it is the next of its queue again."""
        self.queue(lane).appendleft(work)
        if lane is _RETRY:
            self.counts.retries += 1
        elif work.delivery.part != PART_FIRST:
            self.paced += 1

    def keep_first(self, lane: Lane, count: int) -> list[Work]:
        """Leave the others of a queue to the store: they wait for a rate."""
        queue, gone = self.queue(lane), list[Work]()
        while len(queue) > count:
            gone.append(queue.pop())
            self.left_in_store(gone[-1].delivery)
            if self.paced and lane is _FRESH and gone[-1].delivery.part != PART_FIRST:
                self.paced -= 1
        if lane is _RETRY:
            self.counts.retries -= len(gone)
        self.stale = self.stale or (self.loading and bool(gone))
        return gone

    @property
    def aside_count(self) -> int:
        return sum(map(len, self.aside.values())) if self.aside else 0

    def set_aside(self, subscription_id: int, lane: Lane, work: Work) -> None:
        self.aside.setdefault((subscription_id, lane), deque()).append(work)

    def take_back(self, subscription_id: int, lane: Lane, count: int) -> None:
        """The first of those that were set aside come to the head of their queue."""
        there = self.aside.pop((subscription_id, lane), None)
        if there is None:
            return
        back = [there.popleft() for _ in range(min(count, len(there)))]
        for work in reversed(back):
            self.put_first(lane, work)
        if there:
            self.aside[subscription_id, lane] = there

    def landed(self, delivery_id: int) -> None:
        """It is settled: what was read before may hold it as it was."""
        self.in_flight.pop(delivery_id, None)
        if self.loading:
            self.settled_meanwhile.add(delivery_id)
        if self.sweeping:
            self.settled_in_sweep.add(delivery_id)

    def known(self) -> set[int]:
        ids = set(self.in_flight)
        ids.update(work.delivery.id for work in self.fresh)
        ids.update(work.delivery.id for work in self.retry)
        for works in self.aside.values():
            ids.update(work.delivery.id for work in works)
        return ids

    def begin_load(self) -> None:
        """From here on what the store has is what the answer says, and what is told meanwhile."""
        self.loading, self.stale = True, False
        self.settled_meanwhile.clear()
        self.more_fresh, self.next_due = False, None

    def end_load(self) -> set[int]:
        """The ids that the answer may hold although they are known or settled."""
        self.loading = False
        ids = self.known() | self.settled_meanwhile
        self.settled_meanwhile.clear()
        return ids

    def restore(self, *, more_fresh: bool, next_due: int | None) -> None:
        """What was known of the store before a look at it that failed."""
        self.more_fresh = self.more_fresh or more_fresh
        if next_due is not None:
            self.due_later(next_due)

    def put_back(self) -> list[Work]:
        """Forget what is queued: it stays in the store, and will be read again."""
        works = [*self.fresh, *self.retry, *chain.from_iterable(self.aside.values())]
        for work in works:
            self.left_in_store(work.delivery)
        self.counts.retries -= len(self.retry)
        self.fresh.clear()
        self.retry.clear()
        self.aside.clear()
        self.paced = 0
        self.stale = self.stale or self.loading  # A load that leaves them out as known is void.
        return works

    def take_off(self, lane: Lane, keep: Callable[[Work], bool]) -> list[Work]:
        """Take off the queue, and of what was set aside, all that is not to be kept."""
        queue = self.queue(lane)
        gone = [work for work in queue if not keep(work)]
        if gone:
            kept = [work for work in queue if keep(work)]
            queue.clear()
            queue.extend(kept)
            if lane is _RETRY:
                self.counts.retries -= len(gone)
            else:
                self.paced = sum(work.delivery.part != PART_FIRST for work in kept)
        for key in [key for key in self.aside if key[1] is lane]:
            there = self.aside.pop(key)
            gone.extend(work for work in there if not keep(work))
            if left := deque(work for work in there if keep(work)):
                self.aside[key] = left
        return gone

    def next_time(self, now: int, *, report_every_ms: int) -> int | None:
        """When it next has something to do by itself, None if never.

        What is under way already (a load, a probe, a sweep, a report) needs no time; nor do rows
        that are due while the queue is full: the next free slot asks for them.
        """
        endpoint = self.endpoint
        if not (self.in_store or endpoint.dropped_unreported or endpoint.hold_until > now):
            return None
        times: list[int] = []
        if endpoint.dropped_unreported and not self.reporting:
            times.append(endpoint.dropped_reported_at + report_every_ms)
        match endpoint.health.state:
            case State.ENABLED:
                if self.next_due is not None and (self.next_due > now or endpoint.hold_until > now):
                    times.append(max(self.next_due, endpoint.hold_until))
                if endpoint.hold_until > now and (self.fresh or self.retry or self.more_fresh):
                    times.append(endpoint.hold_until)
            case State.DISABLED | State.FROZEN:
                if self.in_store and not self.sweeping:
                    times.append(self.expire_at)
                if self.in_store and not self.probing and endpoint.next_probe_at is not None:
                    times.append(endpoint.next_probe_at)
        return min(times) if times else None
