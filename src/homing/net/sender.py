"""The sender: outgoing HTTP/1.1 requests on asyncio and httptools, without a client library.

Why not a client library: a webhook sender needs only a small part of HTTP (a POST of known length,
keep-alive, no redirects, no cookies, no decompression) and full control of that part:

- one deadline over look-up, connect, handshake and response. httpx counts its timeout per read: a
  receiver that sent single bytes kept a request with a timeout of 2 s open for over 8 s;
- the address that was checked is the address that is connected to, even if the URL contains an IP
  address, for which aiohttp does not call its resolver;
- no redirect is followed and nothing is decompressed. aiohttp repeats a POST after a 307 by
  default, and in both libraries 194 kB of gzip became 200 MB of memory;
- heads and bodies are bounded, and failures of the receiver are told from those of the sender.

It is also the hottest path. Measured on two cores over loopback with 1 KiB bodies and 64 requests
in flight, against aiohttp (about 170 µs of CPU per request): a prototype of this design took about
a sixth of that, close to the limit of the interpreter; pycurl a fifth to a third; the Rust-backed
clients a third to two fifths, and pin an address only per client object; httpx is some forty
times slower than aiohttp, as its pool's work grows with the square of its connections. Half of the
cost of a simple client is building the request. So a request on an open connection is one write of
prepared bytes, followed by callbacks: no task, no timer. Only a new connection uses a task.

Deadlines are checked by one sweep every 50 ms over all requests in flight, not by a timer per
request. With no request in flight and no idle connection no timer runs. A sweep that is itself late
(the process was suspended, or the loop was busy) first lets the loop read what has arrived:
a pause of the sender is not a timeout of the receiver. Requests to hanging receivers mostly started
together, so hundreds of deadlines pass together: one sweep decides all of them, and reports a few
at a time. Otherwise the work after each (a settle, the next attempt, a new connection) would
delay all other attempts.

The sender never repeats a request. The reason, and what keeps a normal keep-alive timeout from
looking like a failure, is in the docstring of ``pool``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from msgspec import Struct

from homing.model import Failure, Target
from homing.net import trouble
from homing.net.clock import monotonic as system_monotonic
from homing.net.clock import wall_ms as system_wall
from homing.net.connection import Connection, PoolKey
from homing.net.dial import Dialer, OwnReceiver
from homing.net.flight import Flight, Stage, charged, deadline_failure
from homing.net.guard import Guard
from homing.net.oauth import OAuthSender
from homing.net.pool import Pool
from homing.net.resolver import Resolver
from homing.net.response import Received
from homing.net.tls import BoundedContext, TlsContexts, client_context
from homing.net.trouble import Trouble
from homing.policy.egress import IdentityPaths, Proxy
from homing.policy.reach import Reach
from homing.ports import Request, Response

SWEEP_S = 0.05
SWEEP_LATE_S = 0.1  # a sweep that is later than this lets the loop read first
REPORTED_MIN = 4  # passed deadlines that are reported at a time
REPORT_EVERY_S = 0.01
PORTIONS_MAX = 100  # × REPORT_EVERY_S: all passed deadlines are reported within a second
JOINED_BODY_BYTES_MAX = 64 * 1024  # beyond it, copying costs more than a second write
PREFIXES_MAX = 4096
SHED_COUNT = 32  # idle connections to close when file descriptors run out
SHED_PAUSE_S = 0.01  # for the loop to close those connections


class SenderOptions(Struct, frozen=True):
    """The options of a sender."""

    reach: Reach = Reach()  # where it may connect to
    ca_file: str | None = None  # certificate authorities to trust besides the system's
    identity: IdentityPaths = IdentityPaths()  # the client certificate of the installation
    tenant_identities: Mapping[str, IdentityPaths] = MappingProxyType({})
    proxy: Proxy | None = None
    sources: Mapping[int, str] = MappingProxyType({})  # addresses to send from, by family
    own: OwnReceiver | None = None  # None: this server has no built-in receiver
    idle_connections_max: int = 1024
    sockets_max: int = 1_000_000  # in flight and idle together
    idle_ms_max: int = 15_000
    address_age_ms_max: int = 60_000  # then the name is looked up and checked again


class HttpSender:
    """Sends requests; made and used on one running event loop."""

    def __init__(
        self,
        options: SenderOptions | None = None,
        *,
        resolver: Resolver | None = None,
        tls_context: Callable[[], BoundedContext] | None = None,
        monotonic: Callable[[], float] = system_monotonic,
        wall: Callable[[], int] = system_wall,
    ) -> None:
        options = SenderOptions() if options is None else options
        self._loop = asyncio.get_running_loop()
        self._monotonic = monotonic
        self._dialer = Dialer(
            resolver=Resolver() if resolver is None else resolver,
            guard=Guard(options.reach),
            contexts=TlsContexts(
                tls_context or partial(client_context, options.ca_file),
                installation=options.identity,
                tenants=options.tenant_identities,
                on_change=self._drop_idle,
                monotonic=monotonic,
                wall=wall,
            ),
            monotonic=monotonic,
            proxy=options.proxy,
            sources=options.sources,
            own=options.own,
        )
        self._pool = Pool(
            idle_max=options.idle_connections_max,
            idle_s_max=options.idle_ms_max / 1000,
            address_age_s_max=options.address_age_ms_max / 1000,
        )
        self._files_changed, self._files = 0, ""  # the files of identities, as a part of keys
        self._sockets_max = options.sockets_max
        self._flights: set[Flight] = set()
        self._unwritten: list[tuple[Connection, Flight]] = []  # begun in this turn of the loop
        self._prefixes: dict[Target, bytes] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._sweeping = False  # the timer is the sweep's, not the pool's
        self._sweep_at = 0.0
        self._gave_way = False  # the last sweep was late and let the loop read first
        self._closed = False
        self._late: deque[tuple[Flight, Response]] = deque()  # decided, not yet reported
        self._portion = REPORTED_MIN
        self._reporting = False
        self._authorizing = OAuthSender(self, monotonic=monotonic)

    # --- for the engine -----------------------------------------------------------------------

    def send(self, request: Request, done: Callable[[Response], None]) -> None:
        """Begin one attempt; ``done`` is called later on the loop, exactly once."""
        if request.credentials is not None:
            self._authorizing.send(request, done)
            return
        now = self._monotonic()
        flight = Flight(request, done, now, now + request.deadline_ms / 1000, now)
        self._flights.add(flight)
        if not self._sweeping:
            self._start_sweeping(now)
        target = request.target
        own = self._files if request.tls is None else self._files + request.tls.fingerprint
        key = (request.tenant, target.scheme, target.host, target.port, own)
        try:
            connection = self._pool.take(key, now)
            if connection is None:
                self._start_dial(flight, key)
            else:
                flight.address, flight.proxied = connection.address, connection.proxied
                if not self._unwritten:
                    self._loop.call_soon(self._flush)
                self._unwritten.append((connection, flight))
        except Exception as error:  # noqa: BLE001 - an attempt always ends in a response
            self._loop.call_soon(self._fault, flight, error)

    async def close(self) -> None:
        """Drop idle connections; requests in flight still end, at the latest by their deadline."""
        self._closed = True
        self._pool.shed(len(self._pool))
        if not self._flights and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._sweeping = False
        await asyncio.sleep(0)  # Transports close in the loop's next turn.

    def _drop_idle(self) -> None:
        """A file of a certificate or of authorities has changed: connections are made anew.

        Those that carry a request now have an older key, so nothing else is sent on them.
        """
        self._files_changed += 1
        self._files = f"{self._files_changed} "
        self._pool.shed(len(self._pool))

    # --- connections --------------------------------------------------------------------------

    async def _dial(self, flight: Flight, key: PoolKey) -> None:
        make = partial(Connection, self, key, flight, self._monotonic)
        try:
            found = await self._dialer.dial(flight, make)
            scarce = found is not None and found.failure is Failure.SENDER_LIMITS
            if scarce and self._pool.shed(SHED_COUNT):  # Idle connections hold descriptors too.
                await asyncio.sleep(SHED_PAUSE_S)
                found = await self._dialer.dial(flight, make)
            if found is not None:
                self._fail(flight, found)
        except Exception as error:  # noqa: BLE001 - an attempt always ends in a response
            self._fault(flight, error)

    def connected(self, connection: Connection, flight: Flight) -> None:
        """A new connection is established."""
        if flight not in self._flights:
            self._loop.call_soon(connection.drop)
            return
        self._dialer.connected(flight)
        try:
            self._write(connection, flight)
        except Exception as error:  # noqa: BLE001 - an attempt always ends in a response
            self._loop.call_soon(connection.drop)
            self._fault(flight, error)

    def responded(
        self, connection: Connection, flight: Flight, received: Received, now: float
    ) -> None:
        """A response is complete: report it, and keep the connection if it may be used again."""
        if received.reusable and not self._closed and connection.clean():
            self._pool.put(connection, now, received.keep_alive_s)
        else:
            connection.drop()
        self._finish(flight, _response(received, flight, now))

    def lost(self, connection: Connection, flight: Flight | None, error: Exception | None) -> None:
        """A connection ended, or sent bytes without a request."""
        self._pool.discard(connection)
        connection.drop()
        if flight is None:
            return
        if connection.reader.code is None:
            self._fail(flight, _why_lost(connection, error))
        else:  # Its body ended with the connection, or was cut short.
            now = self._monotonic()
            self._finish(flight, _response(connection.reader.received(), flight, now))

    # --- requests -----------------------------------------------------------------------------

    def _start_dial(self, flight: Flight, key: PoolKey) -> None:
        over = len(self._flights) + len(self._pool) - self._sockets_max
        if over > 0 and self._pool.shed(over) < over:
            self._loop.call_soon(self._fail, flight, _TOO_MANY)
            return
        flight.stage = Stage.QUEUE
        flight.task = self._loop.create_task(self._dial(flight, key))

    def _flush(self) -> None:
        """Write the requests that were begun on warm connections in this turn of the loop.

        Writing them together at the end of the turn wakes a receiver on the same machine once for
        all of them, not in the middle of our work.
        """
        unwritten, self._unwritten = self._unwritten, []
        for connection, flight in unwritten:
            try:
                if flight not in self._flights:
                    connection.drop()
                elif connection.open():
                    self._write(connection, flight)
                else:  # It ended before anything was written on it.
                    self._start_dial(flight, connection.key)
            except Exception as error:  # noqa: BLE001 - an attempt always ends in a response
                self._fault(flight, error)

    def _write(self, connection: Connection, flight: Flight) -> None:
        request = flight.request
        body = request.body
        prefix = self._prefixes.get(request.target)
        if prefix is None:
            prefix = self._prefix(request.target)
        if request.body_bytes_max:
            connection.reader.keep(request.body_bytes_max)
        if request.method != b"POST":
            prefix = prefix.replace(b"POST", request.method, 1)
        length = b"content-length: %d\r\n\r\n" % len(body)
        if len(body) <= JOINED_BODY_BYTES_MAX:
            connection.begin(flight, b"".join((prefix, request.header_block, length, body)))
        else:
            connection.begin(flight, b"".join((prefix, request.header_block, length)), body)

    def _prefix(self, target: Target) -> bytes:
        prefix = f"POST {target.path} HTTP/1.1\r\nhost: {target.authority}\r\n".encode()
        for part in (target.path, target.authority):
            if not part.isprintable() or " " in part:
                raise ValueError("a target may not hold spaces or control characters")
        if len(self._prefixes) >= PREFIXES_MAX:
            self._prefixes.clear()
        self._prefixes[target] = prefix
        return prefix

    # --- ends -----------------------------------------------------------------------------------

    def _finish(self, flight: Flight, response: Response) -> None:
        if flight not in self._flights:
            return
        self._flights.remove(flight)
        flight.connection = flight.task = None
        self._tell(flight, response)

    def _tell(self, flight: Flight, response: Response) -> None:
        try:
            flight.done(response)
        except Exception as error:  # noqa: BLE001 - the caller's error must not end the sender
            self._report("the callback of an attempt failed", error)

    def _fail(self, flight: Flight, why: Trouble) -> None:
        self._finish(flight, _no_response(flight, charged(flight, why), self._monotonic()))

    def _fault(self, flight: Flight, error: Exception) -> None:
        self._report("unexpected error in the sender", error)
        self._fail(flight, trouble.of_error(error))

    def _report(self, message: str, error: Exception) -> None:
        self._loop.call_exception_handler({"message": message, "exception": error})

    # --- deadlines ------------------------------------------------------------------------------

    def _start_sweeping(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._sweeping = True
        self._set_timer(now, SWEEP_S)

    def _set_timer(self, now: float, delay_s: float) -> None:
        self._sweep_at = now + delay_s
        self._timer = self._loop.call_later(delay_s, self._sweep)

    def _sweep(self) -> None:
        now = self._monotonic()
        if now - self._sweep_at > SWEEP_LATE_S and not self._gave_way:
            self._gave_way = True
            self._set_timer(now, SWEEP_S / 5)
            return
        self._gave_way = False
        for flight in [one for one in self._flights if one.deadline_at <= now]:
            try:
                self._expire(flight, now)
            except Exception as error:  # noqa: BLE001 - one flight must not end the sweep
                self._fault(flight, error)
        if self._late:
            self._portion = max(REPORTED_MIN, -(-len(self._late) // PORTIONS_MAX))
            if not self._reporting:
                self._report_late()
        next_expiry = self._pool.expire(now)
        if self._flights:
            self._sweeping = True
            self._set_timer(now, SWEEP_S)
        else:
            self._sweeping = False
            self._timer = None
            if next_expiry is not None:
                self._set_timer(now, max(next_expiry - now, SWEEP_S))

    def _expire(self, flight: Flight, now: float) -> None:
        connection = flight.connection
        if connection is not None and connection.reader.code is not None:
            received = connection.reader.received()  # Only the body is late.
            response = _response(received, flight, now)
        else:
            response = _no_response(flight, deadline_failure(flight), now)
        if connection is not None:
            connection.drop()
        elif flight.task is not None:
            flight.task.cancel()
        self._flights.remove(flight)
        flight.connection = flight.task = None
        self._late.append((flight, response))

    def _report_late(self) -> None:
        for _ in range(min(self._portion, len(self._late))):
            self._tell(*self._late.popleft())
        self._reporting = bool(self._late)
        if self._reporting:
            self._loop.call_later(REPORT_EVERY_S, self._report_late)


def _response(received: Received, flight: Flight, now: float) -> Response:
    return Response(
        received.code,
        received.failure,
        received.detail,
        flight.address,
        flight.phases(now),
        received.headers,
        received.excerpt,
        received.retry_after,
        flight.remembered,
        flight.proxied,
    )


def _no_response(flight: Flight, why: Trouble, now: float) -> Response:
    return Response(
        None,
        why.failure,
        why.detail,
        flight.address,
        flight.phases(now),
        proxied=flight.proxied,
    )


def _why_lost(connection: Connection, error: Exception | None) -> Trouble:
    why = (
        Trouble(Failure.CLOSED, "closed by the peer") if error is None else trouble.of_error(error)
    )
    if why.failure not in {Failure.CLOSED, Failure.RESET}:
        return why
    if connection.reader.begun:
        return Trouble(why.failure, f"{why.detail} in the middle of the response's head")
    if connection.reused:
        return Trouble(
            why.failure,
            f"{why.detail} without a response, on a connection kept from an earlier request: "
            "the receiver may or may not have received this one",
        )
    return Trouble(why.failure, f"{why.detail} without a response")


_TOO_MANY = Trouble(Failure.SENDER_LIMITS, "no file descriptor is left for another connection")
