"""The PostgreSQL writer process does what the store does; its death loses or repeats nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from homing.errors import (
    Fenced,
    HomingError,
    LostLeases,
    StaleCatalog,
    StaleEndpoints,
    StoreUnavailable,
)
from homing.model import State
from homing.ports import Receipt, SettleBatch, SettleResult
from homing.server.database import open_stores
from homing.server.settings import Settings
from homing.store.postgres import ConnectionSpec, Inserts, PostgresDb
from homing.store.process.postgres_writer import OffloadedFlow, PostgresWriterProcess
from homing.store.tx import AlreadyWritten
from postgres import Server
from store.build import NOW
from store.scene import Scene, count, every

HELD = 4711  # the advisory lock for which commits wait

_HOLD = f"""
    CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN PERFORM pg_advisory_xact_lock({HELD}); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER hold AFTER INSERT OR UPDATE ON batch_mark
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold();
"""
WRITTEN = (
    *("event_key", "event", "pending", "history", "attempt", "transition", "ledger"),
    *("endpoint", "rollup"),
)


class Office:
    """A scene whose publishes and settles run in the writer process."""

    def __init__(self, db: PostgresDb, watcher: Any) -> None:
        self.db, self.watcher = db, watcher
        self.writer = PostgresWriterProcess(db.spec, node=0)
        self.scene = Scene(db)
        self.scene.flow = self.flow = OffloadedFlow(db, self.writer, node=0)

    @property
    def child(self) -> subprocess.Popen[bytes]:
        assert self.writer.process is not None
        return self.writer.process

    def kill(self) -> None:
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()

    async def batch(self) -> SettleBatch:
        make, (delivery,) = self.scene.make, await self.scene.deliver(1)
        return SettleBatch(
            number=make.id(),
            finished=(make.finished(delivery),),
            attempts=(make.attempt(delivery),),
        )

    async def waits(self, kind: str) -> None:
        """Wait until a session waits for a lock of this kind."""
        text = "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = $1"
        async with asyncio.timeout(30):
            while not await self.watcher.fetch(text, kind):
                await asyncio.sleep(0.005)

    async def holding_commits(self) -> None:
        await self.watcher.execute(_HOLD)
        await self.watcher.execute(f"SELECT pg_advisory_lock({HELD})")

    async def let_go(self) -> None:
        await self.watcher.execute(f"SELECT pg_advisory_unlock({HELD})")

    async def settled_once(self) -> None:
        tables = ("pending", "history", "attempt")
        assert [await count(self.db, it) for it in tables] == [0, 1, 1]
        assert sum(row[3] for row in await every(self.db, "ledger")) == 1  # delivered


@pytest.fixture
async def office(postgres: Server) -> AsyncIterator[Office]:
    db = await PostgresDb.open(await postgres.make())
    watcher = await asyncpg.connect(db.spec.dsn)
    office = Office(db, watcher)
    await office.scene.begin()
    yield office
    await watcher.close()
    await office.writer.close()
    await db.close()


async def _a_life(scene: Scene) -> None:
    """At least one row of every kind, in one batch and in many."""
    make = scene.make
    twice = make.event(scene.sub, key="twice")
    await scene.publish([twice], [twice, make.event()], [make.event(scene.sub, scene.sub)])
    many = await scene.deliver(150)
    endpoint = replace(
        scene.endpoint, health=replace(scene.endpoint.health, state=State.FROZEN, failures=3)
    )
    await scene.flow.settle(
        SettleBatch(
            number=make.id(),
            finished=tuple(make.finished(it) for it in many[:140]),
            waiting=tuple(replace(it, due_at=NOW + 5, retry=1) for it in many[140:]),
            attempts=tuple(make.attempt(it) for it in many),
            endpoints=(endpoint,),
            transitions=(make.transition(scene.endpoint),),
            notices=(make.event(scene.sub, kind="homing.endpoint.frozen"),),
        )
    )


async def test_it_writes_the_same_rows(office: Office, postgres: Server) -> None:
    other = await PostgresDb.open(await postgres.make())
    await _a_life(await Scene(other).begin())

    await _a_life(office.scene)

    for table in WRITTEN:
        written = await every(office.db, table)
        assert written == await every(other, table), table
        assert written, table
    await other.close()


async def test_what_is_refused_comes_back_as_it_is(office: Office) -> None:
    scene, make = office.scene, office.scene.make
    await office.flow.publish([], number=100)
    with pytest.raises(Fenced):
        await office.flow.publish([[make.event(scene.sub)]], number=101, fence=7)
    old = replace(scene.endpoint, generation=5)
    with pytest.raises(StaleEndpoints) as stale:
        await office.flow.settle(SettleBatch(number=1, endpoints=(old,)))
    assert stale.value.endpoint_ids == frozenset({old.id})
    with pytest.raises(LostLeases) as lost:
        await office.flow.settle(SettleBatch(number=1, fences=((3, 7), (200, 9))))
    assert lost.value.buckets == frozenset({3, 200})
    same = make.event(scene.sub)
    with pytest.raises(RuntimeError, match=r"publish: UniqueViolationError$"):  # a bug of ours
        await scene.publish([same], [replace(same, event=replace(same.event, key="b"))])
    await scene.deliver(1)  # It lives.


@pytest.mark.parametrize(
    "error",
    [
        StaleCatalog(),
        StaleEndpoints(frozenset({3, 4})),
        LostLeases(frozenset({7})),
        StoreUnavailable("PostgreSQL: DiskFullError."),
        AlreadyWritten(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_the_way_between_processes_word_for_word(error: HomingError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)


async def test_a_server_that_is_away_is_told_of_each_call(postgres: Server) -> None:
    spec = ConnectionSpec(postgres.dsn("nobody-made-this"), "homing", False, Inserts(()), 1)
    writer = PostgresWriterProcess(spec, node=0)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="InvalidCatalogNameError"):
            await writer.call("flow", "publish", [], number=1)
        with pytest.raises(StoreUnavailable, match="InvalidCatalogNameError"):
            await writer.call("flow", "settle", SettleBatch(number=1))
    assert writer.process is not None
    assert writer.process.poll() is None  # It is the same all the time.
    await writer.close()


async def test_a_settle_that_is_held_up_holds_up_no_publish(office: Office) -> None:
    batch = await office.batch()
    async with office.watcher.transaction():
        await office.watcher.execute("LOCK TABLE history IN EXCLUSIVE MODE")
        settling = asyncio.create_task(office.flow.settle(batch))
        await office.waits("relation")
        new = office.scene.make.event(office.scene.sub)
        assert await office.scene.publish([new]) == [[Receipt(new.event.key, 1, new=True)]]
        assert not settling.done()

    assert (await settling).gone == frozenset()


async def test_killed_before_the_commit_it_has_written_nothing(office: Office) -> None:
    batch = await office.batch()
    async with office.watcher.transaction():
        await office.watcher.execute("LOCK TABLE history IN EXCLUSIVE MODE")
        settling = asyncio.create_task(office.flow.settle(batch))
        await office.waits("relation")
        office.kill()
        with pytest.raises(StoreUnavailable):
            await settling

    assert (await office.flow.settle(batch)).gone == frozenset()
    await office.settled_once()


async def test_killed_in_the_commit_the_batch_is_written_once(office: Office) -> None:
    batch = await office.batch()
    await office.holding_commits()
    settling = asyncio.create_task(office.flow.settle(batch))
    await office.waits("advisory")
    office.kill()
    with pytest.raises(StoreUnavailable):
        await settling
    again = asyncio.create_task(office.flow.settle(batch))
    await office.waits("transactionid")  # The server is still at it: the mark makes us wait.
    await office.let_go()

    assert (await again).gone == frozenset()
    await office.settled_once()


async def test_killed_in_the_commit_a_publish_is_in_doubt_and_not_doubled(office: Office) -> None:
    new = office.scene.make.event(office.scene.sub)
    await office.holding_commits()
    publishing = asyncio.create_task(office.scene.publish([new]))
    await office.waits("advisory")
    office.kill()
    with pytest.raises(StoreUnavailable):
        await publishing
    again = asyncio.create_task(office.scene.publish([new]))  # as its publisher does
    await office.waits("transactionid")
    await office.let_go()

    assert await again == [[Receipt(new.event.key, 1, new=False)]]
    assert await count(office.db, "pending") == 1


async def _until_it_can(call: Callable[[], Awaitable[SettleResult]]) -> SettleResult:
    async with asyncio.timeout(30):
        while True:
            try:
                return await call()
            except StoreUnavailable:
                await asyncio.sleep(0)


async def test_killed_after_the_commit_the_batch_is_known(office: Office) -> None:
    batch = await office.batch()
    await office.flow.settle(batch)
    office.kill()  # Its response might have been lost just as well.

    assert (await _until_it_can(lambda: office.flow.settle(batch))).gone == frozenset()
    await office.settled_once()


async def test_killed_when_idle_the_next_calls_start_one_worker(office: Office) -> None:
    await office.scene.deliver(1)
    first = office.child
    office.kill()
    async with asyncio.timeout(30):
        while office.writer._connection.is_open:
            await asyncio.sleep(0)

    batch, new = await asyncio.gather(office.batch(), office.batch())  # One child for both.

    assert office.child.pid != first.pid
    for one in (batch, new):
        assert (await office.flow.settle(one)).gone == frozenset()


async def test_what_was_asked_is_done_before_it_ends(office: Office) -> None:
    batch = await office.batch()
    child = office.child
    child.send_signal(signal.SIGTERM)  # as when a terminal or a supervisor ends all at once
    child.send_signal(signal.SIGINT)
    await office.holding_commits()
    settling = asyncio.create_task(office.flow.settle(batch))
    await office.waits("advisory")
    closing = asyncio.create_task(office.writer.close())
    await asyncio.sleep(0)
    await office.let_go()

    assert (await settling).gone == frozenset()
    await closing
    assert child.returncode == 0
    await office.settled_once()
    with pytest.raises(StoreUnavailable):
        await office.scene.deliver(1)
    assert office.child is child  # Nobody starts another.


def _state(pid: int) -> str:
    """The state of a process in ``/proc``; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


