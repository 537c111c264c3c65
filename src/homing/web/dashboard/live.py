"""The live stream: one per tab, at most one line a second, and only when something has changed.

A line only says that something has happened; the page then asks again for what it shows. So what
a visitor may see is decided in one place, and a stream costs next to nothing. Every second it is
checked whether its session and key still work; a stream whose key was revoked ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from msgspec.json import encode
from starlette.types import Receive, Send

from homing.errors import NotAuthorized, StoreUnavailable
from homing.web.response import Headers

EVERY_S = 1.0
STILL_EVERY_S = 15.0  # A line without meaning: so long a silence is a broken line.
STREAMS_MAX = 200
UNCHECKED_MAX = 10  # times in a row that the store could not say whether the key still works

Check = Callable[[], Awaitable[object]]  # raises NotAuthorized when the stream must end


class Live:
    """The streams of all tabs."""

    def __init__(self, fingerprint: Callable[[], int], leaving: asyncio.Event) -> None:
        self._fingerprint, self._leaving = fingerprint, leaving
        self._open = 0
        self._seen: tuple[float, int] = (-EVERY_S, 0)
        self._count = 0

    @property
    def full(self) -> bool:
        return self._open >= STREAMS_MAX or self._leaving.is_set()

    async def stream(self, receive: Receive, send: Send, headers: Headers, *, check: Check) -> None:
        """Until the tab is closed, the server stops, or ``check`` says that its key is out."""
        head = [*headers, (b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        self._open += 1
        told = asyncio.create_task(self._tell(send, check))
        gone = asyncio.create_task(_gone(receive))
        leaving = asyncio.create_task(self._leaving.wait())
        try:
            await asyncio.wait({told, gone, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._open -= 1
            for task in (told, gone, leaving):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, OSError, NotAuthorized):
                    await task
        await send({"type": "http.response.body", "body": b""})

    async def _tell(self, send: Send, check: Check) -> None:
        await _line(send, b"retry: 2000\n\n")
        told, still, unchecked = self._version(), 0.0, 0
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await check()
                unchecked = 0
            except StoreUnavailable:
                unchecked += 1
                if unchecked >= UNCHECKED_MAX:
                    return
            version, still = self._version(), still + EVERY_S
            if version != told:
                told, still = version, 0.0
                await _line(send, b"event: tick\ndata: %s\n\n" % encode({"version": version}))
            elif still >= STILL_EVERY_S:
                still = 0.0
                await _line(send, b": still here\n\n")

    def _version(self) -> int:
        """Another number when anything has changed; looked at once a second for all streams."""
        now = asyncio.get_running_loop().time()
        at, state = self._seen
        if now - at >= EVERY_S * 0.9:
            seen = self._fingerprint()
            if seen != state:
                self._count += 1
            self._seen = (now, seen)
        return self._count


async def _line(send: Send, line: bytes) -> None:
    await send({"type": "http.response.body", "body": line, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
