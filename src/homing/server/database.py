"""Database start-up: settings → stores, with secrets encrypted on their way in."""

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
from homing.engine.fleet.membership import FleetParts
from homing.errors import BadSetting, HomingError
from homing.model import Ids
from homing.net.clock import monotonic_ns
from homing.policy.encryption import KeyRing
from homing.policy.hash_keys import HashKeys
from homing.ports import (
    AdminStore,
    ClockStore,
    EncryptionStore,
    FlowStore,
    KeyStore,
    NoticeStore,
    ViewStore,
)
from homing.ports.audit import AuditStore
from homing.ports.portal import PortalStore
from homing.ports.pull import PullStore
from homing.server.encryption_key import claim, keys_of, new_key_only_if_taken, temporary_keys
from homing.server.settings import DatabaseSettings, Settings, environ_of_children
from homing.store.admin import Admin
from homing.store.audit import Audit
from homing.store.audited import Audited, Auditor
from homing.store.clock_marks import ClockMarks
from homing.store.connect import Connector
from homing.store.encryption import (
    EncryptedAdmin,
    EncryptedNotices,
    EncryptedViews,
    EncryptionKeys,
    FieldCipher,
    hash_keys,
    log_key,
)
from homing.store.flow import Flow
from homing.store.keys import Keys
from homing.store.leases import Leases
from homing.store.notices import Notices
from homing.store.notify import PostgresNotificationBus
from homing.store.portal import Portal
from homing.store.postgres import HOT_CONNECTIONS, WRITING_CONNECTIONS, PostgresDb
from homing.store.process.postgres_writer import OffloadedFlow, PostgresWriterProcess
from homing.store.process.sqlite_writer import RemoteStore, SqliteWriterProcess
from homing.store.pull import Pulls
from homing.store.sqlite import MEMORY, SqliteDb
from homing.store.tx import Db
from homing.store.views import Views

log = structlog.get_logger("homing")


class Stores(Struct, frozen=True):
    """The store ports over one database, and the fleet on PostgreSQL."""

    close: Callable[[], Awaitable[None]]
    flow: FlowStore
    admin: AdminStore
    views: ViewStore
    keys: KeyStore
    portal: PortalStore
    encryption: EncryptionStore
    clock: ClockStore
    notices: NoticeStore
    audit: AuditStore
    audit_views: AuditStore  # the same log, for reads that must not delay a commit
    pull: PullStore
    pull_views: PullStore  # the same streams, likewise
    fleet: FleetParts | None = None
    hash_keys: HashKeys = HashKeys(())  # of this installation
    auditor: Auditor | None = None  # set once the encryption keys are known to fit

    def __repr__(self) -> str:
        return "Stores(****)"


async def open_stores(settings: Settings, *, in_memory: bool = False) -> Stores:
    """Open the database; raises BadSetting if the encryption keys do not fit it."""
    with new_key_only_if_taken(settings):
        key_ring = temporary_keys() if in_memory else keys_of(settings)
        stores = await _open(settings, in_memory=in_memory)
        try:
            async with left_unless_started(stores.fleet):
                await claim(stores.encryption, stores.audit, key_ring)
                await stores.flow.raise_positions()
                fields = FieldCipher(key_ring)
                keys = await hash_keys(stores.encryption, fields)
                auditor = await _auditor(stores, key_ring, settings.fleet.nodes[0])
        except BaseException:
            await stores.close()
            raise
    return msgspec.structs.replace(
        stores,
        admin=cast("AdminStore", EncryptedAdmin(Audited(stores.admin, auditor), fields)),
        views=cast("ViewStore", EncryptedViews(stores.views, fields)),
        keys=cast("KeyStore", Audited(stores.keys, auditor)),
        portal=cast("PortalStore", Audited(stores.portal, auditor)),
        notices=cast("NoticeStore", EncryptedNotices(Audited(stores.notices, auditor), fields)),
        hash_keys=keys,
        pull=cast("PullStore", Audited(stores.pull, auditor)),
        auditor=auditor,
    )


async def _auditor(stores: Stores, key_ring: KeyRing, first_node: int) -> Auditor:
    """With the key of the audit log; ids go on after the last, also if the clock was set back."""
    node = stores.fleet.me.node if stores.fleet is not None else first_node
    ids = Ids(node=node, after=await stores.audit.last_id())
    return Auditor(await log_key(stores.audit, key_ring), ids)


