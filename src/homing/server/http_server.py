"""The HTTP server of ``homing serve``: uvicorn with our protocol, limits and socket."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from homing.errors import BadSetting
from homing.net.resolver import Address
from homing.server.listener import Listener
from homing.server.settings import ListenSettings, inherited_descriptor
from homing.server.siblings import Siblings
from homing.web.connections import ConnectionLimit
from homing.web.limits import LimitedServer
from homing.web.write_coalescing import CoalescingProtocol

BACKLOG = 2_048
CLOSE = (b"connection", b"close")
FIRST_REQUEST_WITHIN_S = 1.0  # after the port was closed
TICK_S = 0.05


class HttpConfig(uvicorn.Config):
    """Uvicorn's options; ``grace_ms`` is how long a stop waits for requests in progress.

    A request may have each header in ``once`` once.
    """

    def __init__(
        self,
        app: object,
        limit: ConnectionLimit,
        *,
        protocol: type[CoalescingProtocol] = CoalescingProtocol,
        once: frozenset[bytes] = frozenset(),
        grace_ms: int = 1_000,
    ) -> None:
        super().__init__(
            app,  # type: ignore[arg-type]
            http=functools.partial(protocol, limit=limit, once=once),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=max(grace_ms // 1000, 1),
        )
        self.connections_max = limit.maximum


class HttpServer(LimitedServer):
    """Uvicorn with our listener, without its signal handlers.

    ``end_streams`` is called when it begins to stop; ``siblings`` are the processes that share its
    socket.
    """

    def __init__(
        self,
        config: HttpConfig,
        *,
        end_streams: Callable[[], None] | None = None,
        siblings: Siblings | None = None,
    ) -> None:
        super().__init__(config)
        self._connections_max = config.connections_max
        self._end_streams, self._siblings = end_streams, siblings
        self._listeners: list[Listener] = []
        if siblings is not None:
            self.ticks = 1  # Every process reports its connections in each tick.

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])  # Uvicorn itself listens to none.
        for one in sockets or ():
            listener = Listener(one, connections_max=self._connections_max, siblings=self._siblings)
            listener.open(self._protocol, self.server_state.connections)
            self._listeners.append(listener)

    def _protocol(self) -> asyncio.Protocol:
        kind: Any = self.config.http_protocol_class
        made: asyncio.Protocol = kind(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

    async def on_tick(self, counter: int) -> bool:
        for listener in self._listeners:
            listener.report()
        return await super().on_tick(counter)

    def drain(self) -> None:
        """Close each connection after its next response, and announce it there."""
        self.server_state.default_headers = [CLOSE]

    async def _first_requests(self) -> None:
        """Wait for the request of each connection that was accepted and has not sent one yet."""
        connections: set[Any] = self.server_state.connections
        for _ in range(int(FIRST_REQUEST_WITHIN_S / TICK_S)):
            if all(connection.cycle is not None for connection in connections):
                return
            await asyncio.sleep(TICK_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.drain()
        for listener in self._listeners:
            await listener.close()
        await self._first_requests()
        if self._end_streams is not None:  # Uvicorn would wait for them.
            self._end_streams()
        await super().shutdown(sockets)


def open_listener(listen: ListenSettings) -> socket.socket:
    """The socket of the API: handed over by a service manager, or opened; raises BadSetting."""
    if (descriptor := inherited_descriptor()) is not None:
        return _inherited(descriptor)
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    try:
        return socket.create_server((listen.host, listen.port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise BadSetting(f"listen = {listen.address}: {error.strerror}.") from error


def _inherited(descriptor: int) -> socket.socket:
    """The socket of the service manager, which stays open there when this process ends."""
    wanted = "a TCP socket that listens (ListenStream=HOST:PORT)"
    try:
        listener = socket.socket(fileno=descriptor)
    except OSError as error:
        raise BadSetting(f"LISTEN_FDS: descriptor {descriptor} must be {wanted}.") from error
    listens = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if listener.family not in {socket.AF_INET, socket.AF_INET6} or not listens:
        listener.close()
        raise BadSetting(f"LISTEN_FDS: descriptor {descriptor} must be {wanted}.")
    listener.set_inheritable(False)  # Child processes must not keep the port open.
    listener.setblocking(False)
    return listener


def own_address(listener: socket.socket) -> Address:
    """The address at which this process reaches its own listener."""
    host, port = listener.getsockname()[:2]
    if listener.family == socket.AF_INET6:
        ip = "::1" if host == "::" else host
        return Address(socket.AF_INET6, ip, (ip, port, 0, 0))
    ip = "127.0.0.1" if host == "0.0.0.0" else host  # noqa: S104 - every address
    return Address(socket.AF_INET, ip, (ip, port))


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
