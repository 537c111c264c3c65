"""Limits of incoming connections: the size of a request head, and the time without progress.

Uvicorn has neither limit. The number of connections is limited in ``connections``. The parser stops
at the first byte beyond a limit of the head, before any code uses the head: 8 KiB for the URL,
8 KiB for a header, 128 headers, 64 KiB for all headers with trailers. The refusal is a problem
document that names the limit. Trailers count for these limits and are dropped then: nobody reads
them as headers. A header that says who asks, or for which host, may come once: of two, one reader
takes the first and another one the last.

The parts of a body that arrive in one read are joined once; uvicorn would copy all of them for each
part.

``StallDetector`` checks all connections once a second, which adds no cost to a request, and closes
those that make no progress: no complete head within 10 s, for the first request or after a
response, or a response of which the client has read nothing for 30 s. So no connection needs its
own timer. The time for a body is limited in ``body``.

A client may close its side of the connection after its request: our side stays open until the
response is sent. A stream that has begun ends when its client closes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from homing.errors import (
    BadRequest,
    HeadersTooLarge,
    HeaderTooLarge,
    HomingError,
    TooManyHeaders,
    UrlTooLong,
)
from homing.net.clock import monotonic
from homing.web.connections import ConnectionLimit, source_of
from homing.web.problems import problem_response
from homing.web.response import response_bytes

URL_BYTES_MAX = 8 * 1024
HEADER_BYTES_MAX = 8 * 1024  # its name and its value
HEADERS_MAX = 128
HEAD_BYTES_MAX = 64 * 1024  # all headers and trailers of a request
PARTS_MAX = 8_192  # chunks of a body in one read: each costs a call, even a tiny one
PIPELINED_MAX = 64  # requests that wait for an earlier one on the same connection
HEAD_WITHIN_S = 10.0
TAKEN_WITHIN_S = 30.0
TICK_S = 0.1  # uvicorn's tick
CHECK_EVERY_TICKS = 10
_TICKS_MAX = 864_000  # Then uvicorn counts from 0 again.


class Refused(Exception):
    """Stops the parser because a request exceeds a limit."""


class Limited(HttpToolsProtocol):
    """Uvicorn's protocol with limits for the request head and for the number of connections."""

    stalled_bytes = 0  # received since the last complete head or chunk
    _url_bytes = 0
    _header_count = 0
    _header_bytes = 0
    _has_head = False  # What follows is the body and its trailers.
    _body_parts: list[bytes] | None = None  # of the current read
    _refusal: HomingError | None = None
    since = 0.0  # when it was opened, its last response was complete, or its request began
    source = ""

    def __init__(
        self,
        *args: Any,
        limit: ConnectionLimit | None = None,
        once: frozenset[bytes] = frozenset(),
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self._limit, self._once = limit, once

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.since = monotonic()
        self.source = source_of(self.client)
        if self._limit is not None:
            self._limit.made(self, self.connections)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._limit is not None:
            self._limit.lost(self)
        super().connection_lost(exc)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Called when the client has closed its side; True keeps our side open."""
        cycle: Any = self.cycle  # the newest one, if requests are pipelined
        if cycle is None or cycle.response_complete or getattr(cycle, "more_body", False):
            return None
        if getattr(cycle, "chunked_encoding", None):
            return None
        cycle.keep_alive = False
        return True

    def data_received(self, data: bytes) -> None:
        self.stalled_bytes += len(data)
        super().data_received(data)
        self._flush_body()
        if self.stalled_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self._refuse(_headers_too_large())

    def on_message_begin(self) -> None:
        self.begin_head()
        super().on_message_begin()

    def begin_head(self) -> None:
        """Resets the counters; raises Refused if too many requests wait on this connection."""
        self.stalled_bytes = self._url_bytes = self._header_count = self._header_bytes = 0
        self._has_head = False
        if len(self.pipeline) >= PIPELINED_MAX:
            raise Refused

    def on_url(self, url: bytes) -> None:
        self._url_bytes += len(url)
        if self._url_bytes > URL_BYTES_MAX:
            self._stop_at(UrlTooLong(f"The URL may have at most {URL_BYTES_MAX:,} bytes."))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        size = len(name) + len(value)
        self._header_count += 1
        self._header_bytes += size
        if size > HEADER_BYTES_MAX:
            self._stop_at(_header_too_large(name))
        if self._header_count > HEADERS_MAX:
            self._stop_at(TooManyHeaders(f"A request may have at most {HEADERS_MAX} headers."))
        if self._header_bytes > HEAD_BYTES_MAX:
            self._stop_at(_headers_too_large())
        if not self._has_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self.end_head()
        self.since = monotonic()
        super().on_headers_complete()

    def end_head(self) -> None:
        """Raises Refused if a header that may come once came twice."""
        self.stalled_bytes, self._has_head = 0, True
        found = [name for name, _ in self.headers if name in self._once]
        if len(found) > len(set(found)):
            twice = next(name for name in found if found.count(name) > 1).decode("latin-1")
            self._stop_at(BadRequest(f"The request has {twice!r} more than once: send it once."))

    def on_body(self, body: bytes) -> None:
        self.stalled_bytes = 0
        if self._body_parts is None:
            self._body_parts = [body]
        else:
            self.add_part(self._body_parts, body)

    def add_part(self, parts: list[bytes], body: bytes) -> None:
        """Adds a chunk of a body; raises Refused if there are too many small ones."""
        if len(parts) >= PARTS_MAX:
            self._stop_at(BadRequest("The body has too many small chunks: send larger ones."))
        parts.append(body)

    def on_message_complete(self) -> None:
        self._flush_body()
        super().on_message_complete()

    def _flush_body(self) -> None:
        parts = self._body_parts
        if parts is not None:
            self._body_parts = None
            super().on_body(parts[0] if len(parts) == 1 else b"".join(parts))

    def _stop_at(self, refusal: HomingError) -> None:
        self._refusal = refusal
        raise Refused

    def send_400_response(self, msg: str) -> None:
        if len(self.pipeline) >= PIPELINED_MAX:
            self.transport.close()
        elif self._refusal is None:
            super().send_400_response(msg)
        else:
            self._refuse(self._refusal)

    def _refuse(self, refusal: HomingError) -> None:
        """Closes the connection, with a refusal unless an earlier request has no response yet."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(response_bytes(problem_response(refusal)))
        self.transport.close()

    def on_response_complete(self) -> None:
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
        else:  # The same without uvicorn's timer: StallDetector replaces it.
            self.server_state.total_requests += 1
            self.since = monotonic()
            self.flow.resume_reading()


def _header_too_large(name: bytes) -> HeaderTooLarge:
    shown = name[:64].decode("latin-1").lower()
    return HeaderTooLarge(f"{shown!r} and its value may have at most {HEADER_BYTES_MAX:,} bytes.")


def _headers_too_large() -> HeadersTooLarge:
    return HeadersTooLarge(f"All headers may have at most {HEAD_BYTES_MAX:,} bytes.")


class StallDetector:
    """Remembers since when each connection has made no progress."""

    def __init__(self) -> None:
        self._since: dict[Any, tuple[Any, int, float]] = {}

    def abort_stalled(self, connections: Iterable[Any], now: float) -> None:
        """Closes the connections that have made no progress for too long."""
        since: dict[Any, tuple[Any, int, float]] = {}
        for connection in list(connections):
            cycle, unsent = connection.cycle, _unsent(connection)
            waiting = cycle is None or cycle.response_complete
            if not waiting and not unsent:
                continue  # Its request is being processed.
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


class LimitedServer(uvicorn.Server):
    """Uvicorn's server, which also closes stalled connections.

    Uvicorn wakes ten times a second to see whether it should exit, which is most of what an idle
    server costs. This one wakes once a second, and at once if it should exit.
    """

    ticks = CHECK_EVERY_TICKS  # from one ``on_tick`` to the next

    def __init__(self, config: uvicorn.Config) -> None:
        self._exit = asyncio.Event()
        super().__init__(config)
        self._stalls = StallDetector()

    @property
    def should_exit(self) -> bool:
        return self._exit.is_set()

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        if value:
            self._exit.set()

    async def main_loop(self) -> None:
        counter = 0
        while not await self.on_tick(counter):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.ticks * TICK_S):
                    await self._exit.wait()
            counter = (counter + self.ticks) % _TICKS_MAX

    async def on_tick(self, counter: int) -> bool:
        if counter % CHECK_EVERY_TICKS == 0:
            self._stalls.abort_stalled(self.server_state.connections, monotonic())
        return await super().on_tick(counter)
