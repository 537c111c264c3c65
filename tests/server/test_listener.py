"""Waiting connections are accepted together, not one in each turn of the event loop."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from homing.server import listener as listener_module
from homing.server.listener import AT_ONCE_MAX, AT_ONCE_SHARE, Listener

MANY = AT_ONCE_MAX * AT_ONCE_SHARE  # so many connections may be open that none is held back


class _Opened:
    """The connections that a listener has opened, and how many in each turn of the event loop."""

    def __init__(self) -> None:
        self.transports: list[asyncio.Transport] = []
        self.in_turn: Counter[int] = Counter()
        self._turn = 0
        self._wanted, self._all_open = 0, asyncio.Event()
        self._count_turns()

    def protocol(self) -> asyncio.Protocol:
        self.in_turn[self._turn] += 1
        return _Connection(self)

    def made(self, transport: Any) -> None:
        self.transports.append(transport)
        if len(self.transports) == self._wanted:
            self._all_open.set()

    async def wait_for(self, count: int) -> None:
        self._wanted = count
        if len(self.transports) < count:
            async with asyncio.timeout(30):
                await self._all_open.wait()

    def _count_turns(self) -> None:
        self._turn += 1
        if not self._all_open.is_set():
            asyncio.get_running_loop().call_soon(self._count_turns)


class _Connection(asyncio.Protocol):
    def __init__(self, opened: _Opened) -> None:
        self._opened = opened

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._opened.made(transport)


def _with_waiting(
    story: Callable[[Listener, _Opened], Awaitable[None]],
    *,
    count: int,
    connections_max: int = MANY,
    host: str = "127.0.0.1",
    kind: type[socket.socket] = socket.socket,
) -> None:
    """Run a story in which so many connections wait before the listener opens."""

    async def run() -> None:
        server = kind(socket.AF_INET6 if ":" in host else socket.AF_INET)
        server.bind((host, 0))
        server.listen(count)
        clients = [socket.create_connection(server.getsockname()[:2]) for _ in range(count)]
        opened = _Opened()
        listener = Listener(server, connections_max=connections_max)
        listener.open(opened.protocol, opened.transports)
        await story(listener, opened)
        await listener.close()
        for transport in opened.transports:
            transport.close()
        for client in clients:
            client.close()

    uvloop.run(run())


def test_waiting_connections_are_accepted_in_few_turns() -> None:
    async def story(_listener: Listener, opened: _Opened) -> None:
        await opened.wait_for(AT_ONCE_MAX)
        assert len(opened.in_turn) < AT_ONCE_MAX / 2  # of uvloop itself: one in each turn

    _with_waiting(story, count=AT_ONCE_MAX)


def test_where_few_may_be_open_few_are_accepted_at_once() -> None:
    async def story(_listener: Listener, opened: _Opened) -> None:
        await opened.wait_for(6)
        assert max(opened.in_turn.values()) <= 2

    _with_waiting(story, count=6, connections_max=2 * AT_ONCE_SHARE)


def test_a_limit_of_one_connection_still_accepts() -> None:
    async def story(_listener: Listener, opened: _Opened) -> None:
        await opened.wait_for(2)
        assert max(opened.in_turn.values()) == 1

    _with_waiting(story, count=2, connections_max=1)


def test_a_closed_listener_accepts_no_more_and_loses_none_that_it_accepted() -> None:
    async def story(listener: Listener, opened: _Opened) -> None:
        await opened.wait_for(1)  # the others of its turn are being opened
        await listener.close()
        accepted = sum(opened.in_turn.values())
        assert len(opened.transports) == accepted < 20 * AT_ONCE_MAX
        await asyncio.sleep(0)
        assert sum(opened.in_turn.values()) == accepted

    _with_waiting(story, count=20 * AT_ONCE_MAX)


def test_it_goes_on_when_a_descriptor_is_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "NO_FILES_PAUSE_S", 0.0)
    failures = [errno.EMFILE, errno.ENFILE, errno.ECONNABORTED]

    class Without(socket.socket):
        def accept(self) -> tuple[socket.socket, Any]:
            if failures:
                number = failures.pop()
                raise OSError(number, "no descriptor")
            return super().accept()

    async def story(_listener: Listener, opened: _Opened) -> None:
        await opened.wait_for(3)
        assert not failures

    _with_waiting(story, count=3, kind=Without)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_connection_has_the_address_of_its_client_and_does_not_delay_small_writes(
    host: str,
) -> None:
    async def story(_listener: Listener, opened: _Opened) -> None:
        await opened.wait_for(1)
        (transport,) = opened.transports
        assert transport.get_extra_info("peername")[0] == host
        found = transport.get_extra_info("socket")
        assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1

    _with_waiting(story, count=1, host=host)
