"""Two servers on one PostgreSQL: a session and its live streams end in both."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlencode

from homing.server.serve import serving
from homing.server.settings import Settings
from postgres import Server

KEY = "hk_fleet-sessions-key-0123"
WITHIN_S = 60.0  # The machine may be busy; it takes about two seconds.


class Person:
    """Somebody with a cookie, at one of the servers."""

    def __init__(self, address: str, cookie: str = "") -> None:
        self.address, self.cookie = address, cookie
        self._open: list[asyncio.StreamWriter] = []  # A writer that is forgotten is closed.

    async def ask(self, method: str, path: str, body: bytes = b"") -> asyncio.StreamReader:
        host, _, port = self.address.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        lines = (
            f"{method} {path} HTTP/1.1",
            f"host: {host}:{port}",
            f"origin: {self.address}",
            f"authorization: Bearer {KEY}",
            f"cookie: {self.cookie}",
            f"content-length: {len(body)}",
            "connection: close",
        )
        self._open.append(writer)
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        return reader

    async def page(self, method: str, path: str, body: bytes = b"") -> str:
        """The whole response."""
        reader = await self.ask(method, path, body)
        return (await asyncio.wait_for(reader.read(), WITHIN_S)).decode()

    async def sign_in(self, key: str) -> None:
        got = await self.page("POST", "/sign-in", urlencode({"key": key}).encode())
        (self.cookie,) = re.findall(r"set-cookie: (homing_session=[^;]+)", got)

    async def sign_out(self) -> None:
        (token,) = set(re.findall(r'name="csrf" value="(\w+)"', await self.page("GET", "/")))
        got = await self.page("POST", "/sign-out", urlencode({"csrf": token}).encode())
        assert got.startswith("HTTP/1.1 303"), got

    async def is_in(self) -> bool:
        return (await self.page("GET", "/")).startswith("HTTP/1.1 200")

    async def stream(self) -> asyncio.StreamReader:
        reader = await self.ask("GET", "/live")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WITHIN_S)
        assert head.startswith(b"HTTP/1.1 200"), head
        return reader


async def _story(dsn: str, folder: Path) -> None:
    async with AsyncExitStack() as stack:
        here, there = [
            (
                await stack.enter_async_context(
                    serving(
                        Settings.of(
                            data=str(folder),  # with the key that encrypts
                            database_url=dsn,
                            listen="127.0.0.1:0",
                            grace_ms=500,
                        ),
                        admin_key=KEY,
                    )
                )
            )[0]
            for _ in range(2)
        ]
        given = json.dumps({"name": "n", "role": "viewer", "tenant": "acme"}).encode()
        got = await Person(here).page("POST", "/v1/keys", given)
        made = got.partition("\r\n\r\n")[2]
        key = json.loads(made)
        first, second, boss = Person(here), Person(here), Person(here)
        await first.sign_in(key["key"])
        await second.sign_in(key["key"])
        await boss.sign_in(KEY)
        copies = [Person(there, it.cookie) for it in (first, second, boss)]
        streams = [await it.stream() for it in copies]
        assert [await it.is_in() for it in copies] == [True, True, True]

        await first.sign_out()
        await asyncio.wait_for(streams[0].read(), WITHIN_S)
        assert [await it.is_in() for it in copies] == [False, True, True]

        await Person(here).page("DELETE", f"/v1/keys/{key['id']}")
        await asyncio.wait_for(streams[1].read(), WITHIN_S)
        assert [await it.is_in() for it in copies] == [False, False, True]
        assert not streams[2].at_eof()


async def test_a_session_ends_in_every_process_of_a_fleet(postgres: Server, tmp_path: Path) -> None:
    await _story(await postgres.make(), tmp_path)
