"""Limits the number of open connections, and chooses which ones to close.

Connections are closed only when there are too many: in total, or from one address if the operator
has set that limit. Those without a verified key go first, whether they are idle or have a request
in progress, such as a form whose body arrives slowly. The slowest goes first: time counts from when
the connection was opened, from its last response, or from the head of its request; an incomplete
head does not reset it. So a new connection has the most time to send a request. After those without
a key, idle connections with one are closed, the longest idle first. Only where all have a key and a
request in progress, the new connection is refused.

Connections of the address that holds the most are closed first, so a client that opens thousands of
connections loses its own. Behind a proxy all clients have one address, and the slowest connections
of all are closed.

A connection with bytes that have arrived but are not read yet may be about to show its key: it
stays.

Finding these connections means scanning all of them, so several are closed at once and the cost is
spread over many new connections.
"""

from __future__ import annotations

import heapq
import select
from collections.abc import Callable, Collection, Iterable, MutableMapping
from typing import Any

import structlog

from homing.app.throttle import network_of
from homing.net.clock import monotonic as system_monotonic

CONNECTIONS_MAX = 8_192
CLOSED_AT_ONCE = 16  # one in this many of the limit
RESCAN_AFTER_S = 0.1  # after a scan that found nothing to close
REPORT_EVERY_S = 60.0
VERIFIED = "homing.verified"  # in the scope of a request

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
        """Registers a new connection; if there are too many, closes some of them, or this one."""
        mine = self._by_source.setdefault(connection.source, set())
        mine.add(connection)
        if 0 < self._per_address_max < len(mine):
            self._make_room(connection, mine, self._per_address_max)
        elif len(all_of_them) > self.maximum:
            self._make_room(connection, all_of_them, self.maximum)

    def lost(self, connection: Any) -> None:
        """Forgets a connection that was closed."""
        mine = self._by_source.get(connection.source)
        if mine is not None:
            mine.discard(connection)
            if not mine:
                del self._by_source[connection.source]

    def _make_room(self, newcomer: Any, candidates: Collection[Any], limit: int) -> None:
        now = self._monotonic()
        victims: list[Any] = []
        if now >= self._all_busy_until or limit == self._per_address_max:
            others = _closable(one for one in candidates if one is not newcomer)
            count = max(limit // CLOSED_AT_ONCE, 1)
            victims = next(filter(None, (_slowest(it, count) for it in others)), [])
            if not victims:
                self._all_busy_until = now + RESCAN_AFTER_S
        for victim in victims or [newcomer]:
            newcomer.connections.discard(victim)  # The event loop reports its end one turn later.
            self.lost(victim)
            victim.transport.abort()
            self._closed += 1
        if now >= self._report_at:
            log.warning(
                "too many connections: some without a key, or idle, were closed",
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


def mark_verified(scope: MutableMapping[str, Any]) -> None:
    """Notes that the key, session or person of a request is known."""
    scope[VERIFIED] = True


_Closable = dict[str, list[tuple[bool, float, int, Any]]]


def _closable(connections: Iterable[Any]) -> tuple[_Closable, _Closable]:
    """Connections without a verified key, and idle ones with one, by source.

    The smallest of a source is closed first.
    """
    without_key: _Closable = {}
    idle_with_key: _Closable = {}
    asked = _with_unread(connections)
    for number, (connection, unread) in enumerate(asked):
        cycle = connection.cycle
        busy = cycle is not None and not cycle.response_complete
        has_key = cycle is not None and VERIFIED in cycle.scope
        if unread or (busy and has_key):
            continue
        # A response that was asked for with a key and is not read yet is cut off last.
        unsent = has_key and connection.transport.get_write_buffer_size() > 0
        group = idle_with_key if has_key else without_key
        group.setdefault(connection.source, []).append(
            (unsent, connection.since, number, connection)
        )
    return without_key, idle_with_key


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


def _slowest(groups: _Closable, count: int) -> list[Any]:
    """Up to ``count`` of the slowest, each from the source that has the most left."""
    for group in groups.values():
        heapq.heapify(group)
    order = [(-len(group), source) for source, group in groups.items()]
    heapq.heapify(order)
    victims: list[Any] = []
    while order and len(victims) < count:
        size, source = heapq.heappop(order)
        victims.append(heapq.heappop(groups[source])[-1])
        if size < -1:
            heapq.heappush(order, (size + 1, source))
    return victims
