"""The line between a process and a child that does a part of its work: calls out, answers back.

The child has no life of its own: it ends with its parent, by the kernel's hand if need be. If the
child alone ends, what it was asked is StoreUnavailable. ``child`` has the process itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
from collections import deque
from typing import Any, cast

from homing.errors import StoreUnavailable
from homing.store.wire import Call, Frames, is_publish, write_call

RECEIVE_BYTES = 1 << 20
_LINE_BYTES = 4 << 20  # what may be on its way to the child; the kernel gives less if it must
_PR_SET_PDEATHSIG = 1
_ENDED = "The writer's process ended."


class Answers(asyncio.Protocol):
    """The parent's end of a line: answers come in the order of the calls, publishes apart."""

    def __init__(self, line: socket.socket | None = None) -> None:
        self._line = line
        self._frames = Frames()
        self._publishes: deque[asyncio.Future[Any]] = deque()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._hung_up = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def ask(self, call: Call) -> asyncio.Future[Any]:
        if self.transport is None or self._hung_up:
            raise StoreUnavailable(_ENDED)  # as soon as it had begun, or by us
        frame = write_call(call)  # What cannot be written waits for no answer.
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        (self._publishes if is_publish(call) else self._waiting).append(future)
        self._write(self.transport, frame)
        return future

    def _write(self, transport: asyncio.Transport, frame: bytes) -> None:
        """At once if it can be: a busy loop writes late, and the child would wait for nothing."""
        sent = 0
        if self._line is not None and not transport.get_write_buffer_size():
            with contextlib.suppress(OSError):  # It is full, or broken: the transport will see.
                sent = self._line.send(frame)
        if sent < len(frame):
            transport.write(memoryview(frame)[sent:])

    def data_received(self, data: bytes) -> None:
        self._frames.add(data)
        for publish, fine, value in self._frames.answers():
            mine, others = self._waiting, self._publishes
            if publish:
                mine, others = others, mine
            future = (mine or others).popleft()  # A child that cannot begin tells whoever is first.
            if future.done():
                continue  # Who asked has stopped waiting.
            if fine:
                future.set_result(value)
            else:
                future.set_exception(value)

    def connection_lost(self, _error: Exception | None) -> None:
        self.transport = None
        waiting = [*self._publishes, *self._waiting]
        self._publishes, self._waiting = deque(), deque()
        for future in waiting:
            if not future.done():
                future.set_exception(StoreUnavailable(_ENDED))

    def hang_up(self) -> None:
        """Nothing more is asked; what was asked is still answered."""
        self._hung_up = True
        if self.transport is not None:
            self.transport.write_eof()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()


async def answers_on(line: socket.socket) -> Answers:
    """Our end of a line, ready to be asked."""
    loop = asyncio.get_running_loop()
    _, answers = await loop.create_connection(lambda: Answers(line), sock=line)
    return answers


def new_line() -> tuple[socket.socket, socket.socket]:
    """Our end, and the child's."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LINE_BYTES)
    return ours, theirs


def end_with_parent() -> None:
    """For a child that begins: its life is its parent's."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # The parent is told, and lets us finish.
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(1)  # It was gone before we asked.