@contextlib.asynccontextmanager
async def left_unless_started(fleet: FleetParts | None) -> AsyncIterator[None]:
    """Leave the fleet if the start fails, so that no process waits for the end of the lease."""
    try:
        yield
    except BaseException:  # Also the cancellation by a signal during the start.
        if fleet is not None:
            await _leave(fleet)
        raise


async def _leave(fleet: FleetParts) -> None:
    try:
        async with asyncio.timeout(LEAVE_MS / 1000):
            await fleet.store.leave(fleet.me.id)
    except (HomingError, TimeoutError) as error:
        log.warning("could not leave the fleet; the lease will expire", error=str(error))


async def _open(settings: Settings, *, in_memory: bool) -> Stores:
    """PostgreSQL if a URL is set, otherwise SQLite in the data directory or in memory."""
    db: Db
    if in_memory:
        db = await SqliteDb.open(MEMORY)
    elif settings.database.url:
        return await _in_a_fleet(settings)
    else:
        file = _database_file(settings.database)
        if settings.database.writer == "process":
            return await _with_writer_process(file)
        db = await SqliteDb.open(file, threads=settings.database.writer == "thread")
    return Stores(
        db.close,
        Flow(db),
        Admin(db),
        Views(db),
        Keys(db),
        Portal(db),
        EncryptionKeys(db),
        ClockMarks(db),
        Notices(db),
        Audit(db),
        Audit(db),
        Pulls(db),
        Pulls(db),
    )


async def _in_a_fleet(settings: Settings) -> Stores:
    """On PostgreSQL a single process is a fleet of one."""
    name = f"{socket.gethostname()}:{os.getpid()}"
    database, lease_ms = settings.database, settings.fleet.lease_ms
    in_process = database.writer == "process"
    db = await PostgresDb.open(
        database.url,
        name=f"homing {name}",
        pooled=database.pooled,
        hot=HOT_CONNECTIONS - (WRITING_CONNECTIONS if in_process else 0),
    )
    line = None if database.pooled else db.connector
    if database.listen_url:
        line = Connector(database.listen_url)
    fleet_db = db.with_own_connections()
    wire, leases = PostgresNotificationBus(db, line), Leases(fleet_db, monotonic_ns=monotonic_ns)
    writer: PostgresWriterProcess | None = None

    async def close() -> None:
        if writer is not None:
            await writer.close()
        await wire.close()
        await fleet_db.close()
        await db.close()

    try:
        me = await leases.join(
            name=name,
            role=settings.fleet.role,
            delivers=settings.fleet.delivers,
            lease_ms=lease_ms,
            nodes=settings.fleet.nodes,
        )
        fleet = FleetParts(leases, wire, me, lease_ms=lease_ms)
        flow = Flow(db, node=me.node)
        if in_process:
            writer = PostgresWriterProcess(db.spec, node=me.node, environ=environ_of_children())
            async with left_unless_started(fleet):
                await writer.start()
            flow = OffloadedFlow(db, writer, node=me.node)
    except BaseException:
        await close()
        raise
    log.info("joined the fleet", process=me.id, node=me.node, role=me.role)
    return Stores(
        close,
        flow,
        Admin(db, node=me.node),
        Views(db),
        Keys(db),
        Portal(db),
        EncryptionKeys(db),
        ClockMarks(db),
        Notices(db, node=me.node),
        Audit(db),
        Audit(db),
        Pulls(db),
        Pulls(db),
        fleet,
    )


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
        cast("PortalStore", RemoteStore(writer, "portal")),
        cast("EncryptionStore", RemoteStore(writer, "encryption")),
        cast("ClockStore", RemoteStore(writer, "clock")),
        cast("NoticeStore", RemoteStore(writer, "notices")),
        cast("AuditStore", RemoteStore(writer, "audit")),
        Audit(reader),
        cast("PullStore", RemoteStore(writer, "pull")),
        Pulls(reader),
    )


def _database_file(database: DatabaseSettings) -> Path:
    try:
        database.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadSetting(f"data = {database.data}: {error.strerror}.") from error
    return database.file
