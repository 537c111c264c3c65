"""Settings → running parts; the only file that knows all of them.

SIGTERM and SIGINT end a server in this order: no new connections, requests under way are
answered, nothing new is sent, what is in flight is waited for and settled, the store is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import structlog
import uvicorn
import uvloop
from msgspec import Struct

from homing.config import Settings
from homing.engine.engine import Engine
from homing.engine.options import EngineOptions
from homing.errors import BadSetting
from homing.net.clock import SystemClock
from homing.net.guard import Guard
from homing.net.sender import HttpSender, SenderOptions
from homing.ports import AdminStore, FlowStore, ViewStore
from homing.store.admin import Admin
from homing.store.flow import Flow
from homing.store.postgres import PostgresDb
from homing.store.sqlite import SqliteDb
from homing.store.tx import Db
from homing.store.views import Views
from homing.web.app import create_app
from homing.web.options import WebOptions

log = structlog.get_logger("homing")

DATABASE_FILE = "homing.db"


class Stores(Struct, frozen=True):
    """The three ports over one database."""

    db: Db
    flow: FlowStore
    admin: AdminStore
    views: ViewStore


async def open_stores(settings: Settings) -> Stores:
    """PostgreSQL where a URL is set, otherwise SQLite in the data directory."""
    db: Db
    if settings.database_url:
        db = await PostgresDb.open(settings.database_url)
    else:
        threads = settings.writer == "thread"
        db = await SqliteDb.open(_database_file(settings), threads=threads)
    node = settings.node
    return Stores(db, Flow(db, node=node), Admin(db, node=node), Views(db))


def _database_file(settings: Settings) -> Path:
    directory = Path(settings.data)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadSetting(f"data = {settings.data}: {error.strerror}.") from error
    return directory / DATABASE_FILE


def engine_options(settings: Settings) -> EngineOptions:
    return EngineOptions(
        fresh_slots=settings.fresh_slots,
        retry_slots=settings.retry_slots,
        endpoint_slots=settings.endpoint_slots,
        ready_bytes_max=settings.memory_bytes_max,
        retention_ms=settings.retention_ms,
        node=settings.node,
        schedules=settings.schedules,
        policy=settings.policy,
        tenant_policies=settings.tenant_policies,
        health=settings.health,
        tenant_health=settings.tenant_health,
    )


@contextlib.asynccontextmanager
async def running(settings: Settings, *, admin_key: str) -> AsyncIterator[uvicorn.Config]:
    """A started engine and the app in front of it; on leaving, everything is settled and closed."""
    stores = await open_stores(settings)
    try:
        clock = SystemClock()
        sender = HttpSender(
            SenderOptions(allow_private=settings.allow_private, ca_file=settings.ca_file or None)
        )
        engine = await Engine.start(
            flow=stores.flow,
            admin=stores.admin,
            views=stores.views,
            sender=sender,
            clock=clock,
            options=engine_options(settings),
        )
        guard = Guard(allow_private=settings.allow_private)
        options = WebOptions(
            admin_key=admin_key,
            now=clock.now,
            policies=frozenset(settings.schedules),
            refuse_host=_door(guard),
        )
        app = create_app(engine, stores.views, stores.admin, options)
        try:
            yield _uvicorn_config(app, settings)
        finally:
            await engine.stop(grace_ms=settings.grace_ms)
    finally:
        await stores.db.close()


def _door(guard: Guard) -> Callable[[str], str | None]:
    def refuse(host: str) -> str | None:
        trouble = guard.check_literal(host)
        return None if trouble is None else trouble.detail

    return refuse


def _uvicorn_config(app: object, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=max(settings.grace_ms // 1000, 1),
    )


class _Server(uvicorn.Server):
    """Uvicorn, with the signals left to us: it would end the process by the signal itself."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        yield

    def _end(self) -> None:
        log.info("stopping: no new requests, what is in flight is finished")
        self.should_exit = True


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        raise BadSetting(f"listen = {settings.listen}: {error.strerror}.") from error


async def _serve(settings: Settings, admin_key: str, ready: Callable[[str], None]) -> None:
    with _listen(settings) as listener:
        async with running(settings, admin_key=admin_key) as config:
            host, port = listener.getsockname()[:2]
            ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
            await _Server(config).serve(sockets=[listener])


def serve(settings: Settings, *, admin_key: str, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; ``ready`` is told the address."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, admin_key, ready))
