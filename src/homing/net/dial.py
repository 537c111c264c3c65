"""Dialling: look-up, guard, connect, TLS handshake; each is timed and has failures of its own.

The name is looked up once. The guard checks exactly the addresses that are then connected to, and
TLS uses the name (SNI) on the checked address and verifies the certificate against it: there is no
second look-up, which could give another address.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from msgspec import Struct

from homing.model import Failure, Target
from homing.net import trouble
from homing.net.connection import Connection
from homing.net.flight import Flight, Stage
from homing.net.guard import Guard
from homing.net.proxy import of_proxy, open_tunnel
from homing.net.resolver import Address, Remembered, Resolver
from homing.net.tls import TlsContexts
from homing.net.trouble import Trouble
from homing.policy.built_in_receiver import HOST, is_receiver_path
from homing.policy.egress import Proxy
from homing.policy.outcome import SENDER_FAILURES

ADDRESSES_TRIED_MAX = 4
HANDSHAKE_S_MAX = 60.0  # above every deadline, which ends it first
SHUTDOWN_S_MAX = 1.0
_BIND_ADDRESS_NO_PORT = 24  # IP_BIND_ADDRESS_NO_PORT of Linux: connect chooses the port
_CLOSED_IN_HANDSHAKE = Trouble(Failure.TLS, "TLS failed: closed by the peer in the handshake")


class OwnReceiver(Struct, frozen=True):
    """The built-in receiver of this server: where the server listens, and the keys of its paths."""

    address: Address
    keys: Sequence[bytes]

    def is_at(self, target: Target) -> bool:
        """Whether this target is a built-in receiver; any other path would let tenants reach
        the server itself from its own address.
        """
        return target.host == HOST and is_receiver_path(target.path, self.keys)

    def __repr__(self) -> str:
        return f"OwnReceiver({self.address}, ****)"


class Dialer:
    """Makes the connection for a flight, and records the flight's stage and times."""

    def __init__(
        self,
        *,
        resolver: Resolver,
        guard: Guard,
        contexts: TlsContexts,
        monotonic: Callable[[], float],
        proxy: Proxy | None = None,
        sources: Mapping[int, str] = MappingProxyType({}),
        own: OwnReceiver | None = None,
    ) -> None:
        self._resolver = resolver
        self._guard = guard
        self._contexts = contexts
        self._monotonic = monotonic
        self._proxy = proxy
        self._own = own  # the built-in receiver; no other path of this server is reached by it
        self._sources = sources  # the address to send from, by family; empty: the system's choice

    async def dial(self, flight: Flight, make: Callable[[], Connection]) -> Trouble | None:
        """None once the connection is established and its owner was called; else the failure."""
        target = flight.request.target
        context = await self._tls(flight) if target.scheme == "https" else None
        if isinstance(context, Trouble):
            return context
        proxy = self._proxy
        if self._own is not None and self._own.is_at(target):
            sock = await self._connect_to_own(flight, self._own.address)
        elif proxy is not None and proxy.covers(target.host):
            sock = await self._connect_through(flight, proxy)
        else:
            sock = await self._connect_directly(flight)
        if isinstance(sock, Trouble):
            return sock
        return await self._hand_over(flight, sock, context, make)

    def connected(self, flight: Flight) -> None:
        """Record that the connection is established, after the handshake if there was one."""
        now = self._monotonic()
        if flight.stage is Stage.HANDSHAKE:
            flight.tls_us = int((now - flight.written_at) * 1e6)
        flight.written_at = now
        flight.stage = Stage.RESPONSE

    async def _tls(self, flight: Flight) -> ssl.SSLContext | Trouble:
        request = flight.request
        context = self._contexts.quick(request.tenant, request.tls)
        if context is None:
            flight.stage = Stage.CONTEXT
            begun_at = self._monotonic()
            context = await self._contexts.wait_for(request.tenant, request.tls)
            flight.queued_s += self._monotonic() - begun_at
        return context

    async def _look_up(self, flight: Flight) -> Sequence[Address] | Trouble:
        flight.stage = Stage.QUEUE
        target = flight.request.target
        begun_at = self._monotonic()

        def started() -> None:
            flight.stage = Stage.LOOK_UP
            flight.queued_s += self._monotonic() - begun_at

        found = await self._resolver.resolve(
            target.host, target.port, tenant=flight.request.tenant, started=started
        )
        flight.checked_at = self._monotonic()
        flight.dns_us = int((flight.checked_at - begun_at) * 1e6)
        if isinstance(found, Trouble):
            return found
        flight.remembered = isinstance(found, Remembered)
        refusal = self._guard.check(target, [address.ip for address in found])
        return found if refusal is None else refusal

    async def _connect_directly(self, flight: Flight) -> socket.socket | Trouble:
        addresses = await self._look_up(flight)
        if isinstance(addresses, Trouble):
            return addresses
        return await self._connect(flight, addresses)

    async def _connect_to_own(self, flight: Flight, own: Address) -> socket.socket | Trouble:
        """A socket to the built-in receiver: the name is this server's, and nobody is asked."""
        flight.stage = Stage.CONNECT
        flight.checked_at = begun_at = self._monotonic()
        flight.address = str(own)
        result = await _connect_to(own, None, {})
        flight.connect_us = int((self._monotonic() - begun_at) * 1e6)
        return result

    async def _connect_through(self, flight: Flight, proxy: Proxy) -> socket.socket | Trouble:
        """A socket whose other end the proxy has connected to the target.

        The tunnel leads to the address that the guard has checked, not to the name. Only if the
        operator leaves look-ups to the proxy, it leads to the name: then the guard can only check
        the port, and a target that is an address itself.
        """
        flight.proxied = True
        target = flight.request.target
        if proxy.resolves:
            refusal = self._guard.check_name(target)
            if refusal is not None:
                return refusal
            flight.checked_at = self._monotonic()
            host = f"[{target.host}]" if ":" in target.host else target.host
            authorities = [f"{host}:{target.port}"]
        else:
            addresses = await self._look_up(flight)
            if isinstance(addresses, Trouble):
                return addresses
            authorities = [str(address) for address in addresses[:ADDRESSES_TRIED_MAX]]
        begun_at = self._monotonic()
        why: Trouble | None = None
        for left, authority in zip(range(len(authorities) - 1, -1, -1), authorities, strict=True):
            flight.address = authority
            share_s = (flight.deadline_at - self._monotonic()) / (left + 2) if left else None
            result = await self._tunnel(flight, proxy, authority, share_s)
            flight.connect_us = int((self._monotonic() - begun_at) * 1e6)
            if isinstance(result, socket.socket):
                return result
            why = result
            if why.failure is not Failure.SENDER_TUNNEL:
                break
        assert why is not None
        return why

    async def _tunnel(
        self, flight: Flight, proxy: Proxy, authority: str, share_s: float | None
    ) -> socket.socket | Trouble:
        flight.stage = Stage.PROXY
        found = await self._resolver.resolve(proxy.host, proxy.port)
        if isinstance(found, Trouble):
            return of_proxy(found)
        sock: socket.socket | Trouble | None = None
        for address in found[:ADDRESSES_TRIED_MAX]:
            sock = await _connect_to(address, share_s, self._sources)
            if isinstance(sock, socket.socket):
                break
        assert sock is not None
        if isinstance(sock, Trouble):
            return of_proxy(sock)
        flight.stage = Stage.TUNNEL
        try:
            async with asyncio.timeout(share_s):
                why = await open_tunnel(sock, proxy, authority)
        except TimeoutError:
            why = Trouble(Failure.SENDER_TUNNEL, "the proxy did not reach the target in time")
        except BaseException:
            sock.close()
            raise
        if why is not None:
            sock.close()
            return why
        return sock

    async def _connect(
        self, flight: Flight, addresses: Sequence[Address]
    ) -> socket.socket | Trouble:
        """A socket to the first address that accepts; each but the last has a share of the time.

        If none accepts, a failure of the receiver says more than one of the sender: a host with an
        IPv6 address without a route and an IPv4 address that refuses is a host that refuses.
        """
        flight.stage = Stage.CONNECT
        begun_at = self._monotonic()
        tried = addresses[:ADDRESSES_TRIED_MAX]
        troubles: list[Trouble] = []
        for left, address in zip(range(len(tried) - 1, -1, -1), tried, strict=True):
            flight.address = str(address)
            share_s = (flight.deadline_at - self._monotonic()) / (left + 2) if left else None
            result = await _connect_to(address, share_s, self._sources)
            flight.connect_us = int((self._monotonic() - begun_at) * 1e6)
            if isinstance(result, socket.socket):
                return result
            troubles.append(result)
            if result.failure is Failure.SENDER_LIMITS:
                break
        cut_short = [one for one in troubles if one.failure is Failure.CONNECT_TIMEOUT]
        if cut_short and flight.held_up:  # With all of its time this address might have accepted.
            return cut_short[-1]
        theirs = [one for one in troubles if one.failure not in SENDER_FAILURES]
        return (theirs or troubles)[-1]

    async def _hand_over(
        self,
        flight: Flight,
        sock: socket.socket,
        context: ssl.SSLContext | None,
        make: Callable[[], Connection],
    ) -> Trouble | None:
        loop = asyncio.get_running_loop()
        flight.written_at = self._monotonic()
        try:
            connection = make()
            if context is None:
                await loop.create_connection(lambda: connection, sock=sock)
                return None
            flight.stage = Stage.HANDSHAKE
            await loop.create_connection(
                lambda: connection,
                sock=sock,
                ssl=context,
                server_hostname=flight.request.target.host,
                ssl_handshake_timeout=HANDSHAKE_S_MAX,
                ssl_shutdown_timeout=SHUTDOWN_S_MAX,
            )
        except Exception as error:  # noqa: BLE001 - every error closes the socket and becomes a failure
            sock.close()
            if isinstance(error, ConnectionError) and error.errno is None:
                return _CLOSED_IN_HANDSHAKE
            return trouble.of_error(error)
        if connection.transport is None and flight.stage is Stage.HANDSHAKE:
            return _CLOSED_IN_HANDSHAKE
        return None


