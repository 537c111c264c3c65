"""Which of several processes accepts a connection: the one with the fewest, on one shared socket.

A new connection wakes every process, and the first to wake would accept it. That may be the same
one again and again; clients keep their connections, so it would do most of the work. Therefore a
process that is ahead of another by more than an eighth gives way for a millisecond. A connection
that still waits then it accepts: the others are busy, stopped or gone. No waiting connection is
lost with a process: the queue belongs to the socket, which the supervisor and all processes hold.
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
AHEAD = 8  # A process may be ahead by one in so many.


class SharedListener:
    """Accepts connections of the socket of all siblings in this process."""

    def __init__(self, siblings: Siblings) -> None:
        self._siblings = siblings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._opening: set[asyncio.Task[Any]] = set()
        self._protocol: Callable[[], asyncio.Protocol] = asyncio.Protocol
        self._connections: Collection[Any] = ()

    def open(self, protocol: Callable[[], asyncio.Protocol], connections: Collection[Any]) -> None:
        """Accept from now on; ``connections`` are those of this process that are open."""
        self._loop = asyncio.get_running_loop()
        self._protocol, self._connections = protocol, connections
        self._siblings.listener.setblocking(False)
        self._siblings.serves()
        self._watch()

    def close(self) -> None:
        """Accept no more; waiting connections are left to the other processes."""
        if self._loop is None:
            return
        self._siblings.accepts_no_more()
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._siblings.listener)
        self._siblings.listener.close()
        self._loop = None

    def report(self) -> None:
        """Tell the others how many connections this process has."""
        if self._loop is not None:
            self._siblings.has_connections(self._count())

    def _watch(self) -> None:
        assert self._loop is not None
        self._timer = None
        self._loop.add_reader(self._siblings.listener, self._readable)

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        assert self._loop is not None
        self._loop.remove_reader(self._siblings.listener)
        self._timer = self._loop.call_later(seconds, then)

    def _readable(self) -> None:
        for _ in range(AT_ONCE_MAX):
            self.report()
            fewest = self._siblings.fewest_connections()
            if self._count() > fewest + fewest // AHEAD:
                self._wait(GIVE_WAY_S, self._accept_what_waits)
                return
            if not self._accept():
                return

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
            connection, _ = self._siblings.listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return False
        except OSError:
            self._wait(NO_FILES_PAUSE_S, self._watch)
            return False
        connection.setblocking(False)
        task = self._loop.create_task(self._begin(connection))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        return True

    async def _begin(self, connection: socket.socket) -> None:
        assert self._loop is not None
        with contextlib.suppress(OSError):  # The client has gone.
            await self._loop.connect_accepted_socket(self._protocol, connection)
