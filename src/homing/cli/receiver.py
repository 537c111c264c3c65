"""A small HTTP receiver for ``homing listen`` and ``homing demo``: a handler chooses the status."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus

from msgspec import Struct

HEAD_BYTES_MAX = 64 * 1024
BODY_BYTES_MAX = 16 * 1024 * 1024


class ReceivedRequest(Struct, frozen=True):
    """A whole request."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]  # names as they were sent
    body: bytes

    def header(self, name: str) -> str:
        """The value of a header; empty if it is missing."""
        found = [value for key, value in self.headers if key.lower() == name]
        return found[0] if found else ""


Handler = Callable[[ReceivedRequest], Awaitable[int]]


@contextlib.asynccontextmanager
async def receiver(handler: Handler, *, host: str, port: int = 0) -> AsyncIterator[int]:
    """Listen and yield the port; each response has the status that the handler returns."""
    connections: set[asyncio.Task[None] | None] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        connections.add(task)
        try:
            await _respond_to_all(reader, writer, handler)
        except asyncio.CancelledError:
            return  # Cancelled below; asyncio would report it as an error.
        finally:
            connections.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, host, port, limit=HEAD_BYTES_MAX)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in list(connections):
            if task is not None:
                task.cancel()
        await asyncio.sleep(0)


async def _respond_to_all(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler
) -> None:
    with contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError):
        while True:
            try:
                request = await _read(reader)
            except ValueError:
                writer.write(_status(HTTPStatus.BAD_REQUEST, close=True))
                return
            status = await handler(request)
            writer.write(_status(status, close=False))
            await writer.drain()


async def _read(reader: asyncio.StreamReader) -> ReceivedRequest:
    """Raises ValueError for anything but a request with a content-length."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ", 2)
    headers = []
    for line in head[1:-2]:
        name, _, value = line.partition(":")
        headers.append((name, value.strip()))
    request = ReceivedRequest(method, path, tuple(headers), b"")
    if request.header("transfer-encoding"):
        raise ValueError("only bodies with a content-length are read")
    length = int(request.header("content-length") or "0")
    if not 0 <= length <= BODY_BYTES_MAX:
        raise ValueError("the body is too long")
    return ReceivedRequest(method, path, tuple(headers), await reader.readexactly(length))


def _status(status: int, *, close: bool) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Status"
    end = "connection: close\r\n" if close else ""
    return f"HTTP/1.1 {status} {phrase}\r\ncontent-length: 0\r\n{end}\r\n".encode()
