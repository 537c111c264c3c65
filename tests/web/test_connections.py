"""Too many connections: those without a key go first, of the address that holds the most.

Shows what-homing-promises.md#hostile-input, of connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from homing.server.serve import serving
from homing.server.settings import Settings
from homing.web.connections import ConnectionLimit, mark_verified, source_of
from security.framing import HOST, KEY

CONNECTIONS_MAX = 64


@dataclass
class Transport:
    """One end of a real pair of sockets, which counts how often it is looked at."""

    server_end: socket.socket
    client_end: socket.socket
    closed: bool = False
    unsent: int = 0

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def get_extra_info(self, _name: str) -> socket.socket:
        return self.server_end


@dataclass
class Cycle:
    response_complete: bool
    scope: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Connection:
    transport: Transport
    connections: set[Any]
    source: str
    since: float
    cycle: Cycle | None = None


@dataclass
class Crowd:
    """Connections made one a second."""

    limit: ConnectionLimit
    now: float = 0.0
    connections: set[Any] = field(default_factory=set)
    made: list[Connection] = field(default_factory=list)
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def come(
        self,
        source: str = "a",
        *,
        asked: bool | None = None,
        said: bytes = b"",
        has_key: bool = False,
    ) -> Connection:
        """``asked``: None is nothing yet, False a request in progress, True one answered."""
        server_end, client_end = (self.stack.enter_context(one) for one in socket.socketpair())
        client_end.sendall(said)
        one = Connection(Transport(server_end, client_end), self.connections, source, self.now)
        one.cycle = None if asked is None else Cycle(response_complete=asked)
        if one.cycle is not None and has_key:
            mark_verified(one.cycle.scope)
        self.now += 1
        self.connections.add(one)
        self.made.append(one)
        self.limit.made(one, self.connections)
        return one

    @property
    def closed(self) -> list[Connection]:
        return [one for one in self.made if one.transport.closed]


def _crowd(most: int = 4, **more: Any) -> Crowd:
    it = Crowd(ConnectionLimit(most, monotonic=lambda: it.now, **more))
    return it


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    it = _crowd()
    with it.stack:
        yield it


def test_the_idlest_is_closed_and_the_newcomer_stays(crowd: Crowd) -> None:
    first = crowd.come()
    for _ in range(4):
        crowd.come()
    assert crowd.closed == [first]
    assert len(crowd.connections) == 4


def test_a_new_connection_has_the_longest_time_to_ask_something(crowd: Crowd) -> None:
    kept = crowd.come(asked=True)
    for _ in range(4):
        crowd.come()
    assert crowd.closed == [kept], "it has been idle the longest"


def test_a_response_that_is_not_taken_yet_goes_last(crowd: Crowd) -> None:
    slow = crowd.come(asked=True, has_key=True)
    slow.transport.unsent = 1
    next_idle = crowd.come(asked=True, has_key=True)
    for _ in range(3):
        crowd.come(asked=True, has_key=True)
    assert crowd.closed == [next_idle]


def test_a_request_with_a_key_stays_while_an_idle_connection_exists(crowd: Crowd) -> None:
    for _ in range(3):
        crowd.come(asked=False, has_key=True)
    newest = crowd.come(asked=True, has_key=True)
    crowd.come()
    assert crowd.closed == [newest]


def test_where_all_are_at_work_with_a_key_the_newcomer_is_turned_away(crowd: Crowd) -> None:
    busy = [crowd.come(asked=False, has_key=True) for _ in range(4)]
    late = crowd.come()
    assert crowd.closed == [late]
    assert crowd.connections == set(busy)


def test_of_the_requests_without_a_key_the_slowest_makes_room(crowd: Crowd) -> None:
    crowd.come(asked=False, has_key=True)
    slow = [crowd.come(asked=False) for _ in range(2)]
    crowd.come()
    crowd.come()
    assert crowd.closed == slow[:1], "a newcomer that has not asked yet is not slow"


def test_a_slow_request_without_a_key_goes_before_an_idle_one_with_a_key(crowd: Crowd) -> None:
    kept = crowd.come(asked=True, has_key=True)
    slow = [crowd.come(asked=False) for _ in range(3)]
    for _ in range(3):
        crowd.come(asked=False, has_key=True)
    assert crowd.closed == slow
    crowd.come()
    assert crowd.closed == [kept, *slow]  # in the order in which they came


def test_slow_requests_of_the_address_with_the_most_go_first(crowd: Crowd) -> None:
    crowd.come("calm", asked=False)
    noisy = [crowd.come("noisy", asked=False) for _ in range(3)]
    crowd.come("other")
    assert crowd.closed == noisy[:1]


def test_bytes_that_were_not_read_yet_are_a_request(crowd: Crowd) -> None:
    crowd.come(said=b"POST ")
    silent = crowd.come()
    crowd.come()
    crowd.come()
    crowd.come()
    assert crowd.closed == [silent]


def test_the_address_with_the_most_gives_way_though_others_are_idler(crowd: Crowd) -> None:
    crowd.come("calm", asked=True)
    noisy = [crowd.come("noisy") for _ in range(3)]
    crowd.come("other")
    assert crowd.closed == noisy[:1]


def test_an_address_may_have_a_bound_of_its_own() -> None:
    crowd = _crowd(100, per_address_max=2)
    with crowd.stack:
        crowd.come("calm")
        first = crowd.come("noisy")
        crowd.come("noisy")
        crowd.come("noisy")
        assert crowd.closed == [first]
        crowd.limit.lost(crowd.made[2])
        crowd.come("noisy")
        assert crowd.closed == [first]


def test_many_new_connections_cost_a_few_steps_each() -> None:
    """Counted: how often a connection is looked at."""
    looks = 0

    class Counted(Transport):
        def is_closing(self) -> bool:
            nonlocal looks
            looks += 1
            return super().is_closing()

    crowd = _crowd(160)
    with socket.socket() as shared:
        for n in range(1_600):
            one = Connection(Counted(shared, shared), crowd.connections, "a", n)
            crowd.connections.add(one)
            crowd.limit.made(one, crowd.connections)
    assert len(crowd.connections) <= 160
    assert looks < 1_600 * 20


@pytest.mark.parametrize(
    ("client", "source"),
    [
        (("192.0.2.1", 80), "192.0.2.1"),
        (("2001:db8::1", 80), "2001:db8::/64"),
        (("2001:db8::ffff:1", 80), "2001:db8::/64"),
        (None, ""),
    ],
)
def test_an_ipv6_network_is_one_source(client: tuple[str, int] | None, source: str) -> None:
    assert source_of(client) == source


async def test_a_caller_who_opens_many_closes_its_own_and_others_keep_theirs() -> None:
    settings = Settings.of(listen="127.0.0.1:0", connections_max=CONNECTIONS_MAX)
    async with serving(settings, admin_key=KEY, in_memory=True) as (address, _):
        port = int(address.rpartition(":")[2])
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, local_addr=("127.0.0.2", 0)
        )
        ask = b"GET /v1/ledger HTTP/1.1\r\n" + HOST + b"\r\n"
        writer.write(ask)
        await reader.readuntil(b"200")
        crowd = [
            await asyncio.open_connection("127.0.0.1", port) for _ in range(4 * CONNECTIONS_MAX)
        ]
        await crowd[0][0].read(1)  # the idlest is closed
        writer.write(ask)
        assert b"200" in await reader.readuntil(b"200"), "the other address kept its connection"
        for _, one in [*crowd, (reader, writer)]:
            one.transport.abort()


async def test_slow_forms_without_a_key_lock_nobody_out() -> None:
    """Each of these bodies may take a minute."""
    settings = Settings.of(listen="127.0.0.1:0", connections_max=CONNECTIONS_MAX)
    async with serving(settings, admin_key=KEY, in_memory=True) as (address, _):
        port = int(address.rpartition(":")[2])
        event = b'{"type":"a.b","data":1}'
        head = b"POST /v1/events HTTP/1.1\r\n" + HOST + b"content-length: %d\r\n\r\n" % len(event)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + event[:1])  # A slow request, too, but with a key.
        forms = []
        for n in range(4 * CONNECTIONS_MAX):
            path = (b"/sign-in", b"/language", b"/confirm", b"/portal/open/x")[n % 4]
            _, one = await asyncio.open_connection("127.0.0.1", port)
            form = b"POST " + path + b" HTTP/1.1\r\nhost: localhost\r\norigin: http://localhost\r\n"
            one.write(form + b"content-length: 9\r\n\r\nk")
            forms.append(one)
            if n % 16 == 0:
                newcomer = await asyncio.open_connection("127.0.0.1", port)
                newcomer[1].write(head + event)
                assert b" 202 " in await newcomer[0].readline()
                newcomer[1].transport.abort()
        writer.write(event[1:])
        assert b" 202 " in await reader.readline()
        for one in [*forms, writer]:
            one.transport.abort()