_PARENT = """
import asyncio, contextlib
from homing.store.postgres import ConnectionSpec, Inserts
from homing.store.process.postgres_writer import PostgresWriterProcess

async def main():
    spec = ConnectionSpec("no address", "homing", False, Inserts(()), 1)
    writer = PostgresWriterProcess(spec, node=0)
    with contextlib.suppress(RuntimeError):
        await writer.call("flow", "publish", [], number=1)
    print(writer.process.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.parametrize("stopped", [False, True])
async def test_it_ends_with_its_parent_however_that_ends(stopped: bool) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PARENT, stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    if stopped:  # It sees nothing by itself: the kernel ends it.
        os.kill(pid, signal.SIGSTOP)
    assert _state(pid)
    parent.kill()
    try:
        async with asyncio.timeout(30):
            while _state(pid) not in {"", "Z"}:
                await asyncio.sleep(0.01)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        await parent.wait()


def _words(pid: int) -> bytes:
    """Everything that the process list shows of one process."""
    place = Path("/proc") / str(pid)
    return (place / "cmdline").read_bytes() + (place / "environ").read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
async def test_the_list_of_processes_does_not_show_the_password(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = (await postgres.make()).replace("postgres:", "postgres:open-sesame", 1)
    assert "open-sesame" in dsn
    monkeypatch.setenv("HOMING_DATABASE_URL", dsn)
    stores = await open_stores(Settings.of(data=str(tmp_path), database_url=dsn))
    try:
        assert isinstance(stores.flow, OffloadedFlow)
        with pytest.raises(Fenced):  # The process has not begun to act.
            await stores.flow.publish([], number=1)
        child = stores.flow._writer.process
        assert child is not None
        shown = _words(child.pid)
        assert b"homing.store.process.postgres_writer" in shown
        assert b"PATH=" in shown
        assert b"sesame" not in shown
    finally:
        await stores.close()
    assert child.returncode == 0


async def test_commits_may_stay_in_the_loop(postgres: Server, tmp_path: Path) -> None:
    dsn = await postgres.make()
    stores = await open_stores(Settings.of(data=str(tmp_path), database_url=dsn, writer="inline"))
    assert not isinstance(stores.flow, OffloadedFlow)
    await stores.close()
