"""How many connections callers may hold, and which of them are closed to make room.

A connection is closed only when there are too many: in all, or, where the operator says so, from
one address. Connections with a request in progress stay. Of the others the idlest go first: idle
since they were made, or since their last response, and half a request head is no request. So a new
connection has the longest time to ask something. The address that holds the most gives way first,
so a caller who opens thousands closes its own. Behind a proxy all callers have one address, and the
rule is the idlest of all.

Bytes that have arrived and were not read yet are a request: their connection is not idle.

Looking for the idlest means looking at all of them, so a part is closed at once: over many new
connections each pays for a few steps.
"""

from __future__ import annotations

import heapq
import select
from collections.abc import Callable, Collection, Iterable
from typing import Any

import structlog

from homing.app.throttle import network_of
from homing.net.clock import monotonic as system_monotonic

CONNECTIONS_MAX = 8_192
PART = 16  # one in so many is closed at a time
LOOK_AGAIN_S = 0.1  # after a look that found nothing to close
REPORT_EVERY_S = 60.0

log = structlog.get_logger("homing.web")


class ConnectionLimit:
    """Keeps the connections of one server within their number."""

    def __init__(
        self,
        most: int = CONNECTIONS_MAX,
        *,
        per_address_max: int = 0,
        monotonic: Callable[[], float] = system_monotonic,
    ) -> None:
        self._most, self._per_address_max = most, per_address_max
        self._monotonic = monotonic
        self._all_busy_until = 0.0
        self._closed, self._report_at = 0, 0.0  # since the last report
        self._by_source: dict[str, set[Any]] = {}

    def made(self, connection: Any, all_of_them: Collection[Any]) -> None:
        """A new connection, which is among all of them: close others, or this one."""
        mine = self._by_source.setdefault(connection.source, set())
        mine.add(connection)
        if 0 < self._per_address_max < len(mine):
            self._make_room(connection, mine, self._per_address_max)
        elif len(all_of_them) > self._most:
            self._make_room(connection, all_of_them, self._most)

    def lost(self, connection: Any) -> None:
        """A connection has ended."""
        mine = self._by_source.get(connection.source)
        if mine is not None:
            mine.discard(connection)
            if not mine:
                del self._by_source[connection.source]

    def _make_room(self, newcomer: Any, crowd: Collection[Any], most: int) -> None:
        now = self._monotonic()
        victims: list[Any] = []
        if now >= self._all_busy_until or most == self._per_address_max:
            idle = _idle(one for one in crowd if one is not newcomer)
            victims = _of_the_largest(idle, max(most // PART, 1))
            if not victims:
                self._all_busy_until = now + LOOK_AGAIN_S
        for victim in victims or [newcomer]:
            newcomer.connections.discard(victim)  # The loop tells of its end a turn later.
            self.lost(victim)
            victim.transport.abort()
            self._closed += 1
        if now >= self._report_at:
            log.warning(
                "too many connections: idle ones are closed to make room for new ones",
                closed=self._closed,
                most=most,
            )
            self._closed, self._report_at = 0, now + REPORT_EVERY_S


def client_address(client: tuple[str, int] | None) -> str:
    """The address that a connection comes from; empty where it has none."""
    return client[0] if client else ""


def source_of(client: tuple[str, int] | None) -> str:
    """The network that a connection comes from: an IPv6 customer has a /64 full of addresses."""
    host = client_address(client)
    return network_of(host) if ":" in host else host


def _idle(connections: Iterable[Any]) -> dict[str, list[tuple[bool, float, int, Any]]]:
    """Those without a request in progress, by source; the first to close is the smallest."""
    idle: dict[str, list[tuple[bool, float, int, Any]]] = {}
    asked = _with_unread(connections)
    for number, (connection, unread) in enumerate(asked):
        cycle = connection.cycle
        if unread or (cycle is not None and not cycle.response_complete):
            continue
        unsent = connection.transport.get_write_buffer_size() > 0  # They go last.
        idle.setdefault(connection.source, []).append(
            (unsent, connection.idle_at, number, connection)
        )
    return idle


def _with_unread(connections: Iterable[Any]) -> list[tuple[Any, bool]]:
    """Each that is open, and whether bytes wait that the loop has not read."""
    poll = select.poll()
    open_ones: list[tuple[Any, int]] = []
    for connection in connections:
        sock = connection.transport.get_extra_info("socket")
        if connection.transport.is_closing() or sock is None:
            continue
        number = sock.fileno()
        poll.register(number, select.POLLIN)
        open_ones.append((connection, number))
    ready = {number for number, _ in poll.poll(0)}
    return [(connection, number in ready) for connection, number in open_ones]


def _of_the_largest(idle: dict[str, list[tuple[bool, float, int, Any]]], count: int) -> list[Any]:
    """So many of the idlest, each from the source that has the most left."""
    for group in idle.values():
        heapq.heapify(group)
    order = [(-len(group), source) for source, group in idle.items()]
    heapq.heapify(order)
    victims: list[Any] = []
    while order and len(victims) < count:
        size, source = heapq.heappop(order)
        victims.append(heapq.heappop(idle[source])[-1])
        if size < -1:
            heapq.heappush(order, (size + 1, source))
    return victims
