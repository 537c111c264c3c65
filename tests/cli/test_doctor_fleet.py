"""What ``homing doctor`` says of a PostgreSQL and the processes on it."""

from __future__ import annotations

import asyncio

from homing.cli.doctor_checks import CheckStatus, check_fleet
from homing.server.settings import Settings
from homing.store.leases import Leases
from homing.store.postgres import PostgresDb
from postgres import Server


def test_the_fleet_is_told_with_its_leases_vacuum_days_and_clock(postgres: Server) -> None:
    async def prepare() -> str:
        dsn = await postgres.make()
        db = await PostgresDb.open(dsn)
        leases = Leases(db)
        me = await leases.join(name="here:1", role="both", delivers=True, lease_ms=60_000)
        await leases.take(me.id, dict.fromkeys(range(256), 0))
        await db.close()
        return dsn

    dsn = asyncio.run(prepare())
    found = {it.name: it for it in check_fleet(Settings.of(database_url=dsn))}
    assert found["fleet"].sentence == "Buckets: here:1 (both) 256."
    assert {it.status for it in found.values()} == {CheckStatus.OK}
    assert found["days"].sentence == "Partitions exist for 2 days ahead."
    assert "pending" in found["vacuum"].sentence
    assert "differ by" in found["skew"].sentence


def test_nobody_who_delivers_is_wrong(postgres: Server) -> None:
    async def prepare() -> str:
        dsn = await postgres.make()
        db = await PostgresDb.open(dsn)
        await Leases(db).join(name="here:1", role="api", delivers=False, lease_ms=60_000)
        await db.close()
        return dsn

    dsn = asyncio.run(prepare())
    found = {it.name: it for it in check_fleet(Settings.of(database_url=dsn))}
    assert found["fleet"].status is CheckStatus.ERROR


def test_without_postgresql_there_is_no_fleet_to_look_at() -> None:
    assert check_fleet(Settings()) == []
