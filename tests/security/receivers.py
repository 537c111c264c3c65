"""The long forms of hostile receivers: 300 that drip, and every hostile response again and again.

A real server in a process of its own; its memory and its descriptors are read from ``/proc``. How
fast healthy receivers are served is compared within one run, in turns with and without the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from acceptance.running import Reply, Server
from net.hostile import HOSTILE, End
from net.receiver import OK, Call
from security.island import FarSide, far_side
from security.part import Part, Toll, undisturbed

DRIPS = 300
SETTLE_S = 0.5  # after 300 connections were made
DEADLINE_MS = 5_000
READ_WITHIN_S = 0.5  # A reset takes away what has arrived and was not read.
HEALTHY_URLS = 10
RATIO_MIN = 0.95
RSS_MORE_MAX = 64 * 1024 * 1024
WITHIN_S = 240.0
WARM_MAX = 20  # bursts
WARM_BYTES = 1024 * 1024  # less growth than this: it is warm


def receiver_parts(*, quick: bool, seed: int) -> list[Part]:
    """Shows what-homing-promises.md#hostile-input, of receivers."""
    del seed
    return [
        Part(
            "300 drip-feeders",
            lambda at: drips(at, rounds=4 if quick else 11, events=400),
            None,
            "the quiet turns of the same run",
        ),
        Part(
            "hostile responses",
            lambda at: hostile(at, rounds=3 if quick else 20),
            None,
            "every response has its expected class",
        ),
    ]


# --- the server under test ------------------------------------------------------------------


def rss_bytes(pid: int) -> int:
    """Of a process and the writer that it has started."""
    return sum(_rss(one) for one in (pid, *_children(pid)))


def _rss(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(one) for one in text.split()]
    return []


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


class House:
    """A server, and how much it held when the run began."""

    def __init__(self, server: Server) -> None:
        assert server.process is not None
        self._server, self.pid = server, server.process.pid
        self.rss = self.fds = 0

    async def ask(self, method: str, path: str, document: Any = None) -> Reply:
        line = self._server.line()  # An idle one is closed after five seconds.
        try:
            return await line.ask(method, path, document)
        finally:
            line.close()

    def mark(self) -> None:
        self.rss, self.fds = rss_bytes(self.pid), descriptors(self.pid)

    async def subscribe(self, url: str, kind: str, deadline_ms: int = DEADLINE_MS) -> None:
        document = {"url": url, "types": [kind], "deadline_ms": deadline_ms}
        response = await self.ask("POST", "/v1/subscriptions", document)
        assert response.status == 201, response.body

    async def publish(self, kind: str, count: int = 1) -> None:
        batch = [{"type": kind, "data": n} for n in range(count)]
        response = await self.ask("POST", "/v1/events", batch)
        assert response.status == 202, response.body

    async def delivered(self) -> int:
        response = await self.ask("GET", "/v1/ledger")
        return sum(int(one["delivered"]) for one in response.json["items"])

    async def leaks(self, toll: Toll) -> None:
        """Descriptors go back to where they were; memory stays within its bound."""
        with contextlib.suppress(TimeoutError):
            await until(lambda: descriptors(self.pid) <= self.fds + 8, within_s=30)
        more = rss_bytes(self.pid) - self.rss
        toll.figures["rss_more_mb"] = round(more / 1024 / 1024, 1)
        toll.figures["descriptors"] = f"{self.fds}->{descriptors(self.pid)}"
        if more > RSS_MORE_MAX:
            toll.blame(f"{more:,} bytes more")
        if descriptors(self.pid) > self.fds + 8:
            toll.blame("descriptors were not given back")


@contextlib.asynccontextmanager
async def house(folder: Path) -> AsyncIterator[House]:
    server = Server(folder / "data")
    await server.start()
    try:
        yield House(server)
    finally:
        await server.terminate()


async def until(true: Callable[[], bool], *, within_s: float = WITHIN_S) -> None:
    async with asyncio.timeout(within_s):
        while not true():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def listening(behave: Callable[[Call], Awaitable[None]]) -> AsyncIterator[str]:
    """A receiver of ours; the beginning of its URLs."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            await behave(Call(reader, writer))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1000)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


# --- 13 -------------------------------------------------------------------------------------


async def _burst(home: House, good: FarSide, events: int) -> float:
    """How many a second the healthy ones got."""
    count = events * HEALTHY_URLS
    goal = (await good.tell("books"))["requests"] + count
    began = time.monotonic()
    await home.publish("good", events)
    async with asyncio.timeout(WITHIN_S):
        while (books := await good.tell("books"))["requests"] < goal:
            await asyncio.sleep(0.02)
    return count / float(books["last_at"] - began)


async def _warm(home: House, good: FarSide) -> None:
    """Until the store's cache, which is bounded, is full: what comes on top of it is a leak."""
    for _ in range(WARM_MAX):
        home.mark()
        await _burst(home, good, 1_000)
        if rss_bytes(home.pid) - home.rss < WARM_BYTES:
            break
    home.mark()


