"""Accepts connections, several in one turn of the event loop; in one process or in many.

Uvloop would accept one in each turn. A busy server has long turns, and a client that opens a
connection would wait for one turn for each client that did so before it. Where few connections may
be open, few are accepted at once: a new one is not closed for another before its request was read.

With ``--processes`` all processes accept connections of one shared socket. A new connection wakes
each of them, and the first to wake would accept it. That may be the same one again and again;
clients keep their connections, so it would do most of the work. Therefore a process that is ahead
of another by more than an eighth gives way for a millisecond. A connection that still waits then it
accepts: the others are busy, stopped or gone. No waiting connection is lost with a process: the
queue belongs to the socket, which the supervisor and all processes hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Collection
from typing import Any

from homing.server.siblings import Siblings

GIVE_WAY_S = 0.001
NO_FILES_PAUSE_S = 0.1  # after a connection that could not be accepted: no descriptor is free
AT_ONCE_MAX = 16  # connections accepted in one turn of the event loop
AT_ONCE_SHARE = 16  # and at most one in so many of those that may be open
AHEAD = 8  # A process may be ahead by one in so many.


class Listener:
    """Accepts the connections of one socket in this process.

    At most ``connections_max`` are open at a time. ``siblings`` are the processes that share the
    socket, if there are several.
    """

    def __init__(
        self, listener: socket.socket, *, connections_max: int, siblings: Siblings | None = None
    ) -> None:
        self._listener, self._siblings = listener, siblings
        self._at_once = min(max(connections_max // AT_ONCE_SHARE, 1), AT_ONCE_MAX)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._opening: set[asyncio.Task[None]] = set()
        self._protocol: Callable[[], asyncio.Protocol] = asyncio.Protocol
        self._connections: Collection[Any] = ()

    def open(self, protocol: Callable[[], asyncio.Protocol], connections: Collection[Any]) -> None:
        """Accept from now on; ``connections`` are those of this process that are open."""
        self._loop = asyncio.get_running_loop()
        self._protocol, self._connections = protocol, connections
        self._listener.setblocking(False)
        if self._siblings is not None:
            self._siblings.serves()
        self._watch()

    async def close(self) -> None:
        """Accept no more; waiting connections are left to the other processes.

        On return every accepted connection is among the open ones.
        """
        if self._loop is not None:
            if self._siblings is not None:
                self._siblings.accepts_no_more()
            if self._timer is not None:
                self._timer.cancel()
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._loop = None
        if self._opening:
            await asyncio.wait(self._opening)

    def report(self) -> None:
        """Tell the other processes how many connections this one has."""
        if self._loop is not None and self._siblings is not None:
            self._siblings.has_connections(self._count())

    def _watch(self) -> None:
        assert self._loop is not None
        self._timer = None
        self._loop.add_reader(self._listener, self._readable)

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        assert self._loop is not None
        self._loop.remove_reader(self._listener)
        self._timer = self._loop.call_later(seconds, then)

    def _readable(self) -> None:
        for _ in range(self._at_once):
            if self._is_ahead():
                self._wait(GIVE_WAY_S, self._accept_what_waits)
                return
            if not self._accept():
                return

    def _is_ahead(self) -> bool:
        """Whether this process has clearly more connections than the one with the fewest."""
        if self._siblings is None:
            return False
        self.report()
        fewest = self._siblings.fewest_connections()
        return self._count() > fewest + fewest // AHEAD

    def _accept_what_waits(self) -> None:
        self._watch()
        for _ in range(1 + self._count() // AHEAD):
            if not self._accept():
                return

    def _count(self) -> int:
        return len(self._connections) + len(self._opening)

    def _accept(self) -> bool:
        """Accept one connection; False if none waits."""
        assert self._loop is not None
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return False
        except OSError:
            self._wait(NO_FILES_PAUSE_S, self._watch)
            return False
        connection.setblocking(False)
        task = self._loop.create_task(_begin(self._loop, self._protocol, connection))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        return True


async def _begin(
    loop: asyncio.AbstractEventLoop,
    protocol: Callable[[], asyncio.Protocol],
    connection: socket.socket,
) -> None:
    with contextlib.suppress(OSError):  # The client has gone.
        await loop.connect_accepted_socket(protocol, connection)
