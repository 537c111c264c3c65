"""Keeps deliveries to the rate of their subscription, and of the host over all tenants.

A delivery that waits for a rate is not written: its row stays as it is in the store, and a restart
finds it there. Memory holds only which lanes of which endpoints wait, and when the next turn is.
At a host, tenants take turns, then their endpoints and test sends; at a subscription, its lanes
take turns.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Iterator

from homing.engine.capacity import Capacity
from homing.engine.core import Core
from homing.engine.decide import Deferred
from homing.engine.queue import LANES, EndpointQueue
from homing.errors import TooMany
from homing.languages.sentences import say
from homing.model import Lane, Subscription, Work
from homing.policy.pace import interval_us, take, turn_at
from homing.policy.turns import Turns
from homing.policy.url import host_of

PACES_MAX = 20_000
CALLED_MAX = 64
RATE_AGAIN_MS = 60_000  # until a wait is checked again: the rate may have been raised
FAST_US = 100_000  # between turns: with shorter intervals a few rows are kept in memory
ASIDE_MAX = 256  # deliveries of one endpoint that wait in memory while others are sent …
LATER_MIN_MS, LATER_MAX_MS = 60_000, 3_600_000  # … and the wait of further ones in the store
TESTS_WAITING_MAX = 10  # test sends of one tenant that wait for a host
TEST_WAIT_S = 10  # that a test send waits for its turn


class TestTurn:
    """A test send that waits for the turn of a host."""

    __slots__ = ("come", "tenant")

    def __init__(self, tenant: str) -> None:
        self.tenant, self.come = tenant, asyncio.Event()


Waits = tuple[EndpointQueue, Lane] | TestTurn


class Pace:
    """The pace of a subscription or a host: its last turn, and what waits for the next."""

    __slots__ = ("called", "interval_us", "key", "last_us", "turn_at_ms", "turns")

    def __init__(self, key: int | str, interval_us: int) -> None:
        self.key, self.interval_us = key, interval_us
        self.last_us = -interval_us  # so that the first turn is free
        self.turns: Turns[Waits] = Turns()
        self.called: dict[Waits, None] = {}  # their turn has come, and they have not sent yet
        self.turn_at_ms: int | None = None

    def is_open(self, waits: Waits, now: int) -> bool:
        """Whether this one may take the present turn: it has come, and no other one is first."""
        if now * 1000 < self.last_us + self.interval_us:
            return False
        return waits in self.called or not self.turns

    def idle(self, now: int) -> bool:
        over = now * 1000 >= self.last_us + self.interval_us
        return over and not self.turns and not self.called


class Pacer:
    """The paces in use, by subscription and by host."""

    def __init__(
        self, host_rate_per_second: float, *, rate_of: Callable[[int], float | None]
    ) -> None:
        self.host_rate = host_rate_per_second  # 0: none
        self._rate_of = rate_of
        self._paces: dict[int | str, Pace] = {}
        self._heap: list[tuple[int, int, Pace]] = []
        self._tick = 0

    def take(
        self, host: str, waits: Waits, now: int, subscription: Subscription | None = None
    ) -> Pace | None:
        """Take a turn of every pace to be kept; else return the one to wait for.

        A delivery keeps the pace of its subscription and of its host, a test send that of its host.
        """
        paces = []
        keys: list[tuple[int | str, float | None]] = [(host, self.host_rate)]
        if subscription is not None:
            keys.insert(0, (subscription.id, subscription.rate_per_second))
        for key, rate in keys:
            if rate:
                pace = self._pace(key, interval_us(rate), now)
                if not pace.is_open(waits, now):
                    return pace
                paces.append(pace)
        for pace in paces:
            taken = take(
                pace.last_us, interval_us=pace.interval_us, now=now, waited=waits in pace.called
            )
            assert taken is not None
            pace.last_us = taken
            pace.called.pop(waits, None)
            if pace.turns:
                self._reschedule(pace, now)
        return None

    def stay(self, pace: Pace, waits: Waits, now: int) -> None:
        """Let a lane that was called and has more to send wait for the turn after this one, too."""
        pace.turns.add(_group(pace, waits), waits)
        self._reschedule(pace, now, earliest=now + max(1, pace.interval_us // 1000))

    def wait(self, pace: Pace, waits: Waits, now: int) -> None:
        """Wait for the next turn."""
        pace.called.pop(waits, None)
        pace.turns.add(_group(pace, waits), waits)
        self._reschedule(pace, now)

    def leave(self, pace: Pace, waits: Waits) -> None:
        """Wait for no turn any more."""
        pace.called.pop(waits, None)
        pace.turns.discard(_group(pace, waits), waits)

    def due(self, now: int) -> list[tuple[Pace, Waits]]:
        """What has its turn now: one lane or test send of each pace, or all without a rate."""
        found: list[tuple[Pace, Waits]] = []
        while self._heap and self._heap[0][0] <= now:
            at, _, pace = heapq.heappop(self._heap)
            if pace.turn_at_ms != at:
                continue
            pace.turn_at_ms = None
            if not pace.turns:
                continue  # The test sends that waited have left.
            rate = self.host_rate if isinstance(pace.key, str) else self._rate_of(pace.key)
            if rate:
                pace.interval_us = interval_us(rate)
            earliest = 0
            if not rate or turn_at(pace.last_us, interval_us=pace.interval_us) <= now:
                earliest = now + max(1, pace.interval_us // 1000)
                found.append((pace, self._call(pace)))
                while pace.turns and not rate:
                    found.append((pace, self._call(pace)))
            if pace.turns:  # The lane that was called may have nothing to send by then.
                self._reschedule(pace, now, earliest=earliest)
        return found

    @property
    def next_at(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def _call(self, pace: Pace) -> Waits:
        waits = pace.turns.next()
        assert waits is not None
        pace.turns.discard(_group(pace, waits), waits)
        if len(pace.called) >= CALLED_MAX:  # The oldest loses its turn and must wait again.
            del pace.called[next(iter(pace.called))]
        pace.called[waits] = None
        return waits

    def _reschedule(self, pace: Pace, now: int, *, earliest: int = 0) -> None:
        """Set the time at which the next turn of this pace comes."""
        at = max(turn_at(pace.last_us, interval_us=pace.interval_us), now, earliest)
        at = min(at, now + RATE_AGAIN_MS)
        if pace.turn_at_ms is None or at != pace.turn_at_ms:
            pace.turn_at_ms = at
            self._tick += 1
            heapq.heappush(self._heap, (at, self._tick, pace))

    def _pace(self, key: int | str, interval_us: int, now: int) -> Pace:
        pace = self._paces.get(key)
        if pace is None:
            if len(self._paces) >= PACES_MAX:
                self._paces = {one: it for one, it in self._paces.items() if not it.idle(now)}
            pace = self._paces[key] = Pace(key, interval_us)
        pace.interval_us = interval_us
        return pace


def _group(pace: Pace, waits: Waits) -> str:
    """The group that takes turns: the tenant at a host, the lane at a subscription."""
    if isinstance(waits, TestTurn):
        return waits.tenant
    queue, lane = waits
    return queue.endpoint.tenant if isinstance(pace.key, str) else lane.value


class RateLimits:
    """The paces, and the queues that wait for them."""

    def __init__(self, core: Core, queues: dict[int, EndpointQueue], capacity: Capacity) -> None:
        self._catalog, self._ownership = core.catalog, core.ownership
        self._queues, self._capacity = queues, capacity
        self._clock, self._testing = core.clock, Counter[str]()  # test sends that wait, by tenant
        self._pacer = Pacer(core.options.host_rate_per_second, rate_of=core.catalog.rate_of)
        self.host_rate = core.options.host_rate_per_second

    @property
    def next_at(self) -> int | None:
        return self._pacer.next_at

    def take(
        self, subscription: Subscription, queue: EndpointQueue, lane: Lane, now: int
    ) -> Pace | None:
        """Take a turn for a delivery; else return the pace that it must wait for."""
        return self._pacer.take(queue.host, (queue, lane), now, subscription)

    async def take_for_test(
        self, subscription: Subscription, *, on_wait: Callable[[], None]
    ) -> bool:
        """Take a turn of its host for a test send; whether it waited.

        Raises TooMany after ten seconds, and if other test sends of its tenant wait.
        """
        tenant, host = subscription.tenant, host_of(subscription.url)
        turn = TestTurn(tenant)
        pace = self._pacer.take(host, turn, self._clock.now())
        if pace is None:
            return False
        if self._testing[tenant] >= TESTS_WAITING_MAX:
            raise self._too_many_at(host)
        self._testing[tenant] += 1
        try:
            async with asyncio.timeout(TEST_WAIT_S):
                while pace is not None:
                    turn.come.clear()
                    self._pacer.wait(pace, turn, self._clock.now())
                    on_wait()
                    await turn.come.wait()
                    pace = self._pacer.take(host, turn, self._clock.now())
        except TimeoutError:
            raise self._too_many_at(host) from None
        finally:
            if pace is not None:
                self._pacer.leave(pace, turn)
            self._testing -= Counter((tenant,))
        return True

    def _too_many_at(self, host: str) -> TooMany:
        rate = self._pacer.host_rate
        detail = say(
            "The host {host} gets at most {rate} requests per second, over all tenants, and others "
            "wait for their turn: send the test again later.",
            host=host,
            rate=f"{rate:g}",
        )
        return TooMany(detail, after_ms=max(1_000, int(1_000 / rate)))

    def wait(
        self, pace: Pace, queue: EndpointQueue, work: Work, lane: Lane, now: int
    ) -> Deferred | None:
        """Let a delivery wait for the next turn; the caller settles the value that is returned.

        Usually nothing is written: the lane waits, and its rows stay in the store. If several
        subscriptions share the endpoint, only this one waits, with a bounded number of deliveries
        in memory; a further one gets a later due time, so that the rows behind it can be read.
        """
        delivery = work.delivery
        if isinstance(pace.key, str) or self._waits_as_a_lane(delivery.endpoint_id):
            fast = pace.interval_us < FAST_US
            queue.hold(lane, work, keep=queue.ramp.slots if fast else 0)
        elif queue.aside_count < ASIDE_MAX and self._capacity.may_queue(queue):
            queue.set_aside(pace.key, lane, work)
        else:
            queue.claim(delivery.id, lane)
            wait_ms = min(max(ASIDE_MAX * pace.interval_us // 1000, LATER_MIN_MS), LATER_MAX_MS)
            return Deferred(delivery, now + wait_ms, self._ownership.epochs[delivery.bucket])
        self._pacer.wait(pace, (queue, lane), now)
        return None

    def _waits_as_a_lane(self, endpoint_id: int) -> bool:
        """Whether all deliveries of this endpoint wait for the same rate."""
        return self._catalog.is_alone_at(endpoint_id)

    def release_shared(self, queue: EndpointQueue) -> None:
        """Let no lane wait as a whole if several subscriptions share the endpoint by now."""
        if not (self._pacer.host_rate or self._waits_as_a_lane(queue.endpoint.id)):
            queue.release(*LANES)

    def due(self, now: int) -> Iterator[EndpointQueue]:
        """The queues whose turn has come."""
        for pace, waits in self._pacer.due(now):
            if isinstance(waits, TestTurn):
                waits.come.set()
                continue
            queue, lane = waits
            queue.release(lane)
            if self._queues.get(queue.endpoint.id) is not queue:
                continue
            if queue.aside and not isinstance(pace.key, str):
                count = 1 if self._catalog.rate_of(pace.key) else queue.aside_count
                queue.take_back(pace.key, lane, count)
                if (pace.key, lane) in queue.aside:
                    self._pacer.stay(pace, (queue, lane), now)
            yield queue