async def _connect_to(
    address: Address, share_s: float | None, sources: Mapping[int, str]
) -> socket.socket | Trouble:
    source = sources.get(address.family) if sources else None
    if sources and source is None:
        said = f"egress_source_addresses has no address from which {address} can be reached"
        return Trouble(Failure.SENDER_NETWORK, said)
    try:
        sock = socket.socket(address.family, socket.SOCK_STREAM)
    except OSError as error:
        return trouble.of_error(error)
    if source is not None and (why := _bind(sock, source)) is not None:
        sock.close()
        return why
    try:
        sock.setblocking(False)
        async with asyncio.timeout(share_s):
            await asyncio.get_running_loop().sock_connect(sock, address.sockaddr)
    except TimeoutError:  # our share of the time, or the kernel's limit (ETIMEDOUT)
        sock.close()
        return Trouble(Failure.CONNECT_TIMEOUT, f"no connection to {address} in time")
    except OSError as error:
        sock.close()
        return trouble.of_error(error)
    except BaseException:
        sock.close()
        raise
    return sock


def _bind(sock: socket.socket, source: str) -> Trouble | None:
    try:
        with suppress(OSError):  # Not Linux: bind chooses a port that no other socket has.
            sock.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
        sock.bind((source, 0))
    except OSError as error:
        said = f"{source} in egress_source_addresses cannot be used: {error.strerror}"
        return Trouble(Failure.SENDER_LIMITS, said)  # No host causes it.
    return None
