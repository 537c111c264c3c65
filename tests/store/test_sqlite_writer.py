"""The SQLite writer process does what the store does; if it dies, nothing is lost or repeated."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
from collections.abc import Awaitable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from homing.errors import (
    DataInUse,
    FieldProblem,
    NotFound,
    StaleCatalog,
    StaleEndpoints,
    StoreUnavailable,
    UnstorableText,
)
from homing.model import Finished, SigningKeys, Status
from homing.policy.keys import ApiKey, Role
from homing.ports import AdminStore, DueAsk, FlowStore, NewEvent, Receipt, SettleBatch
from homing.store.flow import Flow
from homing.store.process.codec import Call
from homing.store.process.sqlite_writer import RemoteStore, SqliteWriterProcess, take_share
from homing.store.sqlite import SqliteDb
from homing.store.views import Views
from store.build import Maker
from store.scene import Scene


async def opened(path: Path) -> tuple[SqliteWriterProcess, FlowStore, AdminStore]:
    writer = await SqliteWriterProcess.open(path, node=0)
    return (
        writer,
        cast("FlowStore", RemoteStore(writer, "flow")),
        cast("AdminStore", RemoteStore(writer, "admin")),
    )


def kill(writer: SqliteWriterProcess) -> None:
    assert writer.process is not None
    os.kill(writer.process.pid, signal.SIGKILL)
    writer.process.wait()


async def test_errors_come_back_as_they_are(tmp_path: Path) -> None:
    writer, flow, admin = await opened(tmp_path / "homing.db")
    with pytest.raises(StaleCatalog):
        await admin.set_signing_keys(SigningKeys("acme", (), version=7))
    with pytest.raises(NotFound):
        await admin.cancel_delivery(5, now=1)
    with pytest.raises(RuntimeError):  # A bug of ours is told, and ends nothing.
        await admin.cancel_delivery("x")  # type: ignore[call-arg,arg-type]
    assert await flow.last_id() == 0
    await writer.close()


def test_errors_survive_the_way_between_processes_word_for_word() -> None:
    named = UnstorableText(problems=(FieldProblem("name", "must be text"),))
    for error in (StoreUnavailable("SQLite: FullError."), StaleEndpoints(frozenset({3, 4})), named):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))
        assert again.__dict__ == error.__dict__


async def test_due_rows_and_their_endpoints_come_back_as_the_store_has_them(
    tmp_path: Path,
) -> None:
    make, path = Maker(), tmp_path / "homing.db"
    db = await SqliteDb.open(path)
    scene = await Scene(db).begin()
    waiting, retried = await scene.deliver(2)
    await scene.tried(retried, due_at=make.now - 1)
    endpoint = scene.endpoint
    asks = [DueAsk(endpoint.id, 0, fresh=5, retry=5, bucket=endpoint.bucket)]
    here = Flow(db)
    due, starts = await here.due(asks, now=make.now), await here.start_page(0, 10)
    await db.close()
    assert [[it.delivery.id for it in rows] for rows in (due[0].fresh, due[0].retry)] == [
        [waiting.id],
        [retried.id],
    ]

    writer, flow, _ = await opened(path)
    assert await flow.due(asks, now=make.now) == due
    assert await flow.start_page(0, 10) == starts
    assert await flow.endpoints([endpoint.id]) == starts
    await writer.close()


async def test_a_call_that_cannot_be_written_leaves_the_others_their_responses(
    tmp_path: Path,
) -> None:
    writer, flow, _ = await opened(tmp_path / "homing.db")
    with pytest.raises((pickle.PicklingError, AttributeError)):
        await writer.call("flow", "last_id", lambda: 0)
    async with asyncio.timeout(20):
        assert await flow.last_id() == 0
    await writer.close()


async def test_a_text_that_cannot_be_stored_is_named_by_the_process(tmp_path: Path) -> None:
    writer, flow, _ = await opened(tmp_path / "homing.db")
    key = ApiKey(
        id=1, prefix="p", hash=b"h", name="\ud800", role=Role.VIEWER, tenant="a", created_at=1
    )
    with pytest.raises(UnstorableText) as caught:
        await writer.call("keys", "create_key", key, max_keys=9)
    assert [it.field for it in caught.value.problems] == ["name"]
    assert await flow.last_id() == 0
    await writer.close()


async def test_a_second_one_is_refused_and_names_the_holder(tmp_path: Path) -> None:
    writer, _, _ = await opened(tmp_path / "homing.db")
    with pytest.raises(DataInUse, match=str(os.getpid())):
        await SqliteWriterProcess.open(tmp_path / "homing.db", node=0)
    await writer.close()
    again, _, _ = await opened(tmp_path / "homing.db")
    await again.close()


async def published(flow: FlowStore, event: NewEvent, number: int) -> Receipt:
    done = await flow.publish([[event]], number=number)
    ((receipt,),) = cast("list[list[Receipt]]", done.results)
    return receipt


async def test_when_the_worker_alone_is_killed_the_next_call_starts_another(tmp_path: Path) -> None:
    writer, flow, _ = await opened(tmp_path / "homing.db")
    event = Maker().event()
    assert (await published(flow, event, 1)).new
    kill(writer)
    with pytest.raises(StoreUnavailable):
        await flow.last_id()
    assert await flow.last_id() == event.event.id
    assert not (await published(flow, event, 2)).new
    await writer.close()


async def test_closed_it_starts_no_other(tmp_path: Path) -> None:
    writer, flow, _ = await opened(tmp_path / "homing.db")
    last = writer.process
    await writer.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await flow.last_id()
    assert writer.process is last


async def test_a_worker_that_does_not_end_in_time_is_ended_and_leaves_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, flow, _ = await opened(tmp_path / "homing.db")
    event = Maker().event()
    assert (await published(flow, event, 1)).new
    assert writer.process is not None
    os.kill(writer.process.pid, signal.SIGSTOP)
    monkeypatch.setattr("homing.store.process.worker.CLOSE_S", 0.01)
    await writer.close()
    assert writer.process.returncode == -signal.SIGKILL
    again, flow, _ = await opened(tmp_path / "homing.db")
    assert await flow.last_id() == event.event.id
    await again.close()


async def test_where_no_process_can_be_started_the_store_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, flow, _ = await opened(tmp_path / "homing.db")
    kill(writer)
    with pytest.raises(StoreUnavailable):
        await flow.last_id()
    with monkeypatch.context() as broken:
        broken.setattr("sys.executable", str(tmp_path / "nothing"))
        with pytest.raises(StoreUnavailable, match="No process can be started"):
            await flow.last_id()
    assert await flow.last_id() == 0  # It can again.
    await writer.close()


async def test_a_batch_that_was_settled_without_a_response_is_not_settled_twice(
    tmp_path: Path,
) -> None:
    writer, flow, admin = await opened(tmp_path / "homing.db")
    make = Maker()
    endpoint = make.endpoint()
    subscription = await admin.create_subscription(make.subscription(endpoint), endpoint=endpoint)
    event = make.event(subscription)
    await admin.catalog_version()
    assert (await published(flow, event, 1)).deliveries == 1
    (delivery,) = event.deliveries
    batch = SettleBatch(
        number=7, finished=(Finished(delivery, Status.DELIVERED, None, delivery.due_at),)
    )
    await flow.settle(batch)
    kill(writer)  # Its response might have been lost just as well.
    with pytest.raises(StoreUnavailable):
        await flow.settle(batch)
    assert (await flow.settle(batch)).gone == frozenset()
    reader = SqliteDb.reader(tmp_path / "homing.db")
    (ledger,) = await Views(reader).ledger(tenant=None)
    assert (ledger.accepted, ledger.delivered, ledger.pending) == (1, 1, 0)
    await reader.close()
    await writer.close()


async def test_calls_that_come_together_are_each_done_whole_or_not_at_all(tmp_path: Path) -> None:
    writer, flow, admin = await opened(tmp_path / "homing.db")
    make = Maker()
    events = [make.event() for _ in range(12)]
    calls: list[Coroutine[Any, Any, object]] = [
        published(flow, event, number) if number % 3 else admin.cancel_delivery(number, now=1)
        for number, event in enumerate(events, 1)
    ]
    bug = admin.log_test("not an attempt")  # type: ignore[arg-type]
    results = await asyncio.gather(*calls[:6], bug, *calls[6:], return_exceptions=True)
    kinds = [type(result) for result in results]
    assert kinds.count(Receipt) == 8
    assert kinds.count(NotFound) == 4
    assert kinds.count(RuntimeError) == 1
    reader = SqliteDb.reader(tmp_path / "homing.db")
    rows, _ = await Views(reader).events(tenant=None, event_type=None, before_id=None, limit=50)
    kept = {row.event.id for row in rows}
    assert kept == {it.event.id for number, it in enumerate(events, 1) if number % 3}
    await reader.close()
    await writer.close()


async def test_a_row_that_is_refused_fails_its_own_call_alone(tmp_path: Path) -> None:
    writer, flow, admin = await opened(tmp_path / "homing.db")
    make = Maker()
    endpoint = make.endpoint()
    subscription = make.subscription(endpoint)
    await admin.create_subscription(subscription, endpoint=endpoint)
    await admin.catalog_version()
    twice = [admin.create_subscription(subscription, endpoint=endpoint) for _ in range(3)]
    good = [published(flow, make.event(), number) for number in range(1, 6)]
    results = await asyncio.gather(*twice, *good, return_exceptions=True)
    assert [type(result) for result in results] == [RuntimeError] * 3 + [Receipt] * 5
    await writer.close()


def _call(method: str) -> Call:
    return Call(1, "flow", method, (), {})


@pytest.mark.parametrize(
    ("come", "together"),
    [
        ("p", ["p"]),
        ("s", ["s"]),
        ("lsld", ["ls", "ld"]),
        ("ps", ["p", "s"]),
        ("sp", ["p", "s"]),
        ("ppsd", ["pp", "s", "d"]),
        ("lspsp", ["pp", "ls", "s"]),
        ("l" * 20, ["l" * 16, "l" * 4]),
    ],
)
def test_publishes_go_first_and_each_large_call_has_its_own_commit(
    come: str, together: list[str]
) -> None:
    methods = {"p": "publish", "s": "settle", "d": "due", "l": "last_id"}
    waiting: list[Call] = [_call(methods[letter]) for letter in come]
    shares: list[str] = []
    share: list[Call] = []
    while waiting:
        share = take_share(waiting, share)
        shares.append("".join(call.method[0] for call in share))
    assert shares == together


def test_publishes_that_never_end_leave_every_other_commit_to_the_rest() -> None:
    publish = _call("publish")
    waiting: list[Call] = [_call(method) for method in ("settle", "due", "last_id")]
    share: list[Call] = []
    written = ""
    for _ in range(6):
        waiting.append(publish)  # The next one is there before the last one is written.
        share = take_share(waiting, share)
        written += "".join(call.method[0] for call in share)
    assert written.replace("pp", "p") == "pspdpl"


async def test_a_publish_overtakes_outcomes_that_wait_to_be_written(tmp_path: Path) -> None:
    """The worker is stopped while the calls come, so it finds all of them at once."""
    writer, flow, admin = await opened(tmp_path / "homing.db")
    make = Maker()
    endpoint = make.endpoint()
    await admin.create_subscription(make.subscription(endpoint), endpoint=endpoint)
    await admin.catalog_version()
    assert writer.process is not None
    order: list[str] = []

    async def noted(name: str, call: Awaitable[object]) -> None:
        await call
        order.append(name)

    os.kill(writer.process.pid, signal.SIGSTOP)
    calls = [
        *(noted("settle", flow.settle(SettleBatch(number=n))) for n in range(1, 6)),
        noted("publish", published(flow, make.event(), 1)),
    ]
    tasks = [asyncio.create_task(call) for call in calls]
    await asyncio.sleep(0)
    os.kill(writer.process.pid, signal.SIGCONT)
    await asyncio.gather(*tasks)
    assert order == ["publish", *["settle"] * 5]
    await writer.close()


async def test_calls_larger_than_the_line_arrive_whole_and_in_order(tmp_path: Path) -> None:
    writer, flow, _ = await opened(tmp_path / "homing.db")
    make = Maker()
    events = [make.event(data=b"x" * size) for size in (9_000_000, 10, 9_000_000, 10)]
    calls = [published(flow, event, number) for number, event in enumerate(events, 1)]
    replies = await asyncio.gather(*calls)
    assert replies == [Receipt(it.event.key, 0, new=True) for it in events]
    assert await flow.last_id() == events[-1].event.id
    await writer.close()
