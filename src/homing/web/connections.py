"""Limits the number of open connections, and chooses which idle ones to close.

Connections are closed only when there are too many: in total, or from one address if the operator
has set that limit. Connections with a request in progress stay open. Of the others, those that have
been idle the longest are closed first. Idle time counts from when the connection was opened or from
its last response; an incomplete request head does not reset it. So a new connection has the most
time to send a request. Connections of the address that holds the most are closed first, so a client
that opens thousands of connections loses its own. Behind a proxy all clients have one address, and
the longest idle connections of all are closed.

A connection with bytes that have arrived but are not read yet counts as busy.

Finding the longest idle connections means scanning all of them, so several are closed at once and
the cost is spread over many new connections.
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
CLOSED_AT_ONCE = 16  # one in this many of the limit
RESCAN_AFTER_S = 0.1  # after a scan that found nothing to close
REPORT_EVERY_S = 60.0

log = structlog.get_logger("homing.web")


class ConnectionLimit:
    """Keeps the number of connections of one server within its limit."""

    def __init__(
        self,
        maximum: int = CONNECTIONS_MAX,
        *,
        per_address_max: int = 0,
        monotonic: Callable[[], float] = system_monotonic,
    ) -> None:
        self.maximum, self._per_address_max = maximum, per_address_max
        self._monotonic = monotonic
        self._all_busy_until = 0.0
        self._closed, self._report_at = 0, 0.0  # since the last report
        self._by_source: dict[str, set[Any]] = {}

    def made(self, connection: Any, all_of_them: Collection[Any]) -> None:
        """Registers a new connection; if there are too many, closes idle ones or this one."""
        mine = self._by_source.setdefault(connection.source, set())
        mine.add(connection)
        if 0 < self._per_address_max < len(mine):
            self._close_idle(connection, mine, self._per_address_max)
        elif len(all_of_them) > self.maximum:
            self._close_idle(connection, all_of_them, self.maximum)

    def lost(self, connection: Any) -> None:
        """Forgets a connection that was closed."""
        mine = self._by_source.get(connection.source)
        if mine is not None:
            mine.discard(connection)
            if not mine:
                del self._by_source[connection.source]

    def _close_idle(self, newcomer: Any, candidates: Collection[Any], limit: int) -> None:
        now = self._monotonic()
        victims: list[Any] = []
        if now >= self._all_busy_until or limit == self._per_address_max:
            idle = _idle(one for one in candidates if one is not newcomer)
            victims = _longest_idle(idle, max(limit // CLOSED_AT_ONCE, 1))
            if not victims:
                self._all_busy_until = now + RESCAN_AFTER_S
        for victim in victims or [newcomer]:
            newcomer.connections.discard(victim)  # The event loop reports its end one turn later.
            self.lost(victim)
            victim.transport.abort()
            self._closed += 1
        if now >= self._report_at:
            log.warning(
                "too many connections: idle connections were closed",
                closed=self._closed,
                limit=limit,
            )
            self._closed, self._report_at = 0, now + REPORT_EVERY_S


def client_address(client: tuple[str, int] | None) -> str:
    """The IP address of a client; empty if it has none, as with a Unix socket."""
    return client[0] if client else ""


def source_of(client: tuple[str, int] | None) -> str:
    """The address of a client; for IPv6 its /64 network, which usually belongs to one customer."""
    host = client_address(client)
    return network_of(host) if ":" in host else host


def _idle(connections: Iterable[Any]) -> dict[str, list[tuple[bool, float, int, Any]]]:
    """The connections without a request in progress, by source; the smallest is closed first."""
    idle: dict[str, list[tuple[bool, float, int, Any]]] = {}
    asked = _with_unread(connections)
    for number, (connection, unread) in enumerate(asked):
        cycle = connection.cycle
        if unread or (cycle is not None and not cycle.response_complete):
            continue
        unsent = connection.transport.get_write_buffer_size() > 0  # These are closed last.
        idle.setdefault(connection.source, []).append(
            (unsent, connection.idle_at, number, connection)
        )
    return idle


def _with_unread(connections: Iterable[Any]) -> list[tuple[Any, bool]]:
    """The open connections, and whether each has bytes that the event loop has not read."""
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


def _longest_idle(idle: dict[str, list[tuple[bool, float, int, Any]]], count: int) -> list[Any]:
    """Up to ``count`` of the longest idle, each from the source that has the most left."""
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
