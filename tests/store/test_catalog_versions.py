"""Versions of the catalog: no two histories of a database have one in common."""

from __future__ import annotations

from typing import Any

from homing.ports import CATALOG_GAP
from homing.store.admin import Admin
from homing.store.catalog_versions import raise_catalog, raise_catalog_above, raise_catalog_raw
from homing.store.migrate import Execute
from homing.store.tx import Tx


async def serve_with(db: Any, server: int) -> None:
    """From now on another server writes to this database."""

    async def replace(run: Execute) -> None:
        if db.dialect == "postgres":
            await run(
                "CREATE OR REPLACE FUNCTION server_started() RETURNS bigint LANGUAGE sql STABLE"
                f" AS $$ SELECT {server}::bigint $$"
            )
        else:  # There is no server: the row is as another one left it.
            await run(f"UPDATE catalog SET server = {server}")

    await db.raw(replace)


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
