"""Settings → running parts; the only file that knows all of them.

SIGTERM and SIGINT end a server in this order: no new connections, requests under way are
answered, nothing new is sent, what is in flight is waited for and settled, the store is closed.
``stopping`` bounds how long that may take.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import random
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

import msgspec
import structlog
import uvicorn
import uvloop
from msgspec import Struct
from prometheus_client.core import Metric

from homing.engine.engine import Engine
from homing.engine.fleet import FleetParts
from homing.engine.keys import LIFE_MS, KeyRing
from homing.engine.options import EngineOptions
from homing.engine.relay import Relay
from homing.engine.timekeeper import Timekeeper, others_run
from homing.errors import BadSetting
from homing.net.clock import SystemClock, monotonic
from homing.net.descriptors import raise_limit
from homing.net.sender import HttpSender, SenderOptions
from homing.policy.quota import Quota
from homing.ports import Clock
from homing.server.database import Stores, left_unless_started, open_stores
from homing.server.open_files import share_descriptors, within
from homing.server.outbox_relay import relay_of, relaying
from homing.server.settings import Settings, settings_table, shown_value
from homing.server.shutdown import EXIT_UNSETTLED, Stopping
from homing.server.simulator import Simulator
from homing.server.wait_for_database import until_there
from homing.web.app import create_app
from homing.web.connections import ConnectionLimit
from homing.web.cork import CorkedProtocol
from homing.web.fleet_metrics import fleet_metrics
from homing.web.limits import WatchedServer
from homing.web.metrics import More
from homing.web.options import SettingShown, WebOptions
from homing.web.relay_metrics import relay_metrics
from homing.web.short import ShortWay
from homing.web.waiting import waiting

log = structlog.get_logger("homing")

KEYS_CLOSE_S = 2.0
MARK_S = 2.0  # to write the last time down


def engine_options(settings: Settings) -> EngineOptions:
    return EngineOptions(
        fresh_slots=settings.fresh_slots,
        retry_slots=settings.retry_slots,
        endpoint_slots=settings.endpoint_slots,
        ready_bytes_max=settings.memory_bytes_max,
        retention_ms=settings.retention_ms,
        schedules=settings.schedules,
        policy=settings.policy,
        tenant_policies=settings.tenant_policies,
        health=settings.health,
        tenant_health=settings.tenant_health,
        host_rate_per_second=settings.host_rate_per_second,
    )


class Running(Struct, frozen=True):
    """A started engine, its stores, and the app in front of it for a server to serve."""

    engine: Engine
    stores: Stores
    clock: Clock
    config: uvicorn.Config
    leave: Callable[[], None]  # ends the streams that would hold a stop up


@contextlib.asynccontextmanager
async def running(
    settings: Settings,
    *,
    admin_key: str,
    options: EngineOptions | None = None,
    clock: Clock | None = None,
    in_memory: bool = False,
    sources: Mapping[str, str] | None = None,
    descriptors_max: int | None = None,
    stopping: Stopping | None = None,
) -> AsyncIterator[Running]:
    """Everything at work; on leaving, all is settled and closed."""
    stores = await open_stores(settings, in_memory=in_memory)
    try:
        reach, fleet = settings.reach(), stores.fleet
        options = options or engine_options(settings)
        shares = share_descriptors(descriptors_max, settings.connections_max, options)
        authorities = settings.ca_file or None
        sending = SenderOptions(reach=reach, ca_file=authorities, sockets_max=shares.sockets)
        if clock is None:
            clock, fleet = _system_clock(fleet, stopping)
        else:  # Moved by hand, it does not tell how long a connection has rested: keep none.
            sending = msgspec.structs.replace(sending, idle_connections_max=0)
        async with left_unless_started(fleet):
            keeper = await _begun_time(stores, clock, fleet)
            engine = await Engine.start(
                flow=stores.flow,
                admin=stores.admin,
                views=stores.views,
                sender=HttpSender(sending),
                clock=clock,
                options=within(options, shares),
                fleet=fleet,
            )
        relay = relay_of(settings, engine, clock, random.random)
        web = WebOptions(
            admin_key=admin_key,
            now=clock.now,
            policies=frozenset(settings.schedules),
            refuses=reach.refuses,
            hosts=settings.host_names,
            quota=settings.quota,
            tenant_quotas=_tenant_quotas(settings),
            settings=_shown(settings, sources or {}),
            more_metrics=_metrics_of(engine, relay),
            simulate=Simulator(settings.schedules, settings.health),
            api=settings.role != "deliver",
        )
        ring = _key_ring(settings, stores, clock)
        app = create_app(engine, stores.views, stores.admin, ring, web)
        try:
            async with relaying(relay, settings.grace_ms), _keeping_time(keeper):
                config = _uvicorn_config(app, settings, shares.connections)
                yield Running(engine, stores, clock, config, web.leaving.set)
        finally:
            await _stop(engine, ring, stopping or Stopping(grace_ms=settings.grace_ms))
    finally:
        await stores.close()


def _key_ring(settings: Settings, stores: Stores, clock: Clock) -> KeyRing:
    node = stores.fleet.me.node if stores.fleet is not None else 0
    life_ms = LIFE_MS if settings.database_url else None  # Others may share the database.
    return KeyRing(stores.keys, clock, node=node, life_ms=life_ms)


async def _stop(engine: Engine, ring: KeyRing, stopping: Stopping) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(KEYS_CLOSE_S):
            await ring.close()
    stopping.all_settled = await engine.stop(grace_ms=stopping.grace_ms())


def _tenant_quotas(settings: Settings) -> dict[str, Quota]:
    return {name: one.quota for name, one in settings.tenants.items() if one.quota is not None}


def _shown(settings: Settings, sources: Mapping[str, str]) -> tuple[SettingShown, ...]:
    return tuple(
        SettingShown(
            one.name,
            shown_value(settings, one.name),
            sources.get(one.name, "its default"),
            one.sentence,
        )
        for one in settings_table()
    )


def _metrics_of(engine: Engine, relay: Relay | None) -> More:
    def more(now: int) -> Iterator[Metric]:
        if (fleet := engine.fleet_pulse()) is not None:
            yield from fleet_metrics(fleet)
        if relay is not None:
            yield from relay_metrics(relay.pulse(), now=now)

    return more


@contextlib.asynccontextmanager
async def _keeping_time(keeper: Timekeeper) -> AsyncIterator[None]:
    task = asyncio.create_task(keeper.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MARK_S):
                await keeper.mark()


async def _begun_time(stores: Stores, clock: Clock, fleet: FleetParts | None) -> Timekeeper:
    """Stored times fit the clock afterwards; or the clock those of processes that run already."""
    keeper = Timekeeper(clock, stores.clock)

    async def others() -> bool:
        return fleet is not None and await others_run(fleet.store, fleet.me, fleet.lease_ms)

    ahead = await keeper.begin(others=others)
    if ahead and isinstance(clock, SystemClock):
        clock.begin_at(clock.now() + ahead)
        clock.follow(-ahead)
    return keeper


def _system_clock(
    fleet: FleetParts | None, stopping: Stopping | None
) -> tuple[Clock, FleetParts | None]:
    """In a fleet all clocks follow the database's."""
    clock = SystemClock()
    if fleet is not None:
        since_ms = round((monotonic() - fleet.joined_s) * 1000)  # The database may have been slow.
        clock.begin_at(fleet.me.started_at + since_ms)
        fleet = msgspec.structs.replace(
            fleet,
            on_clock=clock.follow,
            on_expelled=stopping.ask if stopping is not None else _end_ourselves,
        )
    return clock, fleet


