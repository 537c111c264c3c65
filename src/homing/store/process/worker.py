"""A worker process: a child of the server that runs calls of the store outside the server's GIL.

``WorkerProcess`` is the server's side. The first call starts the process; calls go out on one
socket pair in the order in which they were made, also while the process starts, and each reply
has the number of its call. The first message contains the worker's arguments: a password is neither
on a command line nor in an environment.

- Death: if the process ends, its calls raise StoreUnavailable and the next call starts another.
- Hang: ``close`` waits ``CLOSE_S`` and then kills the process; ``kill_workers`` kills it at once.
- The number of waiting calls is limited.
- A worker does not outlive its parent: it ends when the parent closes the socket pair, and the
  kernel kills it when the parent dies.

The worker's side is ``begin_worker`` and ``encode_failure``; each worker has its own loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from homing.errors import HomingError, StoreUnavailable
from homing.store.process.codec import (
    START,
    Call,
    Frames,
    encode_call,
    encode_error,
)

CLOSE_S = 30
CALLS_MAX = 10_000  # that wait for their replies
RECEIVE_BYTES = 1 << 20
_SEND_BUFFER_BYTES = 4 << 20  # on the way to the worker; the kernel gives less if it must
_PR_SET_PDEATHSIG = 1
_ENDED = "The writer process ended."

_workers: set[subprocess.Popen[bytes]] = set()  # started and not yet waited for


def kill_workers() -> None:
    """Kill every worker, also one that is stopped: this process is about to end."""
    for process in list(_workers):
        with contextlib.suppress(OSError):
            process.kill()


class RpcConnection(asyncio.Protocol):
    """The server's end of a socket pair: sends calls and gives each its reply."""

    def __init__(self, connected: socket.socket | None = None) -> None:
        self._socket = connected
        self._transport: asyncio.Transport | None = None
        self._frames = Frames()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last_number = START
        self._finishing = False

    @classmethod
    async def over(cls, connected: socket.socket) -> RpcConnection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: cls(connected), sock=connected)
        return connection

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def call(
        self, port: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> asyncio.Future[Any]:
        """Send a call; the future gets its reply, or StoreUnavailable if the worker ends."""
        if self._transport is None or self._finishing:
            raise StoreUnavailable(_ENDED)
        if len(self._waiting) >= CALLS_MAX:
            raise StoreUnavailable("Too many calls wait for the writer process; try again later.")
        number = self._last_number + 1
        frame = encode_call(Call(number, port, method, args, kwargs))  # This may raise.
        self._last_number = number
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._write(self._transport, frame)
        return future

    def _write(self, transport: asyncio.Transport, frame: bytes) -> None:
        """Write at once if possible: a busy loop would write later, while the worker idles."""
        sent = 0
        if self._socket is not None and not transport.get_write_buffer_size():
            with contextlib.suppress(OSError):  # Full or broken: the transport handles it.
                sent = self._socket.send(frame)
        if sent < len(frame):
            transport.write(memoryview(frame)[sent:])

    def data_received(self, data: bytes) -> None:
        self._frames.add(data)
        for number, is_error, value in self._frames.replies():
            if number == START:
                self._fail_all(value)
                continue
            future = self._waiting.pop(number)
            if future.done():
                continue  # The caller was cancelled.
            if is_error:
                future.set_exception(value)
            else:
                future.set_result(value)

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        self._fail_all(StoreUnavailable(_ENDED))

    def _fail_all(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)

    def finish(self) -> None:
        """Take no more calls; calls that were sent still get their replies."""
        self._finishing = True
        if self._transport is not None:
            self._transport.write_eof()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class WorkerProcess:
    """The server's side of a worker: its process and the connection to it."""

    def __init__(self, module: str, *args: Any, environ: Mapping[str, str] | None = None) -> None:
        """``module`` is run as a program; its ``begin_worker`` returns ``args``."""
        self._module, self._args, self._environ = module, args, environ
        self._connection = RpcConnection()
        self._starting = asyncio.Lock()
        self._queued = 0  # calls that wait until the process has started
        self._closed = False
        self.process: subprocess.Popen[bytes] | None = None

    async def call(self, port: str, method: str, *args: Any, **kwargs: Any) -> Any:
        """Run a method of a port in the worker; StoreUnavailable if the worker ends first."""
        if not self._connection.is_open or self._queued:
            self._queued += 1  # A later call must not overtake: the lock is fair.
            try:
                await self.start()
            finally:
                self._queued -= 1
        return await self._connection.call(port, method, args, kwargs)

    async def start(self) -> None:
        """Start the process unless it runs, so that the first call need not wait for it."""
        async with self._starting:
            if self._closed:
                raise StoreUnavailable("The store is closed.")
            if not self._connection.is_open:
                await self._end()
                self._connection = await RpcConnection.over(self._spawn())

    def _spawn(self) -> socket.socket:
        """Start the process and send it its arguments; return the server's end of the pair."""
        server_end, worker_end = socket.socketpair()
        server_end.setblocking(False)
        server_end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        try:
            self.process = subprocess.Popen(  # noqa: S603 - it is this program
                [sys.executable, "-m", self._module, str(worker_end.fileno())],
                pass_fds=[worker_end.fileno()],
                stdin=subprocess.DEVNULL,
                env=self._environ,
            )
        except OSError as error:
            server_end.close()
            raise StoreUnavailable(f"No process can be started: {error.strerror}.") from error
        finally:
            worker_end.close()
        _workers.add(self.process)
        server_end.sendall(encode_call(Call(START, "", "", self._args, {})))  # The buffer is empty.
        return server_end

    async def _end(self) -> None:
        self._connection.close()
        if self.process is not None:
            self.process.kill()
            await asyncio.to_thread(self.process.wait)
            _workers.discard(self.process)

    async def close(self) -> None:
        """Let the worker finish the calls that it was sent, and end it."""
        async with self._starting:
            self._closed = True
            self._connection.finish()
            if self.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    await asyncio.to_thread(self.process.wait, CLOSE_S)
            await self._end()


# --- the worker's side ----------------------------------------------------------------------


class Begun(NamedTuple):
    """A worker that has its arguments; ``frames`` may hold calls that came with them."""

    socket: socket.socket
    frames: Frames
    args: tuple[Any, ...]


def begin_worker(fd: str) -> Begun:
    """Tie this process to its parent's life and read its arguments."""
    _end_with_parent()
    connection, frames = socket.socket(fileno=int(fd)), Frames()
    while data := connection.recv(RECEIVE_BYTES):
        frames.add(data)
        if (call := next(frames.calls(), None)) is not None:
            gc.freeze()  # Loaded modules stay; rows are plain values without cycles.
            gc.set_threshold(50_000, 20, 50)
            return Begun(connection, frames, call.args)
    sys.exit(1)  # The parent closed the connection first.


def _end_with_parent() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # The parent gets them, too, and ends this one.
    die_with_parent(os.getppid())


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(1)  # The parent ended before the call of prctl.


def encode_failure(call: Call, error: Exception, *, driver_error: type[Exception]) -> bytes:
    """The reply of a call that failed: a HomingError as it is, any other error as RuntimeError.

    Of a database driver's error only the type is sent: its text could quote a row.
    """
    if isinstance(error, HomingError):
        return encode_error(call.number, error)
    text = type(error).__name__
    if not isinstance(error, driver_error):
        text = f"{text}: {error}"
    return encode_error(call.number, RuntimeError(f"{call.method}: {text}"))
