"""Uvicorn's connections, with one write for each turn of the loop.

Uvicorn writes the head and the body of an answer separately, and each write is a system call that
may wake whoever waits for it. Corked, an answer is one call, at the end of the loop's turn with all
others of that turn.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from homing.web.limits import Limited

UNCORKED_BYTES = 64 * 1024  # large answers go at once


class _Corked:
    """A transport that gathers what is written."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        if len(data) >= UNCORKED_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._parts:
            parts, self._parts = self._parts, []
            if not self._transport.is_closing():
                self._transport.write(b"".join(parts))

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class CorkedProtocol(Limited):
    """What uvicorn makes for each connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("asyncio.Transport", _Corked(transport)))
