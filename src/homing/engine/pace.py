"""Keeps deliveries to the rate of their subscription, and of the host over all tenants.

What waits for its rate is written nowhere: its rows stay where they are in the store, and here is
only who waits, a lane of an endpoint, and when the next turn comes. At a host tenants take turns,
then their endpoints; at a subscription its lanes do. A restart finds the rows as they were.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from homing.engine.station import Station
from homing.model import Lane, Subscription
from homing.policy.pace import interval_us, take, turn_at
from homing.policy.turns import Turns

PACES_MAX = 20_000
CALLED_MAX = 64
RATE_AGAIN_MS = 60_000  # a turn is looked at again after so long: the rate may have been raised

Waits = tuple[Station, Lane]


class Pace:
    """One subscription's, or one host's: its last turn, and those who wait for the next."""

    __slots__ = ("called", "interval_us", "key", "last_us", "look_at", "turns")

    def __init__(self, key: int | str, interval_us: int) -> None:
        self.key, self.interval_us = key, interval_us
        self.last_us = -interval_us  # so that the first turn is free
        self.turns: Turns[Waits] = Turns()
        self.called: dict[Waits, None] = {}  # their turn has come, and they have not gone yet
        self.look_at: int | None = None

    def is_open(self, waits: Waits, now: int) -> bool:
        """Whether this one may take the turn: it has come, and nobody else is before it."""
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

    def take(self, subscription: Subscription, waits: Waits, now: int) -> Pace | None:
        """Take a turn of every pace that holds for a delivery. The pace that says: not yet."""
        paces = []
        for key, rate in (
            (subscription.id, subscription.rate_per_second),
            (waits[0].host, self.host_rate),
        ):
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
                self._look(pace, now)
        return None

    def stay(self, pace: Pace, waits: Waits, now: int) -> None:
        """It was called, and has more to send: it waits for the turn after this one, too."""
        pace.turns.add(_group(pace, waits), waits)
        self._look(pace, now, least=now + max(1, pace.interval_us // 1000))

    def wait(self, pace: Pace, waits: Waits, now: int) -> None:
        """Wait for the next turn."""
        pace.called.pop(waits, None)
        pace.turns.add(_group(pace, waits), waits)
        self._look(pace, now)

    def due(self, now: int) -> list[tuple[Pace, Waits]]:
        """Those whose turn has come, one for each pace, or all of them where the rate is gone."""
        found: list[tuple[Pace, Waits]] = []
        while self._heap and self._heap[0][0] <= now:
            at, _, pace = heapq.heappop(self._heap)
            if pace.look_at != at:
                continue
            pace.look_at = None
            rate = self.host_rate if isinstance(pace.key, str) else self._rate_of(pace.key)
            if rate:
                pace.interval_us = interval_us(rate)
            if not rate or turn_at(pace.last_us, interval_us=pace.interval_us) <= now:
                found.append((pace, self._call(pace)))
                while pace.turns and not rate:
                    found.append((pace, self._call(pace)))
            if pace.turns:  # Whoever was called may have nothing to send any more.
                self._look(pace, now, least=now + max(1, pace.interval_us // 1000))
        return found

    @property
    def next_at(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def _call(self, pace: Pace) -> Waits:
        waits = pace.turns.next()
        assert waits is not None
        pace.turns.discard(_group(pace, waits), waits)
        if len(pace.called) >= CALLED_MAX:  # Its place is lost: it has to wait again.
            del pace.called[next(iter(pace.called))]
        pace.called[waits] = None
        return waits

    def _look(self, pace: Pace, now: int, *, least: int = 0) -> None:
        """Look at this pace when its next turn comes."""
        at = max(turn_at(pace.last_us, interval_us=pace.interval_us), now, least)
        at = min(at, now + RATE_AGAIN_MS)
        if pace.look_at is None or at != pace.look_at:
            pace.look_at = at
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
    """Tenants take turns at a host, lanes at a subscription."""
    station, lane = waits
    return station.endpoint.tenant if isinstance(pace.key, str) else lane.value
