"""The far side: a receiver in another process, which counts requests and takes orders.

How it responds is the first part of the path: ``/ok/…`` at once, ``/slow/…`` after a while,
``/hang/…`` never, ``/drip/…`` with a byte of its head a second, ``/ill/…`` with 500 until an order
changes it. Orders come on standard input and get their replies on standard output, a line of JSON
each; the process ends when its standard input ends. Data with ``tag`` and ``at`` (seconds of the
monotonic clock, which all processes of a machine share) is recorded with the time that it took.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from functools import partial
from typing import Any

import uvloop

OK = b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n"
DRIP_EVERY_S = 1.0
ILL = b"HTTP/1.1 500 Ill\r\ncontent-length: 0\r\n\r\n"


class Ramp:
    """The requests of one URL in flight, compared with the limit of slow start."""

    def __init__(self, most: int, probes: int) -> None:
        self._most = most
        self.flying = self.peak = self.over = 0
        self.responded = -probes
        self.seconds: Counter[int] = Counter()

    def arrives(self) -> None:
        self.flying += 1
        self.peak = max(self.peak, self.flying)
        allowed = 1
        while allowed < self._most and self.responded >= 2 * allowed - 1:
            allowed *= 2
        self.over += self.flying > allowed
        self.seconds[int(time.monotonic())] += 1

    def leaves(self) -> None:
        self.flying -= 1
        self.responded += 1

    @property
    def told(self) -> dict[str, int]:
        busiest = max(self.seconds.values(), default=0)
        told = {"peak": self.peak, "over": self.over, "responded": self.responded}
        return {**told, "flying": self.flying, "second": busiest}


class Books:
    """The requests so far, and how to respond."""

    def __init__(self) -> None:
        self.delay_s = 0.02
        self.ill = True
        self.slots = 16
        self.probes = 0  # so many come before the ramp begins
        self.hanging = 0
        self.longest_s = 0.0  # that one of those hung
        self.open: set[asyncio.StreamWriter] = set()
        self.forget()

    def forget(self) -> None:
        self.ids: set[str] = set()
        self.requests = 0
        self.last_at = 0.0
        self.lags: defaultdict[str, list[float]] = defaultdict(list)
        self.ramps: dict[str, Ramp] = {}

    def note(self, headers: dict[str, str], body: bytes) -> None:
        self.requests += 1
        self.last_at = time.monotonic()
        self.ids.add(headers["webhook-id"])
        data = json.loads(body)["data"]
        if isinstance(data, dict) and "tag" in data:
            self.lags[data["tag"]].append((time.monotonic() - data["at"]) * 1000)

    def ramp(self, path: str) -> Ramp:
        return self.ramps.setdefault(path, Ramp(self.slots, self.probes))


async def _drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nx: ")
    while not reader.at_eof() and not writer.is_closing():
        writer.write(b"y")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRIP_EVERY_S):
                await reader.read(1)


async def _hold(
    books: Books, kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Wait until the other side closes."""
    books.hanging += 1
    began = time.monotonic()
    try:
        await (_drip(reader, writer) if kind == "drip" else reader.read(1))
    finally:
        books.hanging -= 1
        books.longest_s = max(books.longest_s, time.monotonic() - began)


async def _response(
    books: Books, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bytes:
    """The response, when it is time; empty if the other side has closed."""
    kind = path.split("/")[1]
    if kind == "ok":
        return OK
    if kind in {"hang", "drip"}:
        await _hold(books, kind, reader, writer)
        return b""
    if kind == "ill" and books.ill:
        return ILL
    ramp = books.ramp(path)
    ramp.arrives()
    await asyncio.sleep(books.delay_s)
    ramp.leaves()
    return OK


async def _serve(books: Books, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    books.open.add(writer)
    with contextlib.suppress(OSError, EOFError):
        response = OK
        while response:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in head[1:] if line)
            books.note(headers, await reader.readexactly(int(headers["content-length"])))
            response = await _response(books, head[0].split(" ")[1], reader, writer)
            writer.write(response)
    books.open.discard(writer)
    writer.close()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Orders:
    """The orders."""

    def __init__(self, books: Books) -> None:
        self._books = books

    def link(self, network: str, here: str) -> None:
        """Connect: this side gets all addresses of a network."""
        _ip("link", "set", "lo", "up")
        _ip("addr", "add", f"{here}/24", "dev", "far")
        _ip("link", "set", "far", "up")
        _ip("route", "add", "local", network, "dev", "lo")

    def deaf(self, to: str) -> None:
        """Respond to nothing from there: no packet is routed back."""
        _ip("route", "add", "blackhole", f"{to}/32")

    def hear(self, to: str) -> None:
        _ip("route", "del", "blackhole", f"{to}/32")

    def drop_packets(self, addresses: list[str], *, stop: bool = False) -> None:
        """Drop packets to these addresses, or stop dropping them."""
        verb = "del" if stop else "add"
        lines = "".join(f"route {verb} blackhole {it}/32 table local\n" for it in addresses)
        subprocess.run(["ip", "-batch", "-"], input=lines.encode(), check=True, capture_output=True)

    def set(self, **values: Any) -> None:
        for name, value in values.items():
            assert hasattr(self._books, name), name
            setattr(self._books, name, value)

    def hang_up(self) -> None:
        for writer in list(self._books.open):
            writer.close()

    def forget(self) -> None:
        self._books.forget()

    def lags(self, tag: str) -> list[float]:
        return self._books.lags.pop(tag, [])

    def books(self) -> dict[str, Any]:
        books = self._books
        return {
            "distinct": len(books.ids),
            "requests": books.requests,
            "last_at": books.last_at,
            "hanging": books.hanging,
            "longest_s": books.longest_s,
            "ramps": {path: ramp.told for path, ramp in books.ramps.items()},
        }


async def main(host: str, port: int) -> None:
    books = Books()
    told = Orders(books)
    loop = asyncio.get_running_loop()
    server = await asyncio.start_server(partial(_serve, books), host, port, backlog=4096)
    print(json.dumps(server.sockets[0].getsockname()[1]), flush=True)
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        order = json.loads(line)
        print(json.dumps(getattr(told, order.pop("do"))(**order)), flush=True)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
