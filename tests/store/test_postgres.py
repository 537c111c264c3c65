"""PostgreSQL under failures: restarts, killed sessions, and a COMMIT whose reply was lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import pytest

from homing.errors import BadSetting, StoreUnavailable
from homing.ports import Receipt, SettleBatch
from homing.store import postgres as driver
from homing.store.flow import Flow
from homing.store.postgres import PostgresDb
from homing.store.tx import Tx
from postgres import Server
from store.scene import Scene, count


@pytest.fixture
async def pg(postgres: Server) -> AsyncIterator[PostgresDb]:
    db = await PostgresDb.open(await postgres.make())
    yield db
    await db.close()


class Cut:
    """A connection whose reply to one COMMIT is lost."""

    def __init__(self, connection: Any, cut: Callable[[Any], Any]) -> None:
        self._connection = connection
        self._cut = cut

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def execute(self, text: str) -> Any:
        if text == "COMMIT":
            await self._cut(self._connection)
            raise asyncpg.ConnectionDoesNotExistError("connection was closed")
        return await self._connection.execute(text)


def cut_next_commit(db: PostgresDb, cut: Callable[[Any], Any]) -> None:
    sound = db._hot._sound

    async def once() -> Any:
        db._hot._sound = sound  # type: ignore[method-assign]
        return Cut(await sound(), cut)

    db._hot._sound = once  # type: ignore[method-assign]


async def committed_and_lost(connection: Any) -> None:
    await connection.execute("COMMIT")
    connection.terminate()


async def lost_before(connection: Any) -> None:
    connection.terminate()


@pytest.mark.parametrize("cut", [committed_and_lost, lost_before])
async def test_a_publish_whose_reply_was_lost_is_written_once(
    pg: PostgresDb, cut: Callable[[Any], Any]
) -> None:
    scene = await Scene(pg).begin()
    new = scene.make.event(scene.sub)
    cut_next_commit(pg, cut)

    assert await scene.publish([new]) == [[Receipt(new.event.key, 1, new=True)]]

    assert await count(pg, "pending") == 1
    assert await count(pg, "event") == 1


@pytest.mark.parametrize("cut", [committed_and_lost, lost_before])
async def test_a_settle_whose_reply_was_lost_is_written_once(
    pg: PostgresDb, cut: Callable[[Any], Any]
) -> None:
    scene = await Scene(pg).begin()
    (delivery,) = await scene.deliver(1)
    batch = SettleBatch(
        number=7,
        finished=(scene.make.finished(delivery),),
        attempts=(scene.make.attempt(delivery),),
    )
    cut_next_commit(pg, cut)

    assert (await scene.flow.settle(batch)).gone == frozenset()

    assert await count(pg, "history") == 1
    assert await count(pg, "attempt") == 1


async def test_a_commit_still_under_way_is_waited_for(pg: PostgresDb, postgres: Server) -> None:
    scene = await Scene(pg).begin()
    new = scene.make.event(scene.sub)
    late: list[asyncio.Task[None]] = []

    async def commit_late(connection: Any) -> None:
        """The server commits after the connection is lost, once another session waits."""
        async with pg._views.take() as watcher:
            while not await watcher.fetch("SELECT 1 FROM pg_locks WHERE NOT granted"):
                await asyncio.sleep(0)
        await connection.execute("COMMIT")
        connection.terminate()

    sound = pg._hot._sound

    class Held(Cut):
        def terminate(self) -> None:
            """The connection is lost for the client, not for the server."""

        def is_in_transaction(self) -> bool:
            return True

    async def slow_commit(connection: Any) -> None:
        late.append(asyncio.ensure_future(commit_late(connection)))

    async def once() -> Any:
        pg._hot._sound = sound  # type: ignore[method-assign]
        return Held(await sound(), slow_commit)

    pg._hot._sound = once  # type: ignore[method-assign]

    assert await scene.publish([new]) == [[Receipt(new.event.key, 1, new=True)]]

    await asyncio.gather(*late)
    assert await count(pg, "pending") == 1


async def test_a_batch_given_up_and_tried_again_is_still_written_once(
    pg: PostgresDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = await Scene(pg).begin()
    (delivery,) = await scene.deliver(1)
    batch = SettleBatch(
        number=7,
        finished=(scene.make.finished(delivery),),
        attempts=(scene.make.attempt(delivery),),
    )
    monkeypatch.setattr(driver, "PAUSES_S", ())
    cut_next_commit(pg, committed_and_lost)
    with pytest.raises(StoreUnavailable):
        await scene.flow.settle(batch)

    assert (await scene.flow.settle(batch)).gone == frozenset()

    assert await count(pg, "attempt") == 1


async def test_numbers_that_begin_again_with_a_process_are_other_batches(pg: PostgresDb) -> None:
    scene = await Scene(pg).begin()
    await scene.deliver(1)
    again = await PostgresDb.open(pg.spec.dsn)
    scene.flow, scene._numbers = Flow(again), iter(range(1, 10))
    cut_next_commit(again, lost_before)

    await scene.deliver(1)

    assert await count(pg, "pending") == 2
    await again.close()


async def test_a_batch_written_by_a_process_that_has_ended_is_known(pg: PostgresDb) -> None:
    scene = await Scene(pg).begin()
    new, (delivery,) = scene.make.event(scene.sub), await scene.deliver(1)
    batch = SettleBatch(number=7, finished=(scene.make.finished(delivery),))
    await scene.flow.publish([[new]], number=8)
    await scene.flow.settle(batch)
    another = PostgresDb.at(pg.spec, hot=1)  # as one that we start in its place
    flow = Flow(another)

    assert (await flow.settle(batch)).gone == frozenset()
    with pytest.raises(StoreUnavailable):  # What it answered is not known.
        await flow.publish([[new]], number=8)

    assert (await count(pg, "pending"), await count(pg, "history")) == (1, 1)
    await another.close()


async def test_killed_sessions_are_replaced(pg: PostgresDb, postgres: Server) -> None:
    scene = await Scene(pg).begin()
    await scene.deliver(1)
    admin = await asyncpg.connect(postgres.dsn("postgres"))
    kill = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'homing'"
    )
    await admin.execute(kill)

    await scene.deliver(1)
    killed = False

    async def work(tx: Tx) -> int:
        nonlocal killed
        if not killed:
            killed = True
            await admin.execute(kill)
        row = await tx.one("last_id")
        assert row is not None
        return int(row[0])

    assert await pg.run(work) > 0
    assert len((await scene.due()).fresh) == 2
    await admin.close()


async def test_a_restart_of_the_server_is_lived_through(pg: PostgresDb, postgres: Server) -> None:
    scene = await Scene(pg).begin()
    await scene.deliver(1)

    await postgres.restart()

    await scene.deliver(1)
    assert len((await scene.due()).fresh) == 2


async def test_without_a_server_the_store_says_so_and_heals(
    pg: PostgresDb, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = await Scene(pg).begin()
    monkeypatch.setattr(driver, "PAUSES_S", (0.0, 0.0))
    await postgres.halt()
    try:
        with pytest.raises(StoreUnavailable):
            await scene.deliver(1)
        with pytest.raises(StoreUnavailable):
            await scene.due()
    finally:
        await postgres.resume()

    await scene.deliver(1)
    assert len((await scene.due()).fresh) == 1


async def test_a_loser_of_a_race_runs_again(pg: PostgresDb) -> None:
    runs = 0

    async def work(tx: Tx) -> int:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise asyncpg.DeadlockDetectedError("deadlock")
        return runs

    assert await pg.run(work) == 3


async def test_an_address_that_will_never_do_is_a_bad_setting(postgres: Server) -> None:
    with pytest.raises(BadSetting, match="has no database nowhere: create it"):
        await PostgresDb.open(postgres.dsn("nowhere"))
