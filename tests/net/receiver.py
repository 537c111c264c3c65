"""Receivers that say exactly what a test wants said, and a way to ask them."""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from homing.model import Target, TlsIdentity
from homing.net.resolver import GetAddrInfo
from homing.ports import Request, Response, Sender

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
PATIENT_MS = 20_000  # for what must not depend on the speed of the machine


class Call:
    """One connection as its receiver sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.got = b""
        self.over = asyncio.Event()  # the sender has closed, and so have we

    async def request(self) -> bytes:
        """The next whole request; empty when the sender is gone."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            self.got += error.partial
            return b""
        length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        whole = head + await self.reader.readexactly(length)
        self.got += whole
        return whole

    async def say(self, *parts: bytes) -> None:
        """Each part as a segment of its own, as far as that can be arranged."""
        for part in parts:
            if self.writer.transport.is_closing():  # On uvloop a write would be an error then.
                raise ConnectionResetError
            self.writer.write(part)
            await self.writer.drain()
            if len(parts) > 1:
                await asyncio.sleep(0.001)

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def gone(self) -> None:
        """Until the sender has closed."""
        with suppress(ConnectionError):
            while data := await self.reader.read(65536):
                self.got += data


class Receiver:
    """A server on loopback; ``calls`` are its connections in order."""

    def __init__(self, port: int, calls: list[Call]) -> None:
        self.port = port
        self.calls = calls


Behaviour = Callable[[Call], Awaitable[None]]


@asynccontextmanager
async def receiver(
    behave: Behaviour, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Receiver]:
    """Runs ``behave`` for every connection and closes it afterwards."""
    calls: list[Call] = []
    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        call = Call(reader, writer)
        calls.append(call)
        try:
            with suppress(ConnectionError, ssl.SSLError, asyncio.CancelledError):
                await behave(call)
        finally:
            writer.close()
            call.over.set()
            tasks.discard(task)

    server = await asyncio.start_server(serve, host, 0, ssl=tls, backlog=1000)
    try:
        yield Receiver(server.sockets[0].getsockname()[1], calls)
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.sleep(0)


async def say_ok(call: Call) -> None:
    """A good receiver with keep-alive."""
    while await call.request():
        await call.say(OK)


def a_target(port: int, *, scheme: str = "http", host: str = "127.0.0.1") -> Target:
    return Target(scheme, host, port, "/hook?a=1", f"{host}:{port}")


def a_request(
    target: Target,
    *,
    deadline_ms: int = PATIENT_MS,
    body: bytes = b"{}",
    tenant: str = "default",
    tls: TlsIdentity | None = None,
) -> Request:
    lines = b"content-type: application/json\r\n"
    return Request(tenant, target, lines, body, deadline_ms, tls)


async def ask(sender: Sender, request: Request) -> Response:
    """One attempt, and a check that it is answered once."""
    (response,) = await ask_all(sender, [request])
    return response


async def ask_all(sender: Sender, requests: Sequence[Request]) -> list[Response]:
    """Attempts side by side; the responses in the order of the requests."""
    loop = asyncio.get_running_loop()
    responses: list[asyncio.Future[Response]] = [loop.create_future() for _ in requests]
    for request, response in zip(requests, responses, strict=True):
        sender.send(request, response.set_result)  # A second call raises, and the loop reports it.
    return [await response for response in responses]


def names(**known: str | Exception) -> GetAddrInfo:
    """A look-up that knows these names (with ``_`` for ``.``) and counts what it is asked."""

    def getaddrinfo(host: str, port: int, **_: object) -> list[tuple[Any, ...]]:
        response = known[host.replace(".", "_")]
        if isinstance(response, Exception):
            raise response
        return [
            (socket.AF_INET6, 1, 6, "", (ip, port, 0, 0))
            if ":" in ip
            else (socket.AF_INET, 1, 6, "", (ip, port))
            for ip in response.split()
        ]

    return getaddrinfo


def a_free_port() -> int:
    """A port on loopback that nobody listens on.

    It is below the ports that the system gives to outgoing connections: one of those could be in
    use a moment later.
    """
    while True:
        port = 10_000 + secrets.randbelow(22_000)
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
