"""A connection: the asyncio side of one TCP or TLS stream, carrying one request at a time."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import Protocol, cast

from homing.net.flight import Flight
from homing.net.response import Received, ResponseReader

PoolKey = tuple[str, str, str, int, str]  # tenant, scheme, host, port, own TLS identity


class Owner(Protocol):
    """Is called when something happens on a connection."""

    def connected(self, connection: Connection, flight: Flight) -> None:
        """The connection is established; it must not be dropped within this call.

        uvloop takes over the socket object only after this call, in the coroutine that dials. If
        the transport is closed by then, the object keeps the number of a closed descriptor and
        closes that number again when it is collected: by then another socket may have it.
        """

    def responded(
        self, connection: Connection, flight: Flight, received: Received, now: float
    ) -> None:
        """The response was read: it has a code or a failure."""

    def lost(self, connection: Connection, flight: Flight | None, error: Exception | None) -> None:
        """It ended, or sent bytes while idle; ``flight`` is the request that it carried."""


class Connection(asyncio.Protocol):
    """Made for its first request; between requests it is idle in the pool."""

    __slots__ = (
        "_monotonic",
        "_owner",
        "address",
        "checked_at",
        "expires_at",
        "flight",
        "idle_at",
        "key",
        "proxied",
        "reader",
        "reused",
        "transport",
    )

    def __init__(
        self, owner: Owner, key: PoolKey, flight: Flight, monotonic: Callable[[], float]
    ) -> None:
        self._owner = owner
        self._monotonic = monotonic
        self.key = key
        self.address = flight.address
        self.proxied = flight.proxied
        self.checked_at = flight.checked_at  # when its address was looked up and checked
        self.flight: Flight | None = flight
        self.reader = ResponseReader()
        self.reused = False
        self.idle_at = 0.0
        self.expires_at = 0.0
        self.transport: asyncio.Transport | None = None  # None before and after the connection

    def begin(self, flight: Flight, head: bytes, body: bytes = b"") -> None:
        """Write a request; the next response belongs to this flight."""
        assert self.transport is not None
        self.flight = flight
        flight.connection = self
        self.transport.write(head)
        if body:
            self.transport.write(body)

    def finish(self, now: float, expires_at: float) -> None:
        """The flight is over; the connection may carry another one until it expires."""
        self.idle_at, self.expires_at = now, expires_at
        self.flight = None
        self.reused = True
        self.reader.next()

    def drop(self) -> None:
        """Close at once; unsent and unread bytes are lost."""
        self.flight = None
        if self.transport is not None:
            self.transport.abort()

    def clean(self) -> bool:
        """Whether it is open and all bytes have been sent, so that it can take another request."""
        transport = self.transport
        return (
            transport is not None
            and not transport.is_closing()
            and transport.get_write_buffer_size() == 0
        )

    def open(self) -> bool:
        """Whether no end of it has been seen."""
        transport = self.transport
        return transport is not None and not transport.is_closing()

    def quiet(self) -> bool:
        """Whether nothing waits to be read: no end, and no bytes that the loop has not seen."""
        if self.transport is None or self.transport.is_closing():
            return False
        sock = self.transport.get_extra_info("socket")
        if sock is None or sock.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLIN)
        return not poll.poll(0)

    # --- called by the loop -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        assert self.flight is not None
        self._owner.connected(self, self.flight)

    def data_received(self, data: bytes) -> None:
        flight = self.flight
        if flight is None:
            self._owner.lost(self, None, None)
            return
        now = self._monotonic()
        if not flight.first_byte_at:
            flight.first_byte_at = now
        received = self.reader.feed(data)
        if received is not None:
            self._owner.responded(self, flight, received, now)

    def eof_received(self) -> None:
        self._owner.lost(self, self.flight, None)

    def connection_lost(self, error: Exception | None) -> None:
        self._owner.lost(self, self.flight, error)
        self.transport = None
        self.reader.close()
