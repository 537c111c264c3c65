"""One endpoint in memory: its two lanes, its attempts in flight, its slots and its next wake-up.

The store holds every pending delivery; a queue holds the few that are next. Of the rest it knows
two facts: whether the store has first attempts (``more_fresh``), and when the earliest of the
others is due (``next_due``). Every publish, settle and load of this process keeps both exact. A row
is *known* while it is queued or in flight here. A load leaves out the known rows, and also those
that were settled while it ran, because it may have read them before.

Other modules may read the attributes of a queue; only its own methods assign them
(``tests/tidy`` checks it).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from msgspec.structs import replace

from homing.engine.attempt import CompletedAttempt
from homing.engine.decide import REPORT_EVERY_MS
from homing.model import (
    Delivery,
    Endpoint,
    Lane,
    Outcome,
    Pauses,
    State,
    Work,
    is_first_part,
)
from homing.policy.fair import FairLane
from homing.policy.health import HealthRules, Ramp, ramp_break, ramp_reset, ramp_up
from homing.policy.outcome import resets_ramp
from homing.policy.pause import as_of
from homing.policy.queued import Queued
from homing.policy.retry import RETRY_AFTER_MAX_MS, held_past_window
from homing.policy.slots import FAILING, NEW, TRUSTED
from homing.policy.url import host_of
from homing.ports import Place, Source

# Python 3.11 looks up a member of an enum slowly, so the hot path uses these.
_FRESH, _RETRY, _PROBE = Lane.FRESH, Lane.RETRY, Lane.PROBE
_ENABLED, _DELIVERED = State.ENABLED, Outcome.DELIVERED
LANES = (_FRESH, _RETRY)
TOP_ID = (1 << 63) - 1  # above every id
FAIR_MIN = 16  # an endpoint with fair groups may queue at least this many first attempts
LENGTH_MAX = 16_000  # first attempts of one endpoint that are queued: all may have to be put back


def within_reach(endpoint: Endpoint, rules: HealthRules, *, now: int) -> Endpoint:
    """The endpoint; times set by a clock that was ahead are reduced to possible ones."""
    probe_at, hold_until = endpoint.next_probe_at, endpoint.hold_until
    if probe_at is not None:
        probe_at = min(probe_at, now + rules.probe_every_ms)
    hold_until = min(hold_until, now + RETRY_AFTER_MAX_MS)
    if probe_at == endpoint.next_probe_at and hold_until == endpoint.hold_until:
        return endpoint
    return replace(endpoint, next_probe_at=probe_at, hold_until=hold_until)


def place_of(delivery: Delivery, position: int = 0) -> tuple[int, int]:
    """From which due time and position on rows are read again if this delivery is among them."""
    if not delivery.is_first:
        return delivery.due_at, TOP_ID
    return delivery.due_at, 0 if delivery.unblocked_at else position or delivery.position


def waited_its_turn(delivery: Delivery, *, enabled_since: int) -> bool:
    """Whether it is fresh: never attempted, not a replay, accepted since its endpoint was enabled.

    One that was unblocked since then is fresh, too, unless the delivery before it was dropped.
    """
    first = not (delivery.attempts or delivery.replay or delivery.unblocked_at < 0)
    return first and delivery.ready_at >= enabled_since


class QueueTotals:
    """The totals of all queues of one dispatcher; each queue counts itself here."""

    __slots__ = ("aside", "memory", "probes", "read_upto", "retries", "states")

    def __init__(self, memory: Queued | None = None) -> None:
        self.memory = memory or Queued(count_max=0, bytes_max=0)  # deliveries in the queues
        self.aside = 0  # of these, set aside until their rate allows them
        self.states = dict.fromkeys(State, 0)  # queues, by the state of their endpoint
        self.retries = 0  # deliveries in the retry lanes
        self.probes = 0  # probes that are being chosen or are in flight
        self.read_upto = 0  # the highest id that any queue read, forgotten queues included


class EndpointQueue:
    """The deliveries of one endpoint that are in memory, and notes about those in the store."""

    __slots__ = (
        "aside",
        "closed",
        "endpoint",
        "erasures",
        "expire_at",
        "expiry_position",
        "expiry_running",
        "fair",
        "fresh",
        "has_blocked",
        "host",
        "in_flight",
        "in_store",
        "loading",
        "more_fresh",
        "moving",
        "next_due",
        "outdated",
        "paced",
        "paused",
        "probing",
        "ramp",
        "rate_limited",
        "read_upto",
        "reporting",
        "reread_from",
        "retry",
        "seen",
        "settled_in_expiry",
        "settled_meanwhile",
        "slots_taken",
        "stale",
        "suspended",
        "totals",
        "wake_at",
    )

    def __init__(self, endpoint: Endpoint, totals: QueueTotals, *, fair: bool = False) -> None:
        self.endpoint = endpoint
        self.totals = totals
        totals.states[endpoint.health.state] += 1
        self.host = host_of(endpoint.url)
        self.ramp = Ramp()
        self.fair = fair  # first attempts take turns by their group; few of them are queued
        self.fresh: deque[Work] | FairLane = FairLane() if fair else deque()
        self.retry: deque[Work] = deque()
        self.rate_limited: set[Lane] = set()  # lanes that wait for a rate: no rows are read
        # Deliveries that wait for their subscription's rate while others of this endpoint go on.
        self.aside: dict[tuple[int, Lane], deque[Work]] = {}
        self.paced = 0  # of ``fresh``: they were due in the store and waited only for their turn
        self.in_flight: dict[int, Lane] = {}  # delivery id → lane
        self.slots_taken = {_FRESH: 0, _RETRY: 0}
        self.probing = False  # a probe is being chosen or is in flight
        self.reporting = False  # its drops are being reported
        self.more_fresh = False
        self.next_due: int | None = None
        self.has_blocked = False  # the store has, or had, blocked deliveries
        self.in_store = False  # ``more_fresh`` or ``next_due``: the store has more deliveries
        self.read_upto = totals.read_upto  # the highest id of a fresh delivery that was loaded
        self.loading = False
        self.settled_meanwhile: set[int] = set()  # while loading
        self.erasures = 0  # of data of its tenant, since it is in memory
        self.stale = False  # rows that are being loaded may have moved away, or were put back
        self.expire_at = 0  # while disabled or frozen: the next search for expired deliveries
        self.expiry_running = False  # a search for expired deliveries is running
        self.expiry_position: tuple[int, int] | None = None  # where that search failed
        self.settled_in_expiry: set[int] = set()  # in flight at the read, or settled since
        self.wake_at: int | None = None
        self.closed = False  # its bucket goes, or has gone, to another process
        # Paused subscriptions: their rows are in the store, and there are no notes about them.
        self.paused: frozenset[int] = frozenset()
        self.outdated = False  # another process has changed the endpoint: it is read first
        self.suspended = False  # all of its subscriptions are paused: nothing is read or sent
        self.moving = False  # its tenant moves to another installation: nothing at all is done
        # While subscriptions are paused: rows up to these places belong to them, or were read.
        self.seen: dict[Source, Place] = {}
        # Rows due from this time, and first attempts from this position on, must be read again.
        self.reread_from: tuple[int, int] | None = None

    # --- its present state -------------------------------------------------------------------

    @property
    def enabled(self) -> bool:
        return self.endpoint.health.state is _ENABLED

    @property
    def rank(self) -> int:
        """How likely the endpoint is to give its slots back soon (``policy/slots``)."""
        if self.ramp.slots > 1:
            return TRUSTED
        health = self.endpoint.health
        if health.consecutive_failures:
            return FAILING
        return NEW if health.last_success_at is None else TRUSTED

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

    @property
    def busy(self) -> bool:
        """Whether an attempt, a load, a probe, expiry or a report is running."""
        return bool(self.in_flight) or self.probing or self.expiry_running

    def queued(self, lane: Lane) -> deque[Work] | FairLane:
        return self.fresh if lane is _FRESH else self.retry

    def ready(self, lane: Lane, now: int) -> bool:
        """Whether a delivery is queued in this lane and may be sent."""
        queued = self.fresh if lane is _FRESH else self.retry
        if not queued or self.slots_taken[lane] >= self.ramp.slots:
            return False
        if self.suspended or (self.rate_limited and lane in self.rate_limited):
            return False
        if self.outdated:
            return False
        endpoint = self.endpoint
        return endpoint.health.state is _ENABLED and now >= endpoint.hold_until

    def gap(self, lane: Lane) -> int:
        """How many free slots have no queued delivery."""
        if self.queued(lane) or (self.paced and lane is not _FRESH):
            return 0
        return max(self.ramp.slots - self.slots_taken[lane], 0)

    def wants(self, lane: Lane, now: int, *, at_once: bool = False) -> bool:
        """Whether the store has rows for this lane, and the lane runs low, or has a gap."""
        if lane is _FRESH:
            there, queued = self.more_fresh, len(self.fresh)
        else:
            there = self.next_due is not None and self.next_due <= now
            queued = len(self.retry) + self.paced
        if not there or self.loading or self.closed or lane in self.rate_limited:
            return False
        if self.suspended:
            return False
        endpoint = self.endpoint
        if endpoint.health.state is not _ENABLED or now < endpoint.hold_until:
            return False
        return self.gap(lane) > 0 if at_once else queued < self.ramp.slots

    def takes(self, delivery: Delivery) -> bool:
        """Whether a delivery that was just committed may be queued without reading the store."""
        health = self.endpoint.health
        ready_at = delivery.unblocked_at or delivery.accepted_at  # below 0 after a drop
        return (
            not self.more_fresh  # otherwise it would overtake rows in the store
            and not self.rate_limited  # deliveries that wait for a rate wait in the store
            and not self.loading
            and delivery.id > self.read_upto  # otherwise a load may have read it already
            and health.state is _ENABLED
            and ready_at >= health.enabled_since
            and ready_at >= self.endpoint.hold_until
            and delivery.subscription_id not in self.paused
            and delivery.due_at <= ready_at  # otherwise it waits for quiet
            and len(self.fresh) < LENGTH_MAX
            and not (self.fair and self._has_enough)
        )

    @property
    def _has_enough(self) -> bool:
        """Whether further rows of a group wait in the store if it has queued ones already."""
        return len(self.fresh) >= max(2 * self.ramp.slots, FAIR_MIN)

    @property
    def after_part(self) -> int:
        """The fair group that had the last turn; 0 without groups."""
        return self.fresh.after if isinstance(self.fresh, FairLane) else 0

    def held_too_long(self, delivery: Delivery, pauses: Pauses | None, now: int) -> bool:
        """Whether a delivery was held back until its window ended."""
        since = min(self.endpoint.health.enabled_since, now)  # Set by a clock that was ahead?
        return held_past_window(as_of(delivery, pauses, since), enabled_since=since)

    def due_since(self, lane: Lane, now: int) -> int | None:
        """Since when the first delivery of this lane could have been sent; None if none could."""
        if lane in self.rate_limited or self.slots_taken[lane] >= self.ramp.slots:
            return None
        if self.suspended:
            return None
        if queued := self.queued(lane):
            return queued[0].delivery.due_at
        if lane is _RETRY and self.next_due is not None and self.next_due <= now:
            return self.next_due
        return None

    def known(self) -> set[int]:
        ids = set(self.in_flight)
        if self.fresh:
            ids.update([work.delivery.id for work in self.fresh])
        if self.retry:
            ids.update([work.delivery.id for work in self.retry])
        for works in self.aside.values():
            ids.update([work.delivery.id for work in works])
        return ids

    # --- the endpoint's row --------------------------------------------------------------------

    def set_endpoint(self, endpoint: Endpoint) -> None:
        """Replace the endpoint's row; the queue stays as it is."""
        states = self.totals.states
        states[self.endpoint.health.state] -= 1
        states[endpoint.health.state] += 1
        self.endpoint = endpoint

    def update(self, endpoint: Endpoint, *, enabled: bool, now: int) -> bool:
        """Replace the endpoint's row and act on it; True if queued deliveries were forgotten."""
        held_before = not self.enabled
        self.set_endpoint(endpoint)
        enabled = enabled or (held_before and self.enabled)
        if enabled:
            self.ramp = Ramp()
            # Waiting deliveries are read again, in their new lane.
            self.note_in_store(more_fresh=True, next_due=now)
        held = endpoint.hold_until > now  # Deliveries of a held endpoint wait in the store.
        back = enabled or held or not self.enabled
        if back:
            self.put_back()
            self.seen.clear()
        if not (self.enabled or held_before):
            self.expire_at = 0
            if self.has_blocked:
                self.note_in_store(more_fresh=True)
        return back

    def note_outdated(self, outdated: bool) -> None:
        """Start nothing until the endpoint is read: another process may have frozen it."""
        self.outdated = outdated

    def slow_start(self) -> None:
        """Begin with one slot again."""
        self.ramp = Ramp()

    # --- notes about the store -----------------------------------------------------------------

    def note_in_store(
        self,
        *,
        more_fresh: bool = False,
        next_due: int | None = None,
        expires_at: int | None = None,
    ) -> None:
        """Note that the store has rows that are not here: first attempts, or others with a time."""
        if more_fresh:
            self.more_fresh = True
        if next_due is not None and (self.next_due is None or next_due < self.next_due):
            self.next_due = next_due
        self.in_store = self.more_fresh or self.next_due is not None
        if expires_at is not None and expires_at < self.expire_at:
            self.expire_at = expires_at

    def note_blocked(self, expires_at: int) -> None:
        """Note that the store has a blocked delivery, which only expiry looks for."""
        self.has_blocked = True
        if not self.enabled:
            self.note_in_store(more_fresh=True, expires_at=expires_at)

    def left_in_store(self, delivery: Delivery, position: int = 0) -> None:
        """Note that the store has this delivery, and that it is not here.

        ``position``: of one that was just committed.
        """
        if self.paused and delivery.subscription_id in self.paused:
            return  # It is read when its subscription is resumed.
        if self.paused:
            self.read_again(*place_of(delivery, position))
        first = delivery.is_first
        # A lane that waits for its rate is not read.
        due_at = None if first and _FRESH in self.rate_limited else delivery.due_at
        self.note_in_store(more_fresh=first, next_due=due_at, expires_at=delivery.expires_at)

    def _all_left_in_store(self, deliveries: Sequence[Delivery]) -> None:
        """Call ``left_in_store`` for all queued deliveries, or do the same faster."""
        if self.paused or self.rate_limited:
            for delivery in deliveries:
                self.left_in_store(delivery)
        elif deliveries:
            self.note_in_store(
                more_fresh=any(it.is_first for it in deliveries),
                next_due=min([it.due_at for it in deliveries]),
                expires_at=min([it.expires_at for it in deliveries]),
            )

    # --- paused subscriptions ------------------------------------------------------------------

    def set_paused(
        self, paused: frozenset[int], *, everything: bool, now: int, moving: bool = False
    ) -> None:
        """Act on a change of the paused subscriptions; ``everything``: all of them are paused.

        ``moving``: its tenant moves to another installation.
        """
        everything = everything or moving
        if moving and not self.moving:
            self.put_back()
        self.moving = moving
        resumed = bool(self.paused - paused) or (self.suspended and not everything)
        stopped = paused - self.paused
        self.paused, self.suspended = paused, everything
        self.seen.clear()
        self.stale = self.stale or self.loading  # That load left out other rows.
        if stopped:
            self._remove(lambda work: work.delivery.subscription_id in stopped)
        if resumed:
            self.note_in_store(more_fresh=True, next_due=now, expires_at=0)

    def read_again(self, due_at: int = 0, position: int = 0) -> None:
        """Read again the rows that are due from this time on: one has come back.

        ``position``: the same of first attempts, which stand in the order of acceptance.
        """
        if self.reread_from is not None:
            due_at = min(due_at, self.reread_from[0])
            position = min(position, self.reread_from[1])
        self.reread_from = due_at, position
        for source, place in self.seen.items():
            turn = position if is_first_part(source[0]) else due_at
            if place[0] >= turn:
                self.seen[source] = (turn - 1, TOP_ID)

    def read_all_again(self, works: Iterable[Work]) -> None:
        """Read these again: there is no room for them now."""
        for work in works:
            self.read_again(*place_of(work.delivery))

    def read_up_to(self, seen: Mapping[Source, Place]) -> None:
        """Note how far a search has read, except for rows that came back while it ran."""
        self.seen = dict(seen)
        if self.reread_from is not None:
            self.read_again(*self.reread_from)

    def forget_stored(self) -> tuple[bool, int | None]:
        """Note that the store has no rows, until it is read; return the notes from before."""
        stored = self.more_fresh, self.next_due
        self.more_fresh, self.next_due, self.in_store = False, None, False
        return stored

    def begin_load(self) -> None:
        """Begin a load: its result, and notes made meanwhile, replace the notes about the store."""
        self.loading, self.stale, self.reread_from = True, False, None
        self.settled_meanwhile.clear()
        self.forget_stored()

    def end_load(self) -> set[int]:
        """End a load; return the ids of rows it may have read that are known or settled."""
        self.loading = False
        ids = self.known()
        if self.settled_meanwhile:
            ids |= self.settled_meanwhile
            self.settled_meanwhile.clear()
        return ids

    def loaded(self, fresh: Sequence[Work], retry: Sequence[Work], *, now: int) -> None:
        """Queue rows that were read and are not known yet."""
        if fresh:
            self.read_upto = max(self.read_upto, *[it.delivery.id for it in fresh])
            self.totals.read_upto = max(self.totals.read_upto, self.read_upto)
        if self.closed:
            self.seen.clear()
            return
        if self.paused:  # They were paused while the load ran.
            fresh = [it for it in fresh if it.delivery.subscription_id not in self.paused]
            retry = [it for it in retry if it.delivery.subscription_id not in self.paused]
        if self.enabled:
            if fresh:
                self._add_fresh(fresh)
            for work in retry:
                self._add_due(work)
        elif fresh or retry:
            self.seen.clear()
            self.note_in_store(more_fresh=True, next_due=now)

    def _add_fresh(self, works: Sequence[Work]) -> None:
        if not self.fair and any(work.delivery.fair_part for work in works):
            self.fair, self.fresh = True, FairLane(self.fresh)  # Another process uses fair groups.
        for work in works:
            if (
                isinstance(self.fresh, FairLane)
                and self._has_enough
                and self.fresh.has_group(work.delivery.fair_part)
            ):
                self.note_in_store(more_fresh=True)
                self.read_again(*place_of(work.delivery))
            else:
                self.add(work)

    # --- its lanes -----------------------------------------------------------------------------

    def add(self, work: Work) -> None:
        """Queue a first attempt."""
        self.fresh.append(self._counted(work))

    def _counted(self, work: Work) -> Work:
        """Count a delivery that is queued; return it with the copy of its event in memory."""
        event = self.totals.memory.put(work.event)
        return work if event is work.event else replace(work, event=event)

    def _add_due(self, work: Work) -> None:
        """Queue a row that was due in the store; one that only waited for its turn is fresh."""
        work, since = self._counted(work), self.endpoint.health.enabled_since
        if not work.delivery.is_first and waited_its_turn(work.delivery, enabled_since=since):
            self.fresh.append(work)
            self.paced += 1
        else:
            self.retry.append(work)
            self.totals.retries += 1

    def take(self, lane: Lane) -> Work:
        """Take the first delivery off a lane."""
        if lane is _FRESH:
            work = self.fresh.popleft()
            if self.paced and not work.delivery.is_first:
                self.paced -= 1
        else:
            work = self.retry.popleft()
            self.totals.retries -= 1
        self.totals.memory.take(work.event)
        return work

    def forget_erased(self) -> None:
        """Read everything again: some of it was erased."""
        self.erasures += 1
        self.put_back()

    def put_back(self) -> None:
        """Forget the queued deliveries: they stay in the store, and will be read again."""
        works = [*self.fresh, *self.retry, *chain.from_iterable(self.aside.values())]
        self._all_left_in_store([work.delivery for work in works])
        self.totals.retries -= len(self.retry)
        self.totals.aside -= self.aside_count
        self.fresh.clear()
        self.retry.clear()
        self.aside.clear()
        self.paced = 0
        self.stale = self.stale or self.loading  # A running load leaves these out as known.
        self._release_memory(works)

    def remove_subscription(self, subscription_id: int) -> None:
        """Take the deliveries of a subscription off the lanes: the store moves or cancels them."""
        self.stale = self.loading
        removed = self._remove(lambda work: work.delivery.subscription_id == subscription_id)
        for work in removed:
            self.left_in_store(work.delivery)  # Deliveries that stay are read again.
        if any(work.delivery.is_first for work in removed):
            self.put_back()  # Those accepted later must not overtake them.

    def remove_delivery(self, delivery_id: int) -> None:
        """Take off the lanes a delivery that was cancelled in the store."""
        if self.loading:
            self.settled_meanwhile.add(delivery_id)
        self._remove(lambda work: work.delivery.id == delivery_id)

    def _remove(self, gone: Callable[[Work], bool]) -> list[Work]:
        removed: list[Work] = []
        for lane in LANES:
            queued = self.queued(lane)
            if here := [work for work in queued if gone(work)]:
                kept = [work for work in queued if not gone(work)]
                queued.clear()
                queued.extend(kept)
                removed += here
                if lane is _RETRY:
                    self.totals.retries -= len(here)
                else:
                    self.paced = sum(not work.delivery.is_first for work in kept)
            for key in [key for key in self.aside if key[1] is lane]:
                there = self.aside.pop(key)
                removed += filter(gone, there)
                left = deque(work for work in there if not gone(work))
                self.totals.aside -= len(there) - len(left)
                if left:
                    self.aside[key] = left
        self._release_memory(removed)
        return removed

    def _release_memory(self, works: Iterable[Work]) -> None:
        self.totals.memory.take_all([work.event for work in works])

    # --- rates: a lane waits in the store, or one subscription in memory -----------------------

    def hold(self, lane: Lane, work: Work, *, keep: int) -> None:
        """Let a lane wait for a rate: this delivery first, and no more than ``keep`` in memory."""
        self._put_first(lane, self._counted(work))
        self.rate_limited.add(lane)
        queued, gone = self.queued(lane), list[Work]()
        while len(queued) > keep:
            gone.append(queued.pop())
            self.left_in_store(gone[-1].delivery)
            if self.paced and lane is _FRESH and not gone[-1].delivery.is_first:
                self.paced -= 1
        if lane is _RETRY:
            self.totals.retries -= len(gone)
        self.stale = self.stale or (self.loading and bool(gone))
        self._release_memory(gone)

    def release(self, *lanes: Lane) -> None:
        """End the wait of these lanes for a rate."""
        self.rate_limited.difference_update(lanes)

    @property
    def aside_count(self) -> int:
        return sum(map(len, self.aside.values())) if self.aside else 0

    def set_aside(self, subscription_id: int, lane: Lane, work: Work) -> None:
        """Let a delivery wait for the rate of its subscription while others go on."""
        self.aside.setdefault((subscription_id, lane), deque()).append(self._counted(work))
        self.totals.aside += 1

    def take_back(self, subscription_id: int, lane: Lane, count: int) -> None:
        """Bring the first of those that were set aside to the head of their lane."""
        there = self.aside.pop((subscription_id, lane), None)
        if there is None:
            return
        back = [there.popleft() for _ in range(min(count, len(there)))]
        self.totals.aside -= len(back)
        for work in reversed(back):
            self._put_first(lane, work)
        if there:
            self.aside[subscription_id, lane] = there

    def _put_first(self, lane: Lane, work: Work) -> None:
        self.queued(lane).appendleft(work)
        if lane is _RETRY:
            self.totals.retries += 1
        elif not work.delivery.is_first:
            self.paced += 1

    # --- attempts and outcomes -----------------------------------------------------------------

    def claim(self, delivery_id: int, lane: Lane) -> None:
        """Keep a delivery known, until it is settled without an attempt."""
        self.in_flight[delivery_id] = lane

    def begin_attempt(self, delivery_id: int, lane: Lane) -> None:
        """Note an attempt in flight; unless it is a probe, it takes a slot."""
        self.in_flight[delivery_id] = lane
        if lane is not _PROBE:
            self.slots_taken[lane] += 1

    def swap(self, older_id: int, newest_id: int, lane: Lane) -> None:
        """Note that an attempt is for the newest delivery of a key, not for an older one."""
        self.settled_unsent(older_id)
        self.remove_delivery(newest_id)  # A load may have read it meanwhile.
        self.in_flight[newest_id] = lane

    def abandon(self, delivery_id: int, lane: Lane) -> None:
        """Free the slot of an attempt that was not sent."""
        self.in_flight.pop(delivery_id, None)
        self.slots_taken[lane] -= 1

    def free_slot(self, lane: Lane) -> None:
        """Free the slot of a success before it is settled: the next attempt need not wait."""
        self.slots_taken[lane] -= 1

    def settled(self, attempt: CompletedAttempt, *, slots_max: int, just_enabled: bool) -> None:
        """Note that an outcome is written; frees its slot unless that was done before."""
        lane, delivered = attempt.lane, attempt.outcome is _DELIVERED
        if not just_enabled:  # Otherwise slow start has just begun.
            if delivered:
                if self.ramp.slots != slots_max:
                    self.ramp = ramp_up(self.ramp, limit=slots_max)
            elif resets_ramp(attempt.response.failure):
                self.ramp = ramp_reset()
            else:
                self.ramp = ramp_break(self.ramp)
        self.settled_unsent(attempt.work.delivery.id)
        if lane is _PROBE:
            self.end_probe()
        elif not delivered:
            self.slots_taken[lane] -= 1

    def settled_unsent(self, delivery_id: int) -> None:
        """Note that a delivery is settled; a load or search under way may have read it before."""
        self.in_flight.pop(delivery_id, None)
        if self.loading:
            self.settled_meanwhile.add(delivery_id)
        if self.expiry_running:
            self.settled_in_expiry.add(delivery_id)

    # --- probes, reports, expiry -------------------------------------------------------------

    def begin_probe(self) -> None:
        self.probing = True
        self.reread_from = None
        self.totals.probes += 1

    def end_probe(self) -> None:
        """End a probe; it may be one of an earlier queue of this endpoint, which was forgotten."""
        if self.probing:
            self.probing = False
            self.totals.probes -= 1

    def probe_is_due(self, now: int) -> bool:
        probe_at = self.endpoint.next_probe_at
        if self.suspended:
            return False
        return probe_at is not None and now >= probe_at and not self.probing

    def begin_report(self) -> None:
        self.reporting = True

    def end_report(self) -> None:
        self.reporting = False

    def report_is_due(self, now: int) -> bool:
        endpoint = self.endpoint
        due = now >= endpoint.dropped_reported_at + REPORT_EVERY_MS
        return bool(endpoint.dropped_unreported) and due and not (self.reporting or self.moving)

    def begin_expiry(self) -> None:
        self.expiry_running = True

    def end_expiry(self, *, again_at: int) -> None:
        """End a search for expired deliveries; the next is at this time, or at an earlier note."""
        self.expire_at = min(self.expire_at, again_at)
        self.expiry_running = False

    def expiry_is_due(self, now: int) -> bool:
        return now >= self.expire_at and not (self.expiry_running or self.suspended)

    def expire_later(self, at: int) -> None:
        """Search for expired deliveries at this time; later notes may set an earlier one."""
        self.expire_at = at

    def take_expiry_position(self) -> tuple[int, int] | None:
        """Where the last search for expired deliveries failed."""
        position, self.expiry_position = self.expiry_position, None
        return position

    def keep_expiry_position(self, after_id: int, soonest: int) -> None:
        """Note where a search for expired deliveries failed: the next one continues there."""
        self.expiry_position = after_id, soonest

    def begin_expiry_page(self) -> None:
        """Begin to read a page; rows of it that are in flight or settled meanwhile are outdated."""
        self.settled_in_expiry = set(self.in_flight)

    def claim_expired(self, delivery_id: int) -> bool:
        """Keep an expired delivery known until it is settled; False if it changed meanwhile."""
        if delivery_id in self.in_flight or delivery_id in self.settled_in_expiry:
            return False
        self.in_flight[delivery_id] = _RETRY
        return True

    def next_time(self, now: int) -> int | None:
        """When the queue must be checked next; None if no time is set.

        Work that is already running (a load, a probe, expiry, a report) needs no timer, nor do rows
        that are due while their lane is full: the next free slot asks for them.
        """
        endpoint = self.endpoint
        if not (self.in_store or endpoint.dropped_unreported or endpoint.hold_until > now):
            return None
        times: list[int] = []
        if endpoint.dropped_unreported and not (self.reporting or self.moving):
            times.append(endpoint.dropped_reported_at + REPORT_EVERY_MS)
        if not self.suspended:
            times += self._times_of_state(now)
        return min(times) if times else None

    def _times_of_state(self, now: int) -> list[int]:
        """When its deliveries need attention."""
        endpoint, times = self.endpoint, list[int]()
        match endpoint.health.state:
            case State.ENABLED:
                if self.next_due is not None and (self.next_due > now or endpoint.hold_until > now):
                    times.append(max(self.next_due, endpoint.hold_until))
                if endpoint.hold_until > now and (self.fresh or self.retry or self.more_fresh):
                    times.append(endpoint.hold_until)
            case State.DISABLED | State.FROZEN:
                if self.in_store and not self.expiry_running:
                    times.append(self.expire_at)
                if self.in_store and not self.probing and endpoint.next_probe_at is not None:
                    times.append(endpoint.next_probe_at)
        return times

    def wake_up_at(self, at: int | None) -> None:
        """Set the time at which the heap wakes the queue; None: no time."""
        self.wake_at = at

    def wakes(self, at: int) -> bool:
        """Whether the queue waits for this time; if so, the wait ends."""
        if self.wake_at != at:
            return False
        self.wake_at = None
        return True

    # --- its bucket ----------------------------------------------------------------------------

    def close(self) -> None:
        """Start nothing new: the bucket goes, or has gone, to another process."""
        self.closed = True
        self.seen.clear()

    def reopen(self) -> None:
        self.closed = False

    def forgotten(self) -> None:
        """Remove the queue from the totals; later outcomes are not counted any more."""
        totals, own = self.totals, QueueTotals()
        totals.states[self.endpoint.health.state] -= 1
        totals.retries -= len(self.retry)
        totals.probes -= self.probing
        own.states[self.endpoint.health.state] += 1
        own.retries, own.probes = len(self.retry), int(self.probing)
        self.totals = own
