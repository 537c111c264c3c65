"""Keys that are revoked while streams, long polls, exports, live pages and bodies are open.

Each key holds one of each, on a connection of its own, with a real server; a tenant has one export
at a time. Then all keys but one are revoked, and events are published: nothing of them may arrive
at a revoked key, and everything that it held must end within one wait. The last key gets all of
them, and an export that is whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from acceptance.running import HONEST, Server
from homing.app.pull import STREAM_WAIT_MS
from security.part import Part, Toll

EVENTS, BATCH = 20_000, 1_000  # before: an export of them does not fit into the buffers of sockets
LATE_EVENTS = 5
LATE = "after-the-end"  # a mark in what nobody may get
WITHIN_S = STREAM_WAIT_MS / 1000 + 10
NEVER_ASKS = (
    "import asyncio, homing.app.access as it; it.Caller.must_live = lambda _: asyncio.sleep(0); "
    "import runpy; runpy.run_module('homing.cli.main', run_name='__main__')"
)


def ended_key_parts(*, quick: bool, seed: int) -> list[Part]:
    """Shows what-homing-promises.md#hostile-input, of streams and long polls."""
    del seed
    keys = 10 if quick else 60
    return [
        Part(
            "streams of keys that end",
            lambda at: ended(at, keys=keys),
            lambda at: ended(at, keys=2, argv=("-c", NEVER_ASKS)),
        )
    ]


@dataclass
class Open:
    """One open request, and what has arrived of its response."""

    kind: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    got: bytearray = field(default_factory=bytearray)
    has_ended: bool = False

    async def read_on(self) -> None:
        with contextlib.suppress(OSError):
            while part := await self.reader.read(65_536):
                self.got += part
        self.has_ended = True

    @property
    def is_whole(self) -> bool:
        return self.got.endswith(b"\r\n0\r\n\r\n")


class Holder:
    """A key, and what it holds open."""

    def __init__(self, port: int, key: dict[str, Any], stream: str) -> None:
        self._port, self.key, self._stream = port, key, stream
        self.open: list[Open] = []

    async def _say(self, kind: str, head: str, body: bytes = b"", *, slow: bool = True) -> Open:
        made = socket.socket()
        if slow:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", self._port))
        reader, writer = await asyncio.open_connection(sock=made, limit=4_096)
        writer.write(f"{head}\r\nhost: 127.0.0.1:{self._port}\r\n".encode() + body)
        return Open(kind, reader, writer)

    async def hold(self, *, exports: bool) -> None:
        """Open one of each."""
        key = f"authorization: Bearer {self.key['key']}\r\n"
        form = urlencode({"key": self.key["key"]})
        signing = await self._say(
            "sign in",
            "POST /sign-in HTTP/1.1",
            f"connection: close\r\ncontent-length: {len(form)}\r\n\r\n{form}".encode(),
        )
        await signing.read_on()
        (cookie,) = re.findall(rb"set-cookie: (homing_session=[^;]+)", signing.got)
        cookie = b"cookie: " + cookie + b"\r\n\r\n"
        made = json.dumps({"types": ["late.*"], "tenant": "acme"}).encode()
        slow = f"{key}content-length: {len(made)}\r\n\r\n".encode() + made[:5]
        bearer = f"{key}\r\n".encode()
        self._rest = made[5:]
        self.open = [
            await self._say("stream", f"GET {self._stream}/stream HTTP/1.1", bearer),
            await self._say("long poll", f"GET {self._stream}/events?wait=20s HTTP/1.1", bearer),
            await self._say("live page", "GET /live HTTP/1.1", cookie),
            await self._say("body", "POST /v1/subscriptions HTTP/1.1", slow),
        ]
        self._export = "GET /events.ndjson HTTP/1.1", cookie
        if exports:
            self.open.insert(0, await self._say("export", *self._export))
        for one in self.open:
            if one.kind in {"stream", "live page", "export"}:  # Its response has begun.
                one.got += await one.reader.readuntil(b"\r\n\r\n")
                assert b" 200 " in one.got[:20], (one.kind, bytes(one.got))

    def go_on(self) -> list[asyncio.Task[None]]:
        """Read everything that arrives from now on; the rest of the body is sent."""
        self.open[-1].writer.write(self._rest)
        return [asyncio.create_task(it.read_on()) for it in self.open]

    async def export(self) -> Open:
        """A whole export."""
        path, cookie = self._export
        once = b"connection: close\r\n" + cookie
        one = await self._say("export", path, once, slow=False)
        await one.read_on()
        one.writer.close()
        return one

    def close(self) -> None:
        for one in self.open:
            one.writer.transport.abort()


async def ended(folder: Path, *, keys: int, argv: tuple[str, ...] = HONEST) -> Toll:
    """Revoke keys with everything open, and look at what arrives."""
    toll, server = Toll(), Server(folder / "data", argv=argv)
    await server.start()
    line = server.line()
    holders: list[Holder] = []
    reading: list[asyncio.Task[None]] = []
    try:
        for _ in range(EVENTS // BATCH):
            data = [{"type": "a.b", "data": "x" * 200, "tenant": "acme"}] * BATCH
            assert (await line.ask("POST", "/v1/events", data)).status == 202
        made = await line.ask("POST", "/v1/subscriptions", {"types": ["*"], "tenant": "acme"})
        stream = f"/v1/subscriptions/{made.json['id']}"
        for number in range(keys + 1):
            given = {"name": f"k{number}", "role": "manager", "tenant": "acme"}
            holders.append(
                Holder(server.port, (await line.ask("POST", "/v1/keys", given)).json, stream)
            )
        kept = holders[-1]
        for holder in holders:
            await holder.hold(exports=holder is holders[0])
        for holder in holders[:-1]:
            gone = await line.ask("DELETE", f"/v1/keys/{holder.key['id']}")
            assert gone.status == 204
        reading = [task for holder in holders for task in holder.go_on()]
        for number in range(LATE_EVENTS):
            event = {"type": "a.b", "data": f"{LATE} {number}", "tenant": "acme"}
            assert (await line.ask("POST", "/v1/events", event)).status == 202
            await asyncio.sleep(0.2)
        await asyncio.wait(reading[: -len(kept.open)], timeout=WITHIN_S)
        if not (await kept.export()).is_whole:
            toll.blame("the export of the key that was kept did not end")
        _judge(toll, holders[:-1], kept)
    finally:
        for task in reading:
            task.cancel()
        for holder in holders:
            holder.close()
        line.close()
        await server.terminate()
    return toll


def _judge(toll: Toll, revoked: list[Holder], kept: Holder) -> None:
    for one in (it for holder in revoked for it in holder.open):
        toll.fired += 1
        if LATE.encode() in one.got:
            toll.blame(f"a {one.kind} got an event that was published after its key had ended")
        if not one.has_ended and one.kind != "body":
            toll.blame(f"a {one.kind} was still open after {WITHIN_S:g} s")
        if one.kind == "export" and one.is_whole:
            toll.blame("an export went on to its end")
        if one.kind in {"body", "long poll"} and not one.got.startswith(b"HTTP/1.1 401 "):
            toll.blame(f"a {one.kind} got {bytes(one.got[:40])!r} instead of a 401")
    whole = {it.kind: it for it in kept.open}
    toll.figures["arrived_at_the_other_key"] = arrived = whole["stream"].got.count(LATE.encode())
    if arrived != LATE_EVENTS:
        toll.blame(f"the key that was kept got {arrived} of {LATE_EVENTS} events")
    if not whole["body"].got.startswith(b"HTTP/1.1 201 "):
        toll.blame("the body of the key that was kept was not accepted")
