"""Uvicorn's connections, with one write for each turn of the loop.

Uvicorn writes the head and the body of an answer separately, and each write is a system call that
may wake whoever waits for it. Corked, an answer is one call, at the end of the loop's turn with all
others of that turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any, cast
from weakref import WeakKeyDictionary

from homing.web.limits import Limited

UNCORKED_BYTES = 64 * 1024  # large answers go at once


class _Turn:
    """What was written in this turn of a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._corked: list[_Corked] = []

    def has(self, corked: _Corked) -> None:
        if not self._corked:
            self._loop.call_soon(self._ends)
        self._corked.append(corked)

    def _ends(self) -> None:
        corked, self._corked = self._corked, []
        for one in corked:
            try:
                one.flush()
            except Exception as error:  # noqa: BLE001 - the others' answers must go
                told = {"message": "an answer could not be written", "exception": error}
                self._loop.call_exception_handler(told)


_turns: MutableMapping[asyncio.AbstractEventLoop, _Turn] = WeakKeyDictionary()


class _Corked:
    """A transport that gathers what is written."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        loop = asyncio.get_running_loop()
        self._turn = _turns.get(loop) or _turns.setdefault(loop, _Turn(loop))
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._turn.has(self)
        self._parts.append(data)
        if len(data) >= UNCORKED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write it now."""
        parts = self._parts
        if parts:
            self._parts = []
            if not self._transport.is_closing():
                self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class CorkedProtocol(Limited):
    """What uvicorn makes for each connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("asyncio.Transport", _Corked(transport)))

    def eof_received(self) -> bool | None:  # type: ignore[override]
        keep_open = super().eof_received()
        if not keep_open:  # The loop closes what is under the cork: an answer may wait in it.
            cast("_Corked", self.transport).flush()
        return keep_open
