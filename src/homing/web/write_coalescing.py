"""Write coalescing: at most one write per connection in each turn of the event loop.

Uvicorn writes the head and the body of a response separately, and each write is a system call that
may wake the receiving process. Here all writes of a turn are collected per connection and written
in one call at the end of the turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any, cast
from weakref import WeakKeyDictionary

from homing.web.limits import Limited

AT_ONCE_BYTES = 64 * 1024  # larger writes are not delayed


class _Turn:
    """The transports that were written to in this turn of a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._written: list[_CoalescingTransport] = []

    def add(self, transport: _CoalescingTransport) -> None:
        if not self._written:
            self._loop.call_soon(self._flush_all)
        self._written.append(transport)

    def _flush_all(self) -> None:
        written, self._written = self._written, []
        for one in written:
            try:
                one.flush()
            except Exception as error:  # noqa: BLE001 - the others must be written
                context = {"message": "a response could not be written", "exception": error}
                self._loop.call_exception_handler(context)


_turns: MutableMapping[asyncio.AbstractEventLoop, _Turn] = WeakKeyDictionary()


class _CoalescingTransport:
    """A transport that collects writes until the end of the turn."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing  # asked for every request
        loop = asyncio.get_running_loop()
        self._turn = _turns.get(loop) or _turns.setdefault(loop, _Turn(loop))
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._turn.add(self)
        self._parts.append(data)
        if len(data) >= AT_ONCE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes the collected bytes now."""
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


class CoalescingProtocol(Limited):
    """The protocol that uvicorn creates for each connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("asyncio.Transport", _CoalescingTransport(transport)))

    def eof_received(self) -> bool | None:  # type: ignore[override]
        keep_open = super().eof_received()
        if not keep_open:  # The loop closes the connection: write what was collected.
            cast("_CoalescingTransport", self.transport).flush()
        return keep_open
