"""Addresses with several hosts: only the primary is used, whatever happens to it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import structlog

import pooler
from homing.errors import DatabaseBehind, StoreUnavailable
from homing.ports import CATALOG_GAP
from homing.store import connect as connecting
from homing.store.admin import Admin
from homing.store.catalog_versions import raise_catalog
from homing.store.connect import Connector, host_states, single_hosts
from homing.store.flow import Flow
from homing.store.inspect import inspect_postgres
from homing.store.leases import Leases
from homing.store.notify import PostgresNotificationBus
from homing.store.outbox.install import install_postgres
from homing.store.outbox.postgres import PostgresOutbox
from homing.store.postgres import PostgresDb
from homing.store.postgres_refusals import place_of
from homing.store.process.postgres_writer import OffloadedFlow, PostgresWriterProcess
from homing.store.tx import Tx
from postgres import Server
from replicas import Replicas, replicas
from store.scene import Scene, count

PORT = "SELECT inet_server_port()"


@pytest.fixture
async def pair() -> AsyncIterator[Replicas]:
    async with replicas() as pair:
        yield pair


@pytest.mark.parametrize(
    ("dsn", "hosts"),
    [
        ("postgresql://u:p@a:1/d", ("postgresql://u:p@a:1/d",)),
        ("postgresql://u:p@a:1,b/d", ("postgresql://u:p@a:1/d", "postgresql://u:p@b/d")),
        (
            "postgresql://u:p@a,b/d?port=1,2&sslmode=require",
            ("postgresql://u:p@a:1/d?sslmode=require", "postgresql://u:p@b:2/d?sslmode=require"),
        ),
        (
            "postgresql://a,b/d?target_session_attrs=any",
            ("postgresql://a/d", "postgresql://b/d"),
        ),
        (
            "postgresql://u@[::1]:1,[::2]/d?port=9",
            ("postgresql://u@[::1]:1/d", "postgresql://u@[::2]:9/d"),
        ),
        (
            "postgresql:///d?host=a,b&user=u",
            ("postgresql://a/d?user=u", "postgresql://b/d?user=u"),
        ),
        (
            "postgresql://u:p%40@/d?host=/run/one,/run/two",
            (
                "postgresql:///d?host=%2Frun%2Fone&user=u&password=p%40",
                "postgresql:///d?host=%2Frun%2Ftwo&user=u&password=p%40",
            ),
        ),
        ("postgresql://a/d?target_session_attrs=standby", ("postgresql://a/d",)),
    ],
)
def test_an_address_is_split_into_its_hosts(dsn: str, hosts: tuple[str, ...]) -> None:
    assert single_hosts(dsn) == hosts


def test_an_address_with_more_ports_than_hosts_cannot_be_read() -> None:
    with pytest.raises(ValueError, match="as many ports as hosts"):
        single_hosts("postgresql://a,b/d?port=1,2,3")


def test_messages_name_all_hosts_and_no_password() -> None:
    place = place_of("postgresql://u:secret@a:1,b/d?port=7")
    assert place.server == "a:1, b:7"
    assert place.database == "d"


async def test_a_primary_that_is_killed_is_replaced_and_its_standby_is_never_written_to(
    pair: Replicas,
) -> None:
    dsn = pair.dsn(standby_first=True)
    db = await PostgresDb.open(dsn)
    scene = await Scene(db).begin()
    await scene.deliver(1)
    assert await _port(db) == pair.primary.port

    await asyncio.to_thread(pair.primary.kill)
    with pytest.raises(StoreUnavailable) as refused:
        await scene.deliver(1)
    assert f"127.0.0.1:{pair.standby.port} is a standby" in str(refused.value)
    assert "promote a standby" in str(refused.value)

    await pair.promote()
    await scene.deliver(1)
    assert await _port(db) == pair.standby.port
    assert await count(db, "pending") >= 2

    await asyncio.to_thread(pair.primary.demote)
    other = await PostgresDb.open(pair.dsn())
    assert await _port(other) == pair.standby.port
    await other.close()
    await db.close()


async def _port(db: PostgresDb) -> int:
    ((port,),) = await db.raw(lambda run: run(PORT))
    return int(port)


@pytest.mark.long
async def test_a_failover_during_the_migrations_leaves_nothing_half_done(pair: Replicas) -> None:
    pair.log.cut()
    opening = asyncio.ensure_future(PostgresDb.open(pair.dsn()))
    await _waits_for_standby(pair)  # a migration that is committed on the primary alone
    await asyncio.to_thread(pair.primary.kill)
    await pair.promote()
    with contextlib.suppress(StoreUnavailable):  # A server that starts tries it again.
        await (await asyncio.wait_for(opening, 30)).close()

    db = await PostgresDb.open(pair.dsn())
    scene = await Scene(db).begin()
    await scene.deliver(1)
    assert await _port(db) == pair.standby.port
    await db.close()


@pytest.mark.long
async def test_a_primary_that_is_demoted_in_the_middle_of_a_transaction_is_left(
    pair: Replicas,
) -> None:
    """As Patroni does it: the server is stopped and started again as a standby."""
    db = await PostgresDb.open(pair.dsn())
    scene = await Scene(db).begin()
    began, demoted = asyncio.Event(), asyncio.Event()
    ports: list[int] = []

    async def work(tx: Tx) -> None:
        connection: Any = tx._connection  # type: ignore[attr-defined]
        ports.append(await connection.fetchval(PORT))
        await tx.all("topic_raise", topic="leases")
        began.set()
        await demoted.wait()
        await tx.all("topic_raise", topic="leases")

    version = (await Leases(db).versions()).get("leases", 0)
    running = asyncio.ensure_future(db.run(work))
    await began.wait()
    await asyncio.to_thread(pair.primary.stop)
    await asyncio.to_thread(pair.primary.demote)
    await pair.promote()
    demoted.set()
    await asyncio.wait_for(running, 30)

    assert ports[0] == pair.primary.port
    assert ports[-1] == pair.standby.port
    assert (await Leases(db).versions())["leases"] == version + 2  # The first run is undone.
    await scene.deliver(1)
    await db.close()


async def test_a_start_beside_a_standby_alone_says_so(pair: Replicas) -> None:
    await (await PostgresDb.open(pair.dsn())).close()
    pair.primary.kill()
    with pytest.raises(StoreUnavailable, match="is a standby or in recovery"):
        await PostgresDb.open(pair.dsn())
    with pytest.raises(StoreUnavailable, match="give the address of the primary"):
        await PostgresDb.open(pair.standby.dsn)


async def test_an_old_primary_that_nobody_stopped_is_not_used_again(pair: Replicas) -> None:
    connector = Connector(pair.dsn())
    await (await connector.connect()).close()
    await asyncio.to_thread(pair.primary.kill)
    await pair.promote()
    await (await connector.connect()).close()
    await asyncio.to_thread(pair.primary.start)  # It takes writes, as if nothing had happened.
    await asyncio.to_thread(pair.standby.kill)

    with pytest.raises(OSError, match="is an old primary") as refused:
        await connector.connect()
    assert "pg_rewind" in str(refused.value)


@pytest.mark.long
@pytest.mark.skipif(pooler.program() is None, reason="no pgbouncer on this machine")
async def test_a_standby_behind_a_pooler_is_used_once_it_is_promoted(pair: Replicas) -> None:
    """PgBouncer tells new clients what the server said when it was a standby."""
    with contextlib.ExitStack() as stack:
        ports = []
        for node in (pair.standby, pair.primary):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="homing-pool-")))
            target = f"host=127.0.0.1 port={node.port}"
            pooling = pooler.pooling_to(target, folder, user=node.user)
            ports.append(await asyncio.to_thread(stack.enter_context, pooling))
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        db = await PostgresDb.open(f"postgresql://postgres@{hosts}/postgres", pooled=True)
        scene = await Scene(db).begin()
        await scene.deliver(1)
        assert await _port(db) == pair.primary.port

        await asyncio.to_thread(pair.primary.kill)
        await pair.promote()
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(StoreUnavailable):
                    await scene.deliver(1)
                    break
        assert await _port(db) == pair.standby.port
        await db.close()


async def test_a_process_that_is_started_beside_an_old_primary_uses_the_promoted_server(
    pair: Replicas,
) -> None:
    await asyncio.to_thread(pair.primary.kill)
    await pair.promote()
    await asyncio.to_thread(pair.primary.start)  # Nobody has stopped it for good.

    with structlog.testing.capture_logs() as lines:
        db = await PostgresDb.open(pair.dsn())  # The old primary is named first.
    assert await _port(db) == pair.standby.port
    assert any("is an old primary" in it.get("reason", "") for it in lines)
    await db.close()

    old, new = await host_states(pair.dsn())
    assert 0 < old.timeline < new.timeline
    found = await inspect_postgres(pair.dsn())
    assert found.hosts == (old, new)


async def test_the_doctor_asks_every_host_and_says_what_an_ordinary_user_does_not_see(
    pair: Replicas,
) -> None:
    primary, standby = await host_states(pair.dsn())
    assert (primary.timeline, primary.is_standby) == (1, False)
    assert (standby.timeline, standby.is_standby) == (0, True)

    await pair.primary.execute("CREATE ROLE nobody LOGIN")
    facts = await inspect_postgres(pair.dsn().replace("postgres@", "nobody@"))
    assert (facts.hidden_standbys, facts.async_standbys) == (1, ())
    await pair.primary.execute("GRANT pg_monitor TO nobody")
    facts = await inspect_postgres(pair.dsn().replace("postgres@", "nobody@"))
    assert (facts.hidden_standbys, facts.async_standbys) == (0, ())

    await asyncio.to_thread(pair.standby.kill)
    _, away = await host_states(pair.dsn())
    assert f"Nothing listens at 127.0.0.1:{pair.standby.port}" in away.trouble


@pytest.mark.parametrize("kind", ["stopped", "cut off"])
async def test_work_on_a_silent_primary_goes_on_at_the_promoted_standby(
    pair: Replicas, kind: str
) -> None:
    """In all connections: the writer process, the heartbeat, LISTEN and the outbox."""
    dsn = pair.dsn(standby_first=True)
    db = await PostgresDb.open(dsn)
    fleet_db = db.with_own_connections()
    writer = PostgresWriterProcess(db.spec, node=0)
    leases, offloaded = Leases(fleet_db), OffloadedFlow(db, writer, node=0)
    gaps: list[float] = []
    bus = PostgresNotificationBus(db, db.connector)
    bus.listen(lambda _text: None, lambda: gaps.append(time.monotonic()))
    await install_postgres(dsn, notify=True)
    outbox = PostgresOutbox(dsn)
    try:
        scene = await Scene(db).begin()
        first, second = scene.make.event(scene.sub), scene.make.event(scene.sub)
        await offloaded.publish([[first]], number=1)
        assert (await outbox.stats()).waiting == 0
        member = await leases.join(name="one", role="both", delivers=True, lease_ms=4_000)
        fence = await leases.act(member.id) or 0
        while not bus.live:
            await asyncio.sleep(0.01)

        if kind == "stopped":
            pair.primary.signal(signal.SIGSTOP)
        else:
            pair.clients.cut()
            pair.log.cut()
        work = asyncio.gather(
            offloaded.publish([[second]], number=2, fence=fence),
            leases.renew(member.id, delivers=True, lease_ms=4_000),
        )
        asked = asyncio.ensure_future(outbox.stats())
        await pair.promote()
        _, state = await asyncio.wait_for(work, 15)
        with pytest.raises(StoreUnavailable):  # The relay asks again.
            await asyncio.wait_for(asked, 15)
        assert (await outbox.stats()).waiting == 0

        assert state is not None
        assert await count(db, "event") == 2
        async with asyncio.timeout(15):
            while len(gaps) < 2:
                await asyncio.sleep(0.01)
    finally:
        pair.primary.signal(signal.SIGCONT)
        await bus.close()
        await outbox.close()
        await writer.close()
        await fleet_db.close()
        await db.close()


async def test_a_slow_statement_beside_a_healthy_standby_is_left_alone(
    pair: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "SILENT_S", 0.05)
    monkeypatch.setattr(connecting, "WATCH_EVERY_S", 0.02)
    db = await PostgresDb.open(pair.dsn())
    asked: list[str] = []
    honest = Connector._ask_others

    async def ask(self: Connector) -> None:
        await honest(self)
        asked.append("asked")

    monkeypatch.setattr(Connector, "_ask_others", ask)

    async def slow(run: Any) -> int:
        while len(asked) < 2:
            ((port,),) = await run(f"{PORT} FROM pg_sleep(0.05)")
        return int(port)

    assert await db.raw(slow) == pair.primary.port
    await db.close()


async def test_a_connection_whose_server_became_read_only_is_not_kept(postgres: Server) -> None:
    db = await PostgresDb.open(await postgres.make(), hot=1)
    seen: list[int] = []

    async def work(tx: Tx) -> None:
        connection: Any = tx._connection  # type: ignore[attr-defined]
        seen.append(connection.get_server_pid())
        if len(seen) == 1:
            await connection.execute("SET TRANSACTION READ ONLY")
        await tx.all("topic_raise", topic="leases")

    await db.run(work)
    await db.close()

    assert len(set(seen)) == 2


async def test_a_server_that_is_set_read_only_is_named_with_what_to_do(postgres: Server) -> None:
    dsn = await postgres.make()
    read_only = f"{dsn}&default_transaction_read_only=on"
    with pytest.raises(StoreUnavailable, match="set default_transaction_read_only off there"):
        await PostgresDb.open(read_only)


async def test_the_log_says_once_why_a_host_is_not_used(pair: Replicas) -> None:
    with structlog.testing.capture_logs() as lines:
        connector = Connector(pair.dsn(standby_first=True))
        for _ in range(2):
            connector._first = 0
            await (await connector.connect()).close()
    reasons = [it["reason"] for it in lines if it["event"] == "a PostgreSQL server is not used"]
    assert len(reasons) == 1
    assert f"127.0.0.1:{pair.standby.port} is a standby or in recovery" in reasons[0]


@pytest.mark.long
async def test_names_that_cannot_be_resolved_do_not_keep_others_from_being_used(
    pair: Replicas,
) -> None:
    dsn = pair.dsn().replace("postgres@", "postgres@no-such-host.invalid:5432,")
    db = await PostgresDb.open(dsn)
    assert await _port(db) == pair.primary.port
    await db.close()
    with pytest.raises(StoreUnavailable, match="cannot be resolved"):
        await PostgresDb.open("postgresql://a@no-such-host.invalid,neither.invalid/x")


@pytest.mark.long
async def test_while_all_hosts_are_read_only_it_is_said_why_and_ends_by_itself(
    pair: Replicas,
) -> None:
    db = await PostgresDb.open(pair.dsn())
    scene = await Scene(db).begin()
    setting = "ALTER SYSTEM SET default_transaction_read_only = {}"
    await pair.primary.execute(setting.format("on"), "SELECT pg_reload_conf()")
    async with asyncio.timeout(15):
        while True:
            try:
                await scene.deliver(1)
            except StoreUnavailable as error:
                refused = str(error)
                break
    assert "is read-only: set default_transaction_read_only off" in refused

    await pair.primary.execute(
        "SET default_transaction_read_only = off", setting.format("off"), "SELECT pg_reload_conf()"
    )
    async with asyncio.timeout(15):
        while True:
            with contextlib.suppress(StoreUnavailable):
                await scene.deliver(1)
                break
    await db.close()


async def test_a_refusal_is_reported_before_a_host_that_is_away(postgres: Server) -> None:
    host = postgres.dsn("postgres").partition("host=")[2]
    address = f"postgresql://nobody@/postgres?host=/nowhere,{host}"
    with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
        await Connector(address).connect()


async def test_a_standby_that_lags_is_found_to_have_lost_commits() -> None:
    """By the first batch after the failover, and by the question that is asked once a second."""
    async with replicas(synchronous=False) as pair:
        db = await PostgresDb.open(pair.dsn())
        writer = PostgresWriterProcess(db.spec, node=3)
        idle, busy = OffloadedFlow(db, writer, node=3), Flow(db, node=4)
        try:
            scene = await Scene(db).begin()

            async def publish(flow: Flow, number: int) -> None:
                new = scene.make.event(scene.sub)
                await flow.publish([[new]], number=number)

            for flow in (idle, busy):
                await publish(flow, 10)
                await flow.check_marks()
            await _received(pair)
            pair.log.cut()
            for flow in (idle, busy):
                await publish(flow, 11)
                await flow.check_marks()
            await asyncio.to_thread(pair.primary.kill)
            await pair.promote()

            with pytest.raises(DatabaseBehind) as noticed:
                await idle.check_marks()
            assert (noticed.value.kind, noticed.value.seen) == ("publish", 11)
            assert noticed.value.found == 10
            with pytest.raises(DatabaseBehind):
                await publish(busy, 12)
            for flow in (idle, busy):  # It is said once.
                await publish(flow, 13)
                await flow.check_marks()
            assert await count(db, "event") == 4
        finally:
            await writer.close()
            await db.close()


@pytest.mark.long
async def test_a_change_after_a_failover_does_not_get_the_version_of_one_that_is_lost() -> None:
    async with replicas(synchronous=False) as pair:
        db = await PostgresDb.open(pair.dsn())
        try:
            known = await db.run(raise_catalog)
            assert await db.run(raise_catalog) == known + 1
            await _received(pair)
            pair.log.cut()
            lost = await db.run(raise_catalog)
            await asyncio.to_thread(pair.primary.kill)
            await pair.promote()
            assert await Admin(db).catalog_version() == known + 1

            new = await db.run(raise_catalog)

            assert new >= lost - 1 + CATALOG_GAP
            assert (await Admin(db).catalog_notes(0)).base == known + 1
            assert await db.run(raise_catalog) == new + 1
        finally:
            await db.close()


async def _received(pair: Replicas) -> None:
    """Until the standby has everything."""
    behind = "SELECT pg_current_wal_lsn() > replay_lsn FROM pg_stat_replication"
    async with asyncio.timeout(15):
        while (await pair.primary.execute(behind))[0][0]:
            await asyncio.sleep(0.01)


async def test_a_synchronous_failover_loses_nothing_that_was_committed(pair: Replicas) -> None:
    db = await PostgresDb.open(pair.dsn())
    flow = Flow(db, node=3)
    scene = await Scene(db).begin()
    for number in (10, 11):
        await flow.publish([[scene.make.event(scene.sub)]], number=number)
    await asyncio.to_thread(pair.primary.kill)
    await pair.promote()
    await flow.check_marks()
    await flow.publish([[scene.make.event(scene.sub)]], number=12)
    await flow.check_marks()
    await db.close()


@pytest.mark.parametrize("again", ["run again", "published again"])
async def test_what_the_standby_does_not_have_is_not_confirmed_by_a_primary_that_crashed(
    pair: Replicas, again: str
) -> None:
    """After the crash the primary shows commits that it has not replicated.

    The same batch may be run again by its writer, or its events be published again.
    """
    db = await PostgresDb.open(pair.dsn())
    flow = Flow(db, node=3)
    scene = await Scene(db).begin()
    new = scene.make.event(scene.sub)

    async def publish(number: int) -> None:
        while True:
            try:
                await flow.publish([[new]], number=number)
            except StoreUnavailable:  # as long as no server runs
                await asyncio.sleep(0.05)
            else:
                return

    pair.log.cut()
    first = asyncio.ensure_future(publish(10))
    await _waits_for_standby(pair)
    if again == "published again":  # Its publisher has been told nothing.
        first.cancel()
    await asyncio.to_thread(pair.primary.kill)
    await asyncio.to_thread(pair.primary.start)
    assert (await pair.primary.execute("SELECT count(*) FROM event"))[0][0] == 1  # It shows it.
    acknowledged = first if again == "run again" else asyncio.ensure_future(publish(11))
    await _waits_for_standby(pair)
    assert not acknowledged.done()

    await asyncio.to_thread(pair.primary.kill)
    await pair.promote()
    await asyncio.wait_for(acknowledged, 15)
    assert await count(db, "event") == 1  # on the promoted standby
    await db.close()


async def _waits_for_standby(pair: Replicas) -> None:
    """Until a commit waits for the standby."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    async with asyncio.timeout(15):
        while not (await pair.primary.execute(waiting))[0][0]:
            await asyncio.sleep(0.01)


async def test_a_batch_that_writes_nothing_is_not_missed(postgres: Server) -> None:
    db = await PostgresDb.open(await postgres.make())
    flow = Flow(db, node=3)
    scene = await Scene(db).begin()
    new = scene.make.event(scene.sub)
    for number in (10, 11):  # The second time it is a repetition.
        await flow.publish([[new]], number=number)
        await flow.check_marks()
    await db.close()


async def test_a_batch_that_is_committed_during_the_question_is_no_loss(postgres: Server) -> None:
    db = await PostgresDb.open(await postgres.make())
    flow = Flow(db, node=3)
    scene = await Scene(db).begin()

    async def publish(number: int) -> None:
        new = scene.make.event(scene.sub)
        await flow.publish([[new]], number=number)

    honest = db.run

    async def run(operation: Any, **more: Any) -> Any:
        found = await honest(operation, **more)
        if more.get("read_only"):  # The reply is on its way, and is already old.
            await publish(11)
        return found

    await publish(10)
    db.run = run  # type: ignore[method-assign]
    await flow.check_marks()
    await db.close()