def _end_ourselves() -> None:
    """As if we were told to: whoever supervises us starts us again."""
    signal.raise_signal(signal.SIGTERM)


def _uvicorn_config(app: object, settings: Settings, connections_max: int) -> uvicorn.Config:
    limit = ConnectionLimit(connections_max, per_address_max=settings.connections_per_address_max)
    http = ShortWay if settings.role != "deliver" else CorkedProtocol
    config = _plain_config(app, limit, http=http)
    config.timeout_graceful_shutdown = max(settings.grace_ms // 1000, 1)
    return config


def _plain_config(
    app: object, limit: ConnectionLimit, *, http: type[CorkedProtocol] = CorkedProtocol
) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=functools.partial(http, limit=limit),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )


class _House(WatchedServer):
    """Uvicorn, which ends what streams before it waits for what is under way."""

    def __init__(self, house: Running) -> None:
        super().__init__(house.config)
        self._leave = house.leave

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._leave()
        await super().shutdown(sockets)


class _Guest(_House):
    """Uvicorn, with the signals left to whoever runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Waiting(WatchedServer):
    """Uvicorn before there is a database, with the signals left to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        raise BadSetting(f"listen = {settings.listen}: {error.strerror}.") from error


@contextlib.asynccontextmanager
async def serving(
    settings: Settings,
    *,
    admin_key: str,
    options: EngineOptions | None = None,
    clock: Clock | None = None,
    in_memory: bool = False,
) -> AsyncIterator[tuple[str, Running]]:
    """A server inside a program of its own: its address, and what runs behind it."""
    with _listen(settings) as listener:
        async with running(
            settings, admin_key=admin_key, options=options, clock=clock, in_memory=in_memory
        ) as house:
            server = _Guest(house)
            task = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                yield _address(listener), house
            finally:
                server.should_exit = True
                await task


async def _serve(
    settings: Settings,
    admin_key: str,
    ready: Callable[[str], None],
    sources: Mapping[str, str] | None,
    descriptors_max: int,
) -> bool:
    """Serve until a signal; False if outcomes were left that could not be written."""
    stopping = Stopping(grace_ms=settings.grace_ms)
    stopping.listen()
    async with contextlib.AsyncExitStack() as stack:
        listener = stack.enter_context(_listen(settings))

        async def begin() -> Running:
            house = running(
                settings,
                admin_key=admin_key,
                sources=sources,
                descriptors_max=descriptors_max,
                stopping=stopping,
            )
            return await stack.enter_async_context(house)

        if settings.database_url:
            limit = ConnectionLimit(min(settings.connections_max, descriptors_max // 2))
            door = functools.partial(_Waiting, _plain_config(waiting, limit))
            house = await stopping.unless_asked(until_there(begin, listener, door))
        else:
            house = await stopping.unless_asked(begin())
        if house is None:
            return True
        _spare_the_collector()
        server = _Guest(house)
        stopping.left = house.engine.unfinished
        stopping.begin(lambda: setattr(server, "should_exit", True))
        ready(_address(listener))
        await server.serve(sockets=[listener])
    return stopping.all_settled


def _spare_the_collector() -> None:
    """What lives as long as the process is not looked at again, and what is short-lived rarely.

    The values of the hot path are no concern of the collector; what it finds are cycles of
    connections that ended, which can wait. It was a tenth of the event loop's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(
    settings: Settings,
    *,
    admin_key: str,
    ready: Callable[[str], None],
    sources: Mapping[str, str] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; ``ready`` is told the address.

    Exits with 1 if outcomes were left that the store did not take within the grace.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        settled = runner.run(_serve(settings, admin_key, ready, sources, raise_limit()))
    if not settled:
        raise SystemExit(EXIT_UNSETTLED)
