"""Versions of the catalog: no two histories of a database have one in common."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from homing.engine.catalog import PAGE, TURN, Catalog
from homing.model import Subscription
from homing.ports import CATALOG_GAP
from homing.store.admin import Admin
from homing.store.catalog_versions import raise_catalog, raise_catalog_above, raise_catalog_raw
from homing.store.migrate import Execute
from homing.store.tx import Tx
from store.build import Maker, put


async def serve_with(db: Any, server: int) -> None:
    """From now on another server writes to this database."""

    async def become(run: Execute) -> None:
        if db.dialect == "postgres":
            await run(
                "CREATE OR REPLACE FUNCTION server_started() RETURNS bigint LANGUAGE sql STABLE"
                f" AS $$ SELECT {server}::bigint $$"
            )
        else:  # There is no server: the row is as another one left it.
            await run(f"UPDATE catalog SET server = {server}")

    await db.raw(become)


async def go_back(db: Any, version: int, server: int) -> None:
    """Lose the changes since a version, which this server made."""
    await db.raw(
        lambda run: run(f"UPDATE catalog SET version = {version}, server = {server}, base = NULL")
    )


async def base_of(db: Any) -> int | None:
    return (await Admin(db).catalog_notes(0)).base


async def test_changes_of_one_server_raise_the_version_by_one(db: Any) -> None:
    assert [await db.run(raise_catalog) for _ in range(3)] == [1, 2, 3]
    assert await base_of(db) is None


async def test_the_first_change_of_another_server_leaves_a_gap_and_notes_where_it_began(
    db: Any,
) -> None:
    last = await db.run(raise_catalog)
    await serve_with(db, 5)

    first = await db.run(raise_catalog)

    assert first >= last + CATALOG_GAP
    assert await base_of(db) == last
    assert await db.run(raise_catalog) == first + 1
    assert await base_of(db) == last


async def test_the_versions_of_two_servers_that_follow_the_same_one_are_far_apart(db: Any) -> None:
    last = await db.run(raise_catalog)
    given: list[int] = []
    for server in (5, 6):
        await go_back(db, last, 4)
        await serve_with(db, server)
        given.append(await db.run(raise_catalog))
    assert abs(given[0] - given[1]) >= CATALOG_GAP  # Neither follows the other.


async def test_plain_sql_raises_the_version_in_the_same_way(db: Any) -> None:
    last = await db.run(raise_catalog)
    await serve_with(db, 5)
    versions = [await db.raw(lambda run: raise_catalog_raw(run, db.dialect)) for _ in range(2)]
    assert versions[0] >= last + CATALOG_GAP
    assert versions[1] == versions[0] + 1
    assert await base_of(db) == last


async def test_a_process_that_has_seen_more_raises_the_version_above_it(db: Any) -> None:
    last = await db.run(raise_catalog)

    async def heal(tx: Tx) -> None:
        await raise_catalog_above(tx, last + 7)

    await db.run(heal)

    assert await Admin(db).catalog_version() >= last + 7 + CATALOG_GAP
    assert await base_of(db) == last
    healed = await Admin(db).catalog_version()
    assert await db.run(raise_catalog) == healed + 1


# --- reading after a large step ---------------------------------------------------------------


class Counted(Admin):
    """Counts the subscriptions that are read, and the largest page."""

    read = largest = 0

    async def subscriptions_since(self, version: int, **more: int) -> list[Subscription]:
        found = await super().subscriptions_since(version, **more)
        self.read, self.largest = self.read + len(found), max(self.largest, len(found))
        return found


async def many(db: Any, count: int) -> Maker:
    make = Maker()
    endpoint = make.endpoint()
    subs = [make.subscription(endpoint) for _ in range(count)]
    await put(db, endpoints=[endpoint], subscriptions=[replace(it, version=1) for it in subs])
    await db.run(raise_catalog)
    return make


async def change(db: Any, make: Maker) -> Subscription:
    endpoint = make.endpoint(f"https://{make.id()}.example/")
    return await Admin(db).create_subscription(make.subscription(endpoint), endpoint=endpoint)


async def test_after_a_restart_of_the_server_only_what_has_changed_is_read(db: Any) -> None:
    make, admin = await many(db, 3), Counted(db)
    catalog = Catalog(admin)
    await catalog.refresh()
    assert admin.read == 3
    await serve_with(db, 5)
    new = await change(db, make)
    await change(db, make)

    await catalog.refresh()

    assert admin.read == 3 + 2
    assert catalog.get(new.id) == new
    assert catalog.version == await admin.catalog_version()
    await change(db, make)
    await catalog.refresh()
    assert admin.read == 3 + 3


@pytest.mark.parametrize("lost", [True, False])
async def test_what_was_lost_or_after_a_second_step_everything_is_read(db: Any, lost: bool) -> None:
    make, admin = await many(db, 3), Counted(db)
    catalog = Catalog(admin)
    losses: list[tuple[int, int]] = []
    catalog.on_lost = lambda known, found: losses.append((known, found))
    await change(db, make)
    await catalog.refresh()
    if lost:
        await go_back(db, catalog.version - 1, 4)
    await serve_with(db, 5)
    await change(db, make)
    if not lost:
        await serve_with(db, 6)
        await change(db, make)
    before = admin.read

    await catalog.refresh()

    assert admin.read - before == (5 if lost else 6)
    assert bool(losses) == lost


async def test_a_large_catalog_is_read_in_pages_and_the_loop_goes_on_meanwhile(db: Any) -> None:
    await many(db, 2 * PAGE + 7)
    admin = Counted(db)
    catalog, turns = Catalog(admin), 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await catalog.refresh()
    counting.cancel()

    assert (admin.read, admin.largest) == (2 * PAGE + 7, PAGE)
    assert turns >= 2 * PAGE // TURN
    assert len(catalog.of_tenant("acme")) == 2 * PAGE + 7
