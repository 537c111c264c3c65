"""Over TLS: a server that can be trusted is talked to, any other one is not."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

from client.both import Make, both, raised
from client.scripted import ACCEPTED
from homing_client import NotTrusted
from net.certificates import Authority


@contextlib.asynccontextmanager
async def listening(context: ssl.SSLContext) -> AsyncIterator[str]:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = head.partition("content-length: ")[2].partition("\r\n")[0]
                await reader.readexactly(int(length))
                writer.write(ACCEPTED)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@both
async def test_a_server_is_talked_to_when_its_certificate_can_be_trusted(
    make: Make, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    trusting = ssl.create_default_context(cafile=str(authority.ca_file))
    async with listening(authority.server("127.0.0.1")) as url:
        homing = make(url, ssl_context=trusting)
        for _ in range(2):
            assert (await homing.publish("a", 1)).id == "an-id"
        await homing.close()
        assert isinstance(await raised(make(url).publish("a", 1)), NotTrusted)
    async with listening(authority.server("other.example")) as url:
        assert isinstance(await raised(make(url, ssl_context=trusting).publish("a", 1)), NotTrusted)
