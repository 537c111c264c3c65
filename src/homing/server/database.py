"""Settings → stores: which database, in which process, sealed in front.

Only ``wiring`` uses it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import cast

import msgspec
import structlog
from msgspec import Struct

from homing.engine.engine import LEAVE_MS
from homing.engine.fleet import FleetParts
from homing.errors import BadSetting, HomingError
from homing.net.clock import monotonic
from homing.ports import AdminStore, ClockStore, FlowStore, KeyStore, SealStore, ViewStore
from homing.server.encryption_key import any_sealer, claim, new_key_only_if_taken, sealer_of
from homing.server.settings import DATABASE_FILE, Settings, environ_of_children
from homing.store.admin import Admin
from homing.store.clock_marks import ClockMarks
from homing.store.flow import Flow
from homing.store.keys import Keys
from homing.store.leases import Leases
from homing.store.notify import PostgresWire
from homing.store.postgres import HOT_CONNECTIONS, WRITING_CONNECTIONS, PostgresDb
from homing.store.process.postgres_writer import OffloadedFlow, PostgresWriterProcess
from homing.store.process.sqlite_writer import RemoteStore, SqliteWriterProcess
from homing.store.sealed import Envelopes, SealedAdmin, SealedViews
from homing.store.seals import Seals
from homing.store.sqlite import MEMORY, SqliteDb
from homing.store.tx import Db
from homing.store.views import Views

log = structlog.get_logger("homing")


class Stores(Struct, frozen=True):
    """The ports over one database, and the fleet where there may be many processes."""

    close: Callable[[], Awaitable[None]]
    flow: FlowStore
    admin: AdminStore
    views: ViewStore
    keys: KeyStore
    seals: SealStore
    clock: ClockStore
    fleet: FleetParts | None = None


async def open_stores(settings: Settings, *, in_memory: bool = False) -> Stores:
    """All that is secret is sealed on its way in; raises BadSetting where the keys do not fit."""
    with new_key_only_if_taken(settings):
        sealer = any_sealer() if in_memory else sealer_of(settings)
        stores = await _open(settings, in_memory=in_memory)
        try:
            async with left_unless_started(stores.fleet):
                await claim(stores.seals, sealer)
        except BaseException:
            await stores.close()
            raise
    envelopes = Envelopes(sealer)
    return msgspec.structs.replace(
        stores,
        admin=cast("AdminStore", SealedAdmin(stores.admin, envelopes)),
        views=cast("ViewStore", SealedViews(stores.views, envelopes)),
    )


@contextlib.asynccontextmanager
async def left_unless_started(fleet: FleetParts | None) -> AsyncIterator[None]:
    """Take a process that does not start off the list: nobody waits until its lease ends."""
    try:
        yield
    except BaseException:  # Also a signal that came during the start.
        if fleet is not None:
            await _leave(fleet)
        raise


async def _leave(fleet: FleetParts) -> None:
    try:
        async with asyncio.timeout(LEAVE_MS / 1000):
            await fleet.store.leave(fleet.me.id)
    except (HomingError, TimeoutError) as error:
        log.warning("left without saying so; the lease will end by itself", error=str(error))


async def _open(settings: Settings, *, in_memory: bool) -> Stores:
    """PostgreSQL where a URL is set, otherwise SQLite in the data directory or in memory."""
    db: Db
    if in_memory:
        db = await SqliteDb.open(MEMORY)
    elif settings.database_url:
        return await _in_a_fleet(settings)
    else:
        file = _database_file(settings)
        if settings.writer == "process":
            return await _with_writer_process(file)
        db = await SqliteDb.open(file, threads=settings.writer == "thread")
    marks = ClockMarks(db)
    return Stores(db.close, Flow(db), Admin(db), Views(db), Keys(db), Seals(db), marks)


async def _in_a_fleet(settings: Settings) -> Stores:
    """On PostgreSQL every process is one of many, also when it is the only one."""
    name = f"{socket.gethostname()}:{os.getpid()}"
    in_process = settings.writer == "process"
    db = await PostgresDb.open(
        settings.database_url,
        name=f"homing {name}",
        pooled=settings.pooled,
        hot=HOT_CONNECTIONS - (WRITING_CONNECTIONS if in_process else 0),
    )
    line = settings.listen_url or (None if settings.pooled else settings.database_url)
    beside = db.beside()
    wire, leases = PostgresWire(db, line), Leases(beside)
    writer: PostgresWriterProcess | None = None

    async def close() -> None:
        if writer is not None:
            await writer.close()
        await wire.close()
        await beside.close()
        await db.close()

    try:
        me = await leases.join(
            name=name,
            role=settings.role,
            delivers=settings.role != "api",
            lease_ms=settings.lease_ms,
        )
        fleet = FleetParts(leases, wire, me, lease_ms=settings.lease_ms, joined_s=monotonic())
        flow = Flow(db, node=me.node)
        if in_process:
            writer = PostgresWriterProcess(db.place, node=me.node, environ=environ_of_children())
            async with left_unless_started(fleet):
                await writer.start()
            flow = OffloadedFlow(db, writer, node=me.node)
    except BaseException:
        await close()
        raise
    log.info("joined", process=me.id, node=me.node, role=me.role)
    admin = Admin(db, node=me.node)
    return Stores(close, flow, admin, Views(db), Keys(db), Seals(db), ClockMarks(db), fleet)


async def _with_writer_process(file: Path) -> Stores:
    writer = await SqliteWriterProcess.open(file, node=0)
    reader = SqliteDb.reader(file)

    async def close() -> None:
        await reader.close()
        await writer.close()

    return Stores(
        close,
        cast("FlowStore", RemoteStore(writer, "flow")),
        cast("AdminStore", RemoteStore(writer, "admin")),
        Views(reader),
        cast("KeyStore", RemoteStore(writer, "keys")),
        cast("SealStore", RemoteStore(writer, "seals")),
        cast("ClockStore", RemoteStore(writer, "clock")),
    )


def _database_file(settings: Settings) -> Path:
    directory = Path(settings.data)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadSetting(f"data = {settings.data}: {error.strerror}.") from error
    return directory / DATABASE_FILE
