"""What the processes of one supervisor share: the socket, and how many connections each one has.

It is made before the first fork and inherited. ``metrics_exchange`` uses the inboxes: a datagram
to a process waits in its inbox until the process reads it, also while it is being started.
"""

from __future__ import annotations

import contextlib
import mmap
import signal
import socket

ABSENT = 2**31 - 1  # connections of a process that accepts none
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Siblings:
    """The shared parts; in a serving process also which one it is."""

    def __init__(self, listener: socket.socket, count: int) -> None:
        self.listener, self.count = listener, count
        self.number = -1  # of this process, from 0; -1 in the supervisor
        self.was_alone = True  # when this process was started, no other one served
        self._wake: socket.socket | None = None
        self._connections = memoryview(mmap.mmap(-1, 4 * count)).cast("i")
        for number in range(count):
            self._connections[number] = ABSENT
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(count)]
        for pair in pairs:
            for end in pair:
                end.setblocking(False)
        self._inboxes = pairs  # of each process: where it reads, where others write

    def become(self, number: int, *, alone: bool, wake: socket.socket) -> None:
        """Called in a process that has just been started; ``wake`` wakes the supervisor."""
        self.number, self.was_alone, self._wake = number, alone, wake

    def take_signals(self) -> None:
        """Let signals in that arrived before this process could handle them."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)

    # --- connections --------------------------------------------------------------------------

    def serves(self) -> None:
        """This process accepts connections from now on."""
        self.has_connections(0)
        assert self._wake is not None, "only a serving process serves"
        with contextlib.suppress(BlockingIOError):  # The supervisor has enough to wake it.
            self._wake.send(b"\0")

    def has_connections(self, count: int) -> None:
        self._connections[self.number] = count

    def accepts_no_more(self, number: int | None = None) -> None:
        """A process stops, or the supervisor has seen its end."""
        self._connections[self.number if number is None else number] = ABSENT

    def somebody_serves(self) -> bool:
        return any(count != ABSENT for count in self._connections)

    def fewest_connections(self) -> int:
        """Of the processes that accept connections."""
        return min(self._connections)

    # --- messages -----------------------------------------------------------------------------

    @property
    def inbox(self) -> socket.socket:
        return self._inboxes[self.number][0]

    def send(self, number: int, message: bytes) -> None:
        """Send a message; it is lost if the inbox is full."""
        with contextlib.suppress(OSError):
            self._inboxes[number][1].send(message)
