"""A canary in every column of every table: an erased tenant leaves none, in rows and in files.

Promised: what-homing-promises.md#erasure.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

from homing.policy.erasure import ErasedIds
from homing.ports.erasures import Erasure, ErasureKind
from homing.store.admin import Admin
from homing.store.backup import copy_database
from homing.store.migrate import Execute
from homing.store.move import Table, tables_of
from homing.store.sqlite import SqliteDb
from homing.store.tenant_rows import AUDIT, LINKS, UNITS, Stays
from store.build import NOW, Maker
from store.scene import Scene

CANARY = "canary-7f3a"
IDS = ErasedIds((b"k",))
STEP = 3
# The names of these columns lead to the tenant; the numbers are those of a scene.
NUMBERS = {"endpoint_id": "endpoint", "subscription_id": "subscription", "event_id": "event"}


class Planter:
    """Writes rows of a tenant with a canary in each column of text or bytes."""

    def __init__(self, db: Any, tables: dict[str, Table], ids: dict[str, int]) -> None:
        self._db, self._tables, self._ids = db, tables, ids
        self._free = itertools.count(ids["event"] + 1)

    async def plant(self, name: str, **given: Any) -> dict[str, Any]:
        """Write a row of a table; the columns that are not given have a canary, or a number."""
        table = self._tables[name]
        row = {
            column: self._value(column, kind)
            for column, kind in zip(table.columns, table.types, strict=True)
            if column != "turn"  # computed
        } | given
        assert given.keys() <= set(table.columns), name
        lite = self._db.dialect == "sqlite"
        marks = ", ".join("?" if lite else f"${n}" for n in range(1, len(row) + 1))
        text = f"INSERT INTO {name} ({', '.join(row)}) VALUES ({marks})"
        await self._db.raw(lambda run: run(text, *row.values()))
        return row

    def _value(self, column: str, kind: str) -> Any:
        kind = kind.lower()
        if column == "tenant":
            return "acme"
        if column in NUMBERS:
            return self._ids[NUMBERS[column]]
        if kind in {"text", "character varying"}:
            return CANARY
        if kind in {"blob", "bytea"}:
            return CANARY.encode()
        return next(self._free) if column == "id" else 0


async def plant_everywhere(db: Any) -> set[str]:
    """A tenant with a row in each table that may have one; returns their names."""
    scene = await Scene(db).begin()
    make = scene.make
    event = make.event(scene.sub, key=CANARY, kind=CANARY, data=f'"{CANARY}"'.encode())
    await scene.publish([event])
    number, (delivery,) = event.event.id, event.deliveries
    stream, target = make.id(), make.id()
    ids = {"endpoint": scene.endpoint.id, "subscription": scene.sub.id, "event": number}
    tables = await tables_of(db)
    planter, planted = Planter(db, tables, ids), {"event", "event_key", "endpoint"}

    async def plant(name: str, **given: Any) -> None:
        planted.add(name)
        await planter.plant(name, **given)

    later = delivery.id + 1
    await db.raw(lambda run: run(f"UPDATE event SET last_id = {later + 2} WHERE id = {number}"))
    await plant("pending", id=later, bucket=scene.endpoint.bucket)
    await plant("history", id=later + 1)
    await plant("attempt", delivery_id=later + 1, number=1)
    await plant("attempt", delivery_id=make.id(), number=1)  # a test send
    await plant("event_field")
    await plant("replay_link", delivery_id=later + 1)
    await plant("subscription", id=make.id(), deleted_at=NOW)
    for name in ("cause", "transition", "key_release", "cleanup_job"):
        first = tables[name].key[0]
        await plant(name, **{first: make.id()})
    filters = f'{{"tenant":"acme","event_key":"{CANARY}"}}'
    await plant("replay_job", id=make.id(), filter=filters)
    await plant("notice_target", id=target, created_at=NOW)
    await plant("notice", target_id=target, owner="acme")
    await plant("notice", target_id=make.id())  # for the operator
    await plant("notice_overflow", target_id=target)
    await plant("pull_stream", subscription_id=stream)
    await plant("pull_entry", subscription_id=stream)
    await plant("pull_reader", subscription_id=stream)
    await plant("api_key", revoked_at=None)
    for name in ("portal_link", "portal_settings", "signing_keys", "event_type"):
        await plant(name)
    await plant("event_type_change")
    return planted


async def erase_tenant(db: Any) -> None:
    """Erase the tenant as the engine does."""
    admin = Admin(db)
    new = Erasure(Maker().id(), "acme", ErasureKind.TENANT, "", b"", NOW)
    begun = await admin.begin_erasure(new, key=None, earlier=())
    begun = await admin.bound_erasure(begun.id)
    again = True
    while again:
        again, after_key = False, ""
        while True:
            events, on_after = await admin.erasable(begun, after_key=after_key, limit=STEP)
            again = again or bool(events)
            hashed = [(it, IDS.of(it.tenant, it.key)[0]) for it in events]
            while not await admin.erase_events(begun.id, hashed, limit=STEP):
                pass
            if on_after is None:
                break
            after_key = on_after
        while not (step := await admin.erase_rest_of_tenant(begun, limit=STEP)).done:
            assert step.touched
    await admin.empty_log()
    assert await admin.finish_erasure(begun, now=NOW)


async def with_canary(db: Any) -> set[str]:
    """The tables that have a canary."""

    tables = await tables_of(db)

    async def read(run: Execute) -> set[str]:
        found = set()
        for name in tables:
            for row in await run(f"SELECT * FROM {name}"):
                if any(CANARY in str(it) or CANARY.encode() in _bytes(it) for it in row):
                    found.add(name)
        return found

    return set(await db.raw(read))


def _bytes(value: Any) -> bytes:
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else b""


async def test_an_erased_tenant_leaves_nothing_in_any_column_of_any_table(db: Any) -> None:
    planted = await plant_everywhere(db)
    stay = {
        table
        for it in (*UNITS, AUDIT, LINKS)
        if isinstance(it.erased, Stays)
        for table in it.tables
    }
    of_tenants = {table for it in (*UNITS, AUDIT, LINKS) for table in it.tables}
    assert planted == of_tenants - stay
    has_text = planted - {"event_type_change", "replay_link", "pull_entry", "pull_stream"}
    assert await with_canary(db) >= has_text - {"endpoint"}

    await erase_tenant(db)

    assert await with_canary(db) == set()

    async def left(run: Execute) -> dict[str, int]:
        counted = {name: (await run(f"SELECT count(*) FROM {name}"))[0][0] for name in planted}
        return {name: count for name, count in counted.items() if count}

    assert await db.raw(left) == {}


async def test_the_file_its_log_and_a_new_backup_have_nothing_of_an_erased_tenant(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    db = await SqliteDb.open(folder / "homing.db")
    await plant_everywhere(db)

    def holding() -> set[str]:
        return {it.name for it in folder.iterdir() if CANARY.encode() in it.read_bytes()}

    assert holding()
    await erase_tenant(db)
    assert holding() == set()
    copy = tmp_path / "copy.db"
    await asyncio.to_thread(copy_database, folder / "homing.db", copy, lambda *_: None)
    assert CANARY.encode() not in copy.read_bytes()
    await db.close()
    assert holding() == set()
