"""The live stream: one per tab, at most one event per second, and only when something has changed.

An event says only that something has changed; the page then reloads its live parts. So access is
checked in one place, and a stream costs almost nothing. Every second the stream asks whether its
caller's key, session or link still lives, and ends if it does not.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from msgspec.json import encode
from starlette.types import Send

from homing.app.access import Caller
from homing.errors import HomingError, StoreUnavailable
from homing.web.response import Headers

STREAM_TYPE = b"text/event-stream"
EVERY_S = 1.0
KEEP_ALIVE_EVERY_S = 15.0  # a comment line, so that a broken connection is noticed
STREAMS_MAX = 200
UNCHECKED_MAX = 10  # checks in a row that failed because the database did not respond


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

    async def stream(self, send: Send, headers: Headers, caller: Caller) -> None:
        """Runs until the server stops or the caller's session has ended; ``Front`` cancels it when
        the tab is closed."""
        head = [*headers, (b"content-type", STREAM_TYPE), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        self._open += 1
        ticks = asyncio.create_task(self._send_ticks(send, caller))
        leaving = asyncio.create_task(self._leaving.wait())
        try:
            await asyncio.wait({ticks, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._open -= 1
            for task in (ticks, leaving):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, OSError):
                    await task
        await send({"type": "http.response.body", "body": b""})

    async def _send_ticks(self, send: Send, caller: Caller) -> None:
        await _line(send, b"retry: 2000\n\n")
        sent, silent_s, unchecked = self._version(), 0.0, 0
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await caller.must_live()
                unchecked = 0
            except StoreUnavailable:
                unchecked += 1
                if unchecked >= UNCHECKED_MAX:
                    return
            except HomingError:
                return  # The next request gets the reason.
            version, silent_s = self._version(), silent_s + EVERY_S
            if version != sent:
                sent, silent_s = version, 0.0
                await _line(send, b"event: tick\ndata: %s\n\n" % encode({"version": version}))
            elif silent_s >= KEEP_ALIVE_EVERY_S:
                silent_s = 0.0
                await _line(send, b": keep-alive\n\n")

    def _version(self) -> int:
        """A number that grows with every change; computed once a second for all streams."""
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