async def _dripping(slow: FarSide, *, least: int = 0, most: int = DRIPS) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not least <= (await slow.tell("books"))["hanging"] <= most:
            await asyncio.sleep(0.05)


async def drips(folder: Path, *, rounds: int, events: int) -> Toll:
    """Healthy receivers with and without 300 others that drip, in turns."""
    toll, quiet, loud = Toll(), list[float](), list[float]()
    with undisturbed(toll):
        async with far_side() as (good, _), far_side() as (slow, _), house(folder) as home:
            for n in range(HEALTHY_URLS):
                await home.subscribe(f"http://127.0.0.1:{good.port}/ok/{n}", "good")
            for n in range(DRIPS):
                await home.subscribe(f"http://127.0.0.1:{slow.port}/drip/{n}", "drip")
            await _warm(home, good)
            for _ in range(rounds):
                quiet.append(await _burst(home, good, events))
                await home.publish("drip")
                await _dripping(slow, least=DRIPS)
                await asyncio.sleep(SETTLE_S)
                loud.append(await _burst(home, good, events))
                await _dripping(slow, most=0)
            told = await slow.tell("books")
            await home.leaks(toll)
    toll.fired = told["requests"]
    ratio = statistics.median(loud) / statistics.median(quiet)
    toll.figures |= {
        "rounds": rounds,
        "quiet_per_s": round(statistics.median(quiet)),
        "loud_per_s": round(statistics.median(loud)),
        "ratio": round(ratio, 3),
        "longest_s": round(told["longest_s"], 2),
    }
    if ratio < RATIO_MIN:
        toll.blame(f"healthy receivers had {ratio:.3f} of their throughput")
    if told["longest_s"] > DEADLINE_MS / 1000 + 1:
        toll.blame(f"an attempt lasted {told['longest_s']:.2f} s")
    return toll


# --- 14 -------------------------------------------------------------------------------------


async def _misbehave(call: Call) -> None:
    """Respond as the row says; a connection that is kept takes further requests of any row."""
    while request := await call.request():
        row = HOSTILE[int(request.split(b" ", 2)[1][1:])]
        await call.say(*row.parts)
        match row.end:
            case End.RESET:
                await asyncio.sleep(READ_WITHIN_S)
                call.reset()
                return
            case End.FOREVER:
                while not call.writer.is_closing():
                    await call.say(row.parts[-1])
                    await asyncio.sleep(0)
                return
            case End.CLOSE:
                return
            case End.HOLD:
                pass


async def _reaches(home: House, goal: int) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(WITHIN_S):
            while await home.delivered() < goal:
                await asyncio.sleep(0.2)


async def hostile(folder: Path, *, rounds: int) -> Toll:
    """Every row of the table, as a subscription of its own; and one that is healthy."""
    toll, good = Toll(), [0]
    rows = range(len(HOSTILE))
    fine = [n for n in rows if isinstance(HOSTILE[n].expected, int)]
    fine = [n for n in fine if 200 <= int(HOSTILE[n].expected) < 300]

    async def count(call: Call) -> None:
        while await call.request():
            good[0] += 1
            call.writer.write(OK)

    async with house(folder) as home, listening(_misbehave) as bad, listening(count) as at:
        await home.subscribe(at, "good")
        await home.publish("good", 500)
        await until(lambda: good[0] == 500)
        for n in rows:
            await home.subscribe(f"{bad}{n}", "hostile")
        home.mark()
        goal = 500 + rounds * len(fine)
        for _ in range(rounds):
            await home.publish("hostile")
            toll.fired += len(HOSTILE)
        await _reaches(home, goal)
        await asyncio.sleep(DEADLINE_MS / 1000 + 1)  # The last of those that only a deadline ends.
        before = good[0]
        await home.publish("good", 100)
        await until(lambda: good[0] == before + 100)
        await _reaches(home, goal + 100)
        toll.figures["delivered"] = f"{await home.delivered()}/{goal + 100}"
        if await home.delivered() != goal + 100:
            toll.blame("another number was delivered than the table says")
        await home.leaks(toll)
    toll.figures["rows"] = len(HOSTILE)
    return toll
