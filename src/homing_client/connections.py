"""Connections to the server: a blocking one, one on asyncio, and the pool of idle ones.

This is all the I/O of the two clients. What is written and read comes from ``http1``, which does no
I/O itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import ssl
from collections import deque
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from homing_client.errors import NotTrusted, TimedOut, Unreachable
from homing_client.http1 import Response, ResponseReader, ServerAddress
from homing_client.time_and_random import monotonic

READ_BYTES = 64 * 1024
IDLE_MAX = 32
IDLE_S = 4.0  # Shorter than uvicorn's five: no request is sent while the server closes.


@contextlib.contextmanager
def _connect_errors() -> Iterator[None]:
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise NotTrusted(error.verify_message) from error
    except TimeoutError as error:
        raise TimedOut("It did not accept the connection.", maybe_done=False) from error
    except OSError as error:
        raise Unreachable(f"{error}.", maybe_done=False) from error


@contextlib.contextmanager
def _exchange_errors() -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise TimedOut(maybe_done=True) from error
    except EOFError as error:
        raise Unreachable("The connection ended early.", maybe_done=True) from error
    except OSError as error:
        raise Unreachable(f"{error}.", maybe_done=True) from error


class SocketConnection:
    """A blocking connection; one request at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.reusable = False  # whether another request may follow

    @classmethod
    def open(
        cls, server: ServerAddress, context: ssl.SSLContext | None, *, deadline: float
    ) -> SocketConnection:
        """Raises TimedOut, Unreachable or NotTrusted; nothing has been sent then."""
        with _connect_errors():
            address = (server.host, server.port)
            connection = socket.create_connection(address, timeout=_remaining_s(deadline))
            try:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if context is not None:
                    connection.settimeout(_remaining_s(deadline))
                    connection = context.wrap_socket(connection, server_hostname=server.host)
            except BaseException:
                connection.close()
                raise
        return cls(connection)

    def exchange(self, request: bytes, *, deadline: float) -> Response:
        """Raises TimedOut, Unreachable or BadResponse."""
        reader = ResponseReader()
        with _exchange_errors():
            # The server may have responded before it closed: the response is read all the same.
            with contextlib.suppress(ConnectionError):
                self._connection.settimeout(_remaining_s(deadline))
                self._connection.sendall(request)
            while reader.response is None:
                self._connection.settimeout(_remaining_s(deadline))
                reader.feed(self._connection.recv(READ_BYTES))
        self.reusable = reader.keep_alive
        return reader.response

    def is_stale(self) -> bool:
        """No response is due, so anything that can be read is the end of the connection."""
        if not hasattr(select, "poll"):
            return bool(select.select([self._connection], [], [], 0)[0])
        poll = select.poll()  # Unlike select, it takes descriptors above 1,023.
        poll.register(self._connection, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        self._connection.close()


def _remaining_s(deadline: float) -> float:
    remaining = deadline - monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining


class StreamConnection:
    """A connection on asyncio; one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._loop = asyncio.get_running_loop()
        self.reusable = False  # whether another request may follow

    @classmethod
    async def open(
        cls, server: ServerAddress, context: ssl.SSLContext | None, *, deadline: float
    ) -> StreamConnection:
        """Raises TimedOut, Unreachable or NotTrusted; nothing has been sent then."""
        with _connect_errors():
            async with asyncio.timeout(deadline - monotonic()):
                streams = await asyncio.open_connection(server.host, server.port, ssl=context)
        return cls(*streams)

    async def exchange(self, request: bytes, *, deadline: float) -> Response:
        """Raises TimedOut, Unreachable or BadResponse."""
        reader = ResponseReader()
        with _exchange_errors():
            async with asyncio.timeout(deadline - monotonic()):
                # Not drained: the request is in memory anyway, and the server may respond before
                # it has read the whole request (413, for example). A failed drain would hide that.
                self._writer.write(request)
                while reader.response is None:
                    reader.feed(await self._reader.read(READ_BYTES))
        self.reusable = reader.keep_alive
        return reader.response

    def is_stale(self) -> bool:
        """Whether the connection has ended or belongs to another event loop."""
        return self._loop is not asyncio.get_running_loop() or self._reader.at_eof()

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # Its event loop is closed, and so is it.
            self._writer.close()


class Connection(Protocol):
    """What the pool needs of a connection."""

    def is_stale(self) -> bool: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=Connection)


class IdleConnections(Generic[C]):
    """Connections that wait for their next request; the latest used is taken first.

    Threads may share it. A deque's append and pop are atomic, so there is no lock that a fork could
    leave locked. A forked process never uses its parent's connections: both would read the
    responses.
    """

    def __init__(self) -> None:
        self._idle: deque[tuple[C, float]] = deque()
        self._process = os.getpid()
        self.closed = False

    def take(self, now: float) -> C | None:
        """A usable connection, or None."""
        if self.closed:
            raise RuntimeError("this client is closed")
        if self._process != os.getpid():
            self._idle = deque()
            self._process = os.getpid()
        while True:
            try:
                connection, since = self._idle.pop()
            except IndexError:
                return None
            if now - since < IDLE_S and not connection.is_stale():
                return connection
            connection.close()

    def put(self, connection: C, now: float) -> None:
        """Keep the connection for the next request, or close it if the pool is full or closed."""
        if self.closed or len(self._idle) >= IDLE_MAX or self._process != os.getpid():
            connection.close()
            return
        self._idle.append((connection, now))
        if self.closed:  # Another thread has closed the pool meanwhile.
            self.close()

    def close(self) -> None:
        """Close every idle connection."""
        self.closed = True
        while True:
            try:
                connection, _ = self._idle.pop()
            except IndexError:
                return
            connection.close()
