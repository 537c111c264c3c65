"""Connections without a key, far more than the server may have descriptors.

They come from this process and come again as soon as they are closed: idle ones (silent ones,
halves of a request head, ones that asked something once) or forms whose bodies never end. Meanwhile
each event is published once, on a new connection, and the sign-in page is opened as often; all
must get their responses, and all events must be delivered.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import Sequence
from pathlib import Path

from acceptance.running import Line, Receiver, Server
from acceptance.test_connections import SAID, WITHIN_S, limited, publish_once
from homing.web.limits import HEAD_WITHIN_S
from security.part import Part, Toll

OPENERS = 50  # that open connections side by side
EVERY_S = 0.02
RESPONSE_WITHIN_S = HEAD_WITHIN_S / 2  # before the age of idle connections makes room
FORMS = tuple(
    b"POST " + path + b" HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\nkey="
    for path in (b"/sign-in", b"/language", b"/confirm", b"/portal/open/x")
)
BOUNDLESS = "import homing.web.connections as it; it.ConnectionLimit.made = lambda *_: None; "
IDLE_ONLY = (  # A request in progress is never closed.
    "import homing.web.connections as it; true = it._closable; "
    "it._closable = lambda some: true([one for one in some"
    " if one.cycle is None or one.cycle.response_complete]); "
)


def idle_connection_parts(*, quick: bool, seed: int) -> list[Part]:
    """Shows what-homing-promises.md#hostile-input, of connections."""
    del seed
    published = 200 if quick else 2_000
    forms = 2_000 if quick else 5_000
    return [
        Part(
            "a full server with slow forms",
            lambda at: crowded(at, idle=forms, limit=1_024, published=published, said=FORMS),
            lambda at: crowded(
                at, idle=1_500, limit=1_024, published=10, said=FORMS, before=IDLE_ONLY
            ),
        ),
        Part(
            "5,000 idle connections",
            lambda at: crowded(at, idle=5_000, limit=1_024, published=published),
            lambda at: crowded(at, idle=1_500, limit=1_024, published=50, before=BOUNDLESS),
        ),
    ]


class Crowd:
    """Connections that are opened again when they are closed."""

    def __init__(self, port: int, count: int, said: Sequence[bytes]) -> None:
        self._port, self._count, self._said = port, count, said
        self.opened = self.closed = self.open = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._room = asyncio.Semaphore(OPENERS)

    async def __aenter__(self) -> Crowd:
        self._tasks = [asyncio.create_task(self._hold(n)) for n in range(self._count)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _hold(self, number: int) -> None:
        while True:
            with contextlib.suppress(OSError):
                async with self._room:
                    await asyncio.sleep(0)
                    reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                self.opened += 1
                self.open += 1
                try:
                    writer.write(self._said[number % len(self._said)])
                    while await reader.read(4096):
                        pass
                finally:
                    self.open -= 1
                    writer.transport.abort()
            self.closed += 1
            await asyncio.sleep(1)


async def open_once(port: int) -> int:
    """The status of the sign-in page on a connection of its own; 0 if there was no response."""
    line = Line(port)
    try:
        async with asyncio.timeout(RESPONSE_WITHIN_S):
            return (await line.ask("GET", "/sign-in")).status
    except (OSError, EOFError):
        return 0
    finally:
        line.close()


async def crowded(
    folder: Path,
    *,
    idle: int,
    limit: int,
    published: int,
    said: Sequence[bytes] = SAID,
    before: str = "",
) -> Toll:
    """Publish while the connections are there."""
    toll = Toll()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    receiver = Receiver(folder / "seen", delay_s=0)
    option, code = limited(limit, limit)
    server = Server(folder / "data", argv=(option, before + code))
    async with receiver.listening():
        await server.start()
        try:
            subscription = {"url": receiver.url, "types": ["a.*"]}
            await Line(server.port).ask("POST", "/v1/subscriptions", subscription)
            async with Crowd(server.port, idle, said) as crowd:
                async with asyncio.timeout(WITHIN_S):
                    while crowd.opened < idle:
                        await asyncio.sleep(0.05)
                codes, pages = [], []
                for n in range(published):
                    codes.append(
                        await publish_once(server.port, f"e{n}", within_s=RESPONSE_WITHIN_S)
                    )
                    pages.append(await open_once(server.port))
                    await asyncio.sleep(EVERY_S)
                toll.figures |= {"opened": crowd.opened, "open": crowd.open}
            responded, shown = codes.count(202), pages.count(200)
            toll.fired = crowd.opened
            toll.figures |= {"published": published, "responded": responded, "pages": shown}
            if shown < published:
                toll.blame(f"{published - shown} of {published} sign-in pages were not shown")
            if responded < published:
                toll.blame(f"{published - responded} of {published} publishes had no response")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WITHIN_S):
                    while len(receiver.arrivals) < responded:
                        await asyncio.sleep(0.05)
            if len(receiver.arrivals) < responded:
                toll.blame(f"{responded - len(receiver.arrivals)} were not delivered")
        finally:
            await server.terminate()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return toll
