"""A complete server in this process, for tests with raw sockets."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from homing.server.http_server import HttpServer
from homing.server.settings import Settings
from homing.server.wiring import Running, running
from security.framing import KEY

RESPONSE_WITHIN_S = 20.0  # long, for a busy machine; nothing waits for it when all is well


@dataclass
class Served:
    """The address of the server, and its parts."""

    port: int
    server: HttpServer
    house: Running

    @contextlib.asynccontextmanager
    async def line(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """One connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def say(self, data: bytes) -> tuple[list[int], bytes, bool]:
        """The codes of all responses, the bytes, and whether the connection was closed."""
        async with self.line() as (reader, writer):
            writer.write(data)
            got, ended = await until_end(reader)
            return (
                [int(code) for code in re.findall(rb"^HTTP/1.1 (\d+)", got, re.MULTILINE)],
                got,
                ended,
            )


async def until_end(reader: asyncio.StreamReader) -> tuple[bytes, bool]:
    """The bytes until the connection is closed, and whether it was closed."""
    got = b""
    try:
        async with asyncio.timeout(RESPONSE_WITHIN_S):
            while data := await reader.read(65536):
                got += data
    except TimeoutError:
        return got, False
    except ConnectionError:
        pass
    return got, True


@contextlib.asynccontextmanager
async def served(**more: Any) -> AsyncIterator[Served]:
    """A server on a free port, with these settings."""
    settings = Settings.of(listen="127.0.0.1:0", allow_loopback=True, grace_ms=1_000, **more)
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as listener:
        async with running(settings, admin_key=KEY, in_memory=True) as house:
            server = HttpServer(house.config)
            task = asyncio.create_task(server.serve(sockets=[listener]))
            while not server.started:
                await asyncio.sleep(0)
            try:
                yield Served(listener.getsockname()[1], server, house)
            finally:
                server.should_exit = server.force_exit = True
                await task
