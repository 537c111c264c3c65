"""A database of every schema since 8 is opened by today's program, which delivers what waits in it.

The rows are written with the names of their schema, as the program of that time would have done.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from client.hooks import Hook, hook
from homing.errors import BadSetting
from homing.model import bucket_of, id_floor
from homing.server.serve import serving
from homing.server.settings import Settings
from homing.store import migrate as migrate_module
from homing.store.migrate import Execute, migrate, migrations
from homing.store.migration_plan import Plan, plan_postgres, plan_sqlite, read_step
from homing.store.postgres import PostgresDb
from homing.store.sqlite import SqliteDb
from homing_client import Homing
from postgres import Server

OLDEST = 8
NEWEST = migrations("sqlite")[-1].number
# Every run has the oldest ones, those before and after the values were renamed, and the newest.
EVERY_RUN = {OLDEST, 11, 12, NEWEST - 1, NEWEST}
SCHEMAS = [
    pytest.param(it, marks=[] if it in EVERY_RUN else pytest.mark.long)
    for it in range(OLDEST, NEWEST + 1)
]
WITHIN_S = 60.0
KEY = "hk_upgrade-test-key-012345"
SECRET = "aG9taW5nIGFjY2VwdGFuY2UgdGVzdCBzZWFsIGtleSE="


def rows(schema: int, url: str) -> dict[str, dict[str, Any]]:
    """A subscription with an event that is pending, in the columns of this schema."""
    now = int(time.time() * 1000)
    first = id_floor(now - 60_000)
    owned = {"tenant": "default", "bucket": bucket_of("default", url)}
    return {
        "subscription": {
            "id": first,
            "tenant": "default",
            "endpoint_id": first,
            "url": url,
            "types": '["*"]',
            "format": "standard",
            "secrets": "[]",
            "headers": "[]",
            "active": 1,
            "description": "from long ago",
            "created_at": now - 60_000,
            "updated_at": now - 60_000,
            "version": 1,
        },
        "endpoint": {
            "id": first,
            **owned,
            "url": url,
            "created_at": now - 60_000,
            "generation": 1,
            "state": "enabled",
            "since": now - 60_000,
            "enabled_since": now - 60_000,
            "attempts": 0,
            "failures": 0,
            "consecutive_failures": 0,
            "warned": 0,
            "probe_after_id": 0,
            "hold_until": 0,
            "dropped_unreported": 0,
            "dropped_reported_at": 0,
            "rule": "",
        },
        "event": {
            "id": first,
            "tenant": "default",
            "key": "waits",
            "type": "a.b",
            "time": "2026-01-01T00:00:00Z",
            "accepted_at": now - 60_000,
            "data": b"1",
            "deliveries": 1,
            "last_id": first + 1,
        },
        "pending": {
            "id": first + 1,
            **owned,
            "endpoint_id": first,
            "subscription_id": first,
            "event_id": first,
            "root_id": first + 1,
            "accepted_at": now - 60_000,
            "part": 0,
            "due_at": now - 60_000,
            "expires_at": now + 86_400_000,
            "retry": 0,
            "attempts": 0,
            "ours" if schema < 12 else "sender_errors": 0,
            "replay": 0,
        },
    }


async def write(db: Any, schema: int, url: str) -> None:
    """Make the database as it was at this schema, with its rows."""
    old = tuple(it for it in migrations(db.dialect) if it.number <= schema)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate_module, "migrations", lambda _: old)
        await migrate(db)
    sign = "$" if db.dialect == "postgres" else "?"

    async def insert(execute: Execute) -> None:
        for table, row in rows(schema, url).items():
            marks = ", ".join(f"{sign}{n}" for n, _ in enumerate(row, 1))
            await execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", *row.values())
        await execute("UPDATE catalog SET version = 1")  # as of the subscription

    await db.raw(insert)
    await db.close()


async def check(settings: Settings, receiver: Hook) -> None:
    """Today's program delivers what waits, accepts more, and has all accounts."""
    async with serving(settings, admin_key=KEY) as (address, _):

        def use() -> None:
            with Homing(address, KEY) as client:
                (kept,) = client.subscriptions()
                assert kept.description == "from long ago"
                client.publish("a.b", {"n": 2}, id="new")
                end = time.monotonic() + WITHIN_S
                while [it.status for it in client.deliveries()] != ["delivered", "delivered"]:
                    assert time.monotonic() < end
                    time.sleep(0.01)

        await asyncio.to_thread(use)
    assert {json.loads(body)["id"] for _, body in receiver.came} == {"waits", "new"}


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_today_s_program_goes_on_with_an_old_database(
    store: str, schema: int, postgres: Server, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"data": str(tmp_path), "listen": "127.0.0.1:0", "writer": "inline"}
    with hook() as receiver:
        if store == "sqlite":
            db: Any = SqliteDb(str(tmp_path / "homing.db"), threads=False, lock=None)
        else:
            given["database_url"] = await postgres.make()
            db = PostgresDb(given["database_url"])
        await write(db, schema, receiver.url)
        settings = Settings.of(**given, allow_loopback=True, secret_key=SECRET)
        await check(settings, receiver)


# --- the plan -------------------------------------------------------------------------------


async def planned(store: str, schema: int, postgres: Server, folder: Path) -> Plan:
    if store == "sqlite":
        file = folder / "homing.db"
        await write(SqliteDb(str(file), threads=False, lock=None), schema, "http://a.example/")
        return plan_sqlite(file)
    address = await postgres.make()
    await write(PostgresDb(address), schema, "http://a.example/")
    return await plan_postgres(address, shown="it")


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_a_plan_names_steps_rows_and_whether_old_processes_may_go_on(
    store: str, postgres: Server, tmp_path: Path
) -> None:
    plan = await planned(store, 14, postgres, tmp_path)
    assert (plan.schema, plan.newest, plan.old_processes_may_run) == (14, NEWEST, True)
    causes = plan.migrations[0]
    assert (causes.number, causes.name) == (15, "causes")
    texts = [step.text for step in causes.steps]
    assert texts[0] == "creates the table cause"
    assert "adds the column cause_id to history" in texts
    index = next(it for it in causes.steps if "subscription_living" in it.text)
    assert index.text == "builds the index subscription_living on subscription"
    if store == "sqlite":  # PostgreSQL estimates, after its first analyze.
        assert index.rows == 1
    assert {it.rows for it in causes.steps if it.table == "cause"} == {0}


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_a_plan_with_a_rename_says_that_old_processes_must_stop(
    store: str, postgres: Server, tmp_path: Path
) -> None:
    plan = await planned(store, 11, postgres, tmp_path)
    assert not plan.old_processes_may_run
    renamed = plan.migrations[0].steps[0]
    assert (renamed.text, renamed.breaks_old) == ("renames pending.ours to sender_errors", True)


async def test_a_plan_of_an_empty_or_current_or_newer_database(tmp_path: Path) -> None:
    file = tmp_path / "homing.db"
    assert plan_sqlite(file).schema == 0
    assert not file.exists()
    db = await SqliteDb.open(file)
    assert plan_sqlite(file).migrations == ()
    await db.raw(lambda execute: execute("INSERT INTO migration VALUES (9999, 'later', 0)"))
    await db.close()
    with pytest.raises(BadSetting, match=r"9999.*restore the backup"):
        plan_sqlite(file)


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_every_statement_of_every_migration_is_described(dialect: Any) -> None:
    for migration in migrations(dialect):
        for statement in migration.statements:
            assert not read_step(statement)[0].startswith("runs:"), statement
