"""A blocking connection: bytes out, an answer in, all of it before a moment."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl

from homing.client.errors import NotTrusted, TimedOut, Unreachable
from homing.client.http1 import Answer, AnswerReader, Site
from homing.client.pace import monotonic

READ_BYTES = 64 * 1024


class SocketLine:
    """One connection; one request at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.keep = False  # whether another request may follow

    @classmethod
    def open(cls, site: Site, context: ssl.SSLContext | None, *, until: float) -> SocketLine:
        """Raises TimedOut, Unreachable or NotTrusted; nothing has been sent then."""
        try:
            address = (site.host, site.port)
            connection = socket.create_connection(address, timeout=_left(until))
            try:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if context is not None:
                    connection.settimeout(_left(until))
                    connection = context.wrap_socket(connection, server_hostname=site.host)
            except BaseException:
                connection.close()
                raise
        except ssl.SSLCertVerificationError as error:
            raise NotTrusted(error.verify_message) from error
        except TimeoutError as error:
            raise TimedOut("It did not take the connection.", maybe_done=False) from error
        except OSError as error:
            raise Unreachable(f"{error}.", maybe_done=False) from error
        return cls(connection)

    def ask(self, request: bytes, *, until: float) -> Answer:
        """Raises TimedOut, Unreachable or BadAnswer."""
        reader = AnswerReader()
        try:
            with contextlib.suppress(ConnectionError):  # It may have answered before it hung up.
                self._connection.settimeout(_left(until))
                self._connection.sendall(request)
            while reader.answer is None:
                self._connection.settimeout(_left(until))
                reader.feed(self._connection.recv(READ_BYTES))
        except TimeoutError as error:
            raise TimedOut(maybe_done=True) from error
        except EOFError as error:
            raise Unreachable("The connection ended early.", maybe_done=True) from error
        except OSError as error:
            raise Unreachable(f"{error}.", maybe_done=True) from error
        self.keep = reader.keep
        return reader.answer

    def stale(self) -> bool:
        """Nothing is asked, so nothing may come: what can be read is the end."""
        if not hasattr(select, "poll"):
            return bool(select.select([self._connection], [], [], 0)[0])
        poll = select.poll()  # Unlike select, it takes any number of a descriptor.
        poll.register(self._connection, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        self._connection.close()


def _left(until: float) -> float:
    left = until - monotonic()
    if left <= 0:
        raise TimeoutError
    return left
