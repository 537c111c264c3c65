"""Limits of a connection to us: how large a head may be, and how long it may get nowhere.

Uvicorn bounds neither. There are at most 8,192 connections. A head that never ends is cut off at
64 KiB beyond its first read. The watch looks at all connections once a second, which costs a
request nothing, and ends those that hold their place: no whole head within 10 s, be it the first or
another after an answer, or an answer of which nothing was taken for 30 s. So no connection needs a
timer of its own. How long a body may take is ``body``'s rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from homing.net.clock import monotonic

CONNECTIONS_MAX = 8192
HEAD_BYTES_MAX = 64 * 1024
HEADERS_MAX = 128
HEAD_WITHIN_S = 10.0
TAKEN_WITHIN_S = 30.0
LOOK_EVERY_TICKS = 10  # of a tenth of a second

NO_HEAD = -1
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 27\r\nconnection: close\r\n\r\n"
    b"The request head is too big"
)


class Limited(HttpToolsProtocol):
    """Uvicorn's connection with a bound on what a head may be, and on how many there are."""

    head_bytes = NO_HEAD  # of a head under way, beyond the read it began in

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.head_bytes >= 0:
            self.head_bytes += len(data)
        super().data_received(data)
        if self.head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        self.head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self.head_bytes = NO_HEAD
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
        else:  # The same, without a timer: the watch looks.
            self.server_state.total_requests += 1
            self.flow.resume_reading()


class Watch:
    """Remembers since when each connection has been getting nowhere."""

    def __init__(self) -> None:
        self._since: dict[Any, tuple[Any, int, float]] = {}

    def look(self, connections: Iterable[Any], now: float) -> None:
        """End those that have been where they are for too long."""
        since: dict[Any, tuple[Any, int, float]] = {}
        for connection in list(connections):
            cycle, unsent = connection.cycle, _unsent(connection)
            waiting = cycle is None or cycle.response_complete
            if not waiting and not unsent:
                continue  # At work on its request.
            before = self._since.get(connection)
            at = now
            if before is not None and before[0] is cycle and before[1] == unsent:
                at = before[2]
            if now - at >= (TAKEN_WITHIN_S if unsent else HEAD_WITHIN_S):
                connection.transport.abort()
            else:
                since[connection] = (cycle, unsent, at)
        self._since = since


def _unsent(connection: Any) -> int:
    transport = connection.transport
    return 0 if transport is None else int(transport.get_write_buffer_size())


class WatchedServer(uvicorn.Server):
    """Uvicorn's server, which ticks ten times a second, with a watch."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._watch = Watch()

    async def on_tick(self, counter: int) -> bool:
        if counter % LOOK_EVERY_TICKS == 0:
            self._watch.look(self.server_state.connections, monotonic())
        return await super().on_tick(counter)
