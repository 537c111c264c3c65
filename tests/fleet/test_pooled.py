"""Behind a real PgBouncer in transaction mode: many clients, few sessions, and each is nobody's."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

import pooler
from fleet.house import Process, Receiver, fetch
from homing.ports import DueAsk
from homing.store.flow import Flow
from homing.store.leases import Leases
from homing.store.postgres import PostgresDb
from postgres import Server, fast_folder
from store.build import NOW
from store.scene import Scene

pytestmark = pytest.mark.skipif(pooler.program() is None, reason="no pgbouncer on this machine")

AT_ONCE = 60
PROCESSES = 5
EVENTS = 200
URLS = 20


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="homing-pooled-", dir=fast_folder()) as place:
        server = Server(Path(place) / "pg")
        yield server
        server.stop()


@pytest.fixture
def port(server: Server) -> Iterator[int]:
    with (
        tempfile.TemporaryDirectory(prefix="homing-pooler-") as place,
        pooler.pooling(server, Path(place)) as port,
    ):
        yield port


async def _database(server: Server, port: int, name: str) -> str:
    """A database of one's own (the pooler takes no search_path), by the way of the pooler."""
    admin = await asyncpg.connect(server.dsn("postgres"))
    await admin.execute(f"CREATE DATABASE {name}")
    await admin.close()
    return f"postgresql://postgres@127.0.0.1:{port}/{name}"


async def _hot(server: Server, port: int) -> None:
    dsn = await _database(server, port, "hot")
    dbs = [await PostgresDb.open(dsn, pooled=True) for _ in range(PROCESSES)]
    try:
        scene = await Scene(dbs[0]).begin()
        events = [scene.make.event(scene.sub) for _ in range(AT_ONCE)]
        bucket, flow = scene.endpoint.bucket, [Flow(db) for db in dbs]
        ask = DueAsk(scene.endpoint.id, NOW, AT_ONCE, 10, bucket)

        async def one(number: int) -> None:
            db = dbs[number % PROCESSES]
            await scene.publish([events[number]])
            await flow[number % PROCESSES].due([ask], now=NOW)
            await Leases(db).versions()
            await Leases(db).recent([bucket], from_id=0, upto_id=1 << 62)

        await asyncio.gather(*(one(number) for number in range(AT_ONCE)))
        assert len((await scene.due(fresh=AT_ONCE)).fresh) == AT_ONCE
    finally:
        for db in dbs:
            await db.close()


def test_hot_operations_go_side_by_side(server: Server, port: int) -> None:
    asyncio.run(_hot(server, port))


async def _a_fleet(server: Server, port: int, folder: Path) -> None:
    dsn = await _database(server, port, "fleet")
    pooled = {"HOMING_POOLED": "true"}
    crew = [
        Process(dsn, folder, role, n, environ=pooled)
        for n, role in enumerate(("api", "deliver", "deliver"))
    ]
    async with Receiver().listening() as receiver:
        try:
            await crew[0].start()
            await asyncio.gather(*(it.start() for it in crew[1:]))
            line = crew[0].line()
            for number in range(URLS):
                url = f"http://127.0.0.1:{receiver.port}/h/{number}"
                asked = {"url": url, "types": [f"t.{number}"]}
                assert (await line.ask("POST", "/v1/subscriptions", asked)).status == 201
            for n in range(EVENTS):
                event = {"id": f"e-{n}", "type": f"t.{n % URLS}", "data": n}
                assert (await line.ask("POST", "/v1/events", event)).status == 202
            direct = server.dsn("fleet")
            async with asyncio.timeout(60):
                while len(receiver.keys) < EVENTS or (await fetch(direct, _LEFT))[0][0]:
                    await asyncio.sleep(0.1)
            assert len(receiver.arrivals) == EVENTS
            assert len({it.who for it in receiver.arrivals}) == 2  # Both had a share.
            sessions = (await fetch(direct, _SESSIONS))[0][0]
            assert sessions <= pooler.SERVER_CONNECTIONS
        finally:
            assert await asyncio.gather(*(it.end() for it in crew if it.process)) == [0, 0, 0]


_LEFT = "SELECT count(*) FROM pending"
_SESSIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = 'fleet' AND pid <> pg_backend_pid()"
)


@pytest.mark.long
def test_a_fleet_works_with_fewer_sessions_than_processes_have_connections(
    server: Server, port: int, tmp_path: Path
) -> None:
    asyncio.run(_a_fleet(server, port, tmp_path))
