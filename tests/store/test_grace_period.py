"""Changes and publishes beside transactions that are held open, on a real PostgreSQL.

Promised: what-homing-promises.md#matching.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from homing.errors import Fenced
from homing.model import Subscription
from homing.store.admin import Admin
from homing.store.catalog_versions import begin_change, raise_catalog
from homing.store.flow import Flow
from homing.store.leases import Leases
from homing.store.postgres import PostgresDb
from homing.store.tx import Tx
from postgres import Server
from store.build import NOW
from store.scene import Scene

LEASE = 10_000
MOMENT_S = 0.1


class Time:
    now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
async def db(postgres: Server) -> AsyncIterator[PostgresDb]:
    async with postgres.migrated() as dsn:
        db = await PostgresDb.open(dsn)
        yield db
        await db.close()


@asynccontextmanager
async def held_open(db: PostgresDb, work: Callable[[Tx], Awaitable[Any]]) -> AsyncIterator[None]:
    """A transaction that has done this and is not committed before the end."""
    done, go_on = asyncio.Event(), asyncio.Event()

    async def both(tx: Tx) -> None:
        await work(tx)
        done.set()
        await go_on.wait()

    task = asyncio.create_task(db.run(both))
    await done.wait()
    try:
        yield
    finally:
        go_on.set()
        await task


async def subscribe(db: PostgresDb, scene: Scene, tenant: str) -> Subscription:
    endpoint = scene.make.endpoint(f"https://{tenant}.example/", tenant=tenant)
    return await Admin(db).create_subscription(scene.make.subscription(endpoint), endpoint=endpoint)


async def soon(work: Awaitable[Any]) -> Any:
    async with asyncio.timeout(1.5):
        return await work


async def test_publishes_do_not_wait_for_a_change_that_is_held_open(db: PostgresDb) -> None:
    scene = await Scene(db).begin()
    async with held_open(db, raise_catalog):
        await soon(scene.publish([scene.make.event(scene.sub)]))


async def test_a_change_that_is_committed_during_a_publish_does_not_refuse_it(
    db: PostgresDb,
) -> None:
    scene = await Scene(db).begin()
    await scene.publish([scene.make.event(scene.sub)])
    await db.run(raise_catalog)
    await scene.publish([scene.make.event(scene.sub)])


async def test_versions_become_readable_in_their_order(db: PostgresDb) -> None:
    """The change with the lower version is committed last; nobody sees the higher one before."""
    scene, admin, first = await Scene(db).begin(), Admin(db), []

    async def lower(tx: Tx) -> None:
        first.append(await raise_catalog(tx))

    async with held_open(db, lower):
        higher = asyncio.create_task(subscribe(db, scene, "other"))
        await asyncio.sleep(MOMENT_S)
        assert not higher.done()
        assert await admin.catalog_version() < first[0]
        assert await admin.subscriptions_since(0) == [scene.sub] or not higher.done()
    made = await soon(higher)
    assert made.version == first[0] + 1
    assert await admin.catalog_version() == made.version


async def test_a_change_that_waits_for_another_of_its_tenant_stops_no_other_tenant(
    db: PostgresDb,
) -> None:
    scene = await Scene(db).begin()
    async with held_open(db, lambda tx: begin_change(tx, "acme")):
        mine = asyncio.create_task(subscribe(db, scene, "acme"))
        await asyncio.sleep(MOMENT_S)
        assert not mine.done()
        await soon(subscribe(db, scene, "other"))
    await soon(mine)


async def test_a_change_waits_for_a_step_that_writes_deliveries_of_its_subscription(
    db: PostgresDb,
) -> None:
    scene, admin = await Scene(db).begin(), Admin(db)

    def step(tx: Tx) -> Awaitable[Any]:
        return tx.all("subscriptions_share", ids=[scene.sub.id])

    async with held_open(db, step):
        delete = asyncio.create_task(
            admin.delete_subscription(scene.sub.id, now=NOW, cleanup_job_id=5)
        )
        await asyncio.sleep(MOMENT_S)
        assert not delete.done()
        await soon(subscribe(db, scene, "other"))
    await soon(delete)


async def test_a_fence_waits_for_a_publish_that_is_held_open_and_refuses_the_next(
    db: PostgresDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, time = await Scene(db).begin(), Time()
    leases = Leases(db, time)
    me = await leases.join(name="a:1", role="both", delivers=True, lease_ms=LEASE)
    fence = await leases.act(me.id) or 0
    flow, begun, go_on = Flow(db, node=me.node), asyncio.Event(), asyncio.Event()
    at_first = [True]

    async def slow(tx: Tx, events: Any) -> Any:
        if at_first.pop() if at_first else False:
            begun.set()
            await go_on.wait()
        return {}

    monkeypatch.setattr("homing.store.flow.known_keys", slow)
    late = asyncio.create_task(flow.publish([[scene.make.event(scene.sub)]], number=1, fence=fence))
    await begun.wait()
    time.now += LEASE
    fencing = asyncio.create_task(leases.fence_ended())
    await asyncio.sleep(MOMENT_S)
    assert not fencing.done()

    go_on.set()
    await soon(late)
    assert await soon(fencing) == [me.id]
    with pytest.raises(Fenced):
        await flow.publish([[scene.make.event(scene.sub)]], number=2, fence=fence)


async def test_retention_leaves_an_endpoint_that_a_new_subscription_is_about_to_have(
    db: PostgresDb,
) -> None:
    scene, admin = await Scene(db).begin(), Admin(db)
    old = scene.make.endpoint("https://old.example/")
    gone = await admin.create_subscription(scene.make.subscription(old), endpoint=old)
    await db.raw(lambda run: run("DELETE FROM subscription WHERE id = $1", gone.id))

    def taken(tx: Tx) -> Awaitable[Any]:
        return tx.one("endpoint_of_url", tenant=old.tenant, url=old.url)

    far = NOW * 2
    async with held_open(db, taken):
        await soon(Flow(db).remove_history(before=far, limit=100))
    again = await admin.create_subscription(scene.make.subscription(old), endpoint=old)
    assert again.endpoint_id == gone.endpoint_id
