"""Worker processes: calls arrive in the order they were made, each gets its own reply."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from homing.errors import DataInUse, StoreUnavailable
from homing.model import Work
from homing.ports import DueRows, SettleBatch
from homing.store.postgres import ConnectionSpec, Inserts
from homing.store.process import worker
from homing.store.process.codec import START, Call, Frames, encode_error, encode_reply
from homing.store.process.postgres_writer import PostgresWriterProcess
from homing.store.process.sqlite_writer import SqliteWriterProcess
from homing.store.process.worker import RpcConnection
from store.build import Maker

Calls = Callable[[int], Awaitable[Any]]
Other = Callable[[], Awaitable[Any]]


def postgres(ends: list[socket.socket], _folder: Path) -> tuple[Calls, Other]:
    it = PostgresWriterProcess(ConnectionSpec("", "", False, Inserts(()), 1), node=0)
    it._spawn = lambda: _pair(ends)  # type: ignore[method-assign]
    return (
        lambda number: it.call("flow", "publish", [], number=number),
        lambda: it.call("flow", "settle", SettleBatch(number=1)),
    )


def sqlite(ends: list[socket.socket], folder: Path) -> tuple[Calls, Other]:
    it = SqliteWriterProcess(folder / "homing.db", node=0)
    it._spawn = lambda: _pair(ends)  # type: ignore[method-assign]
    return (
        lambda number: it.call("flow", "publish", [], number=number),
        lambda: it.call("flow", "last_id"),
    )


def _pair(ends: list[socket.socket]) -> socket.socket:
    server_end, worker_end = socket.socketpair()
    server_end.setblocking(False)
    ends.append(worker_end)
    return server_end


async def _numbers(
    make: Callable[..., tuple[Calls, Any]], folder: Path, *, another: bool
) -> list[int]:
    """Publish once in each turn of the loop; returns the order in which a worker gets them."""
    ends: list[socket.socket] = []
    publish, other = make(ends, folder)
    tasks: list[asyncio.Task[Any]] = []
    if another:
        tasks.append(asyncio.ensure_future(other()))
        await asyncio.sleep(0)
    for number in range(40):
        tasks.append(asyncio.ensure_future(publish(number)))
        await asyncio.sleep(0)
    frames, got = Frames(), list[int]()
    ends[0].setblocking(False)
    while len(got) < 40:
        with contextlib.suppress(BlockingIOError):
            frames.add(ends[0].recv(1 << 20))
            got += [call.kwargs["number"] for call in frames.calls() if call.method == "publish"]
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:
        end.close()
    return got


@pytest.mark.parametrize("another", [False, True])
@pytest.mark.parametrize("make", [postgres, sqlite])
def test_calls_do_not_pass_those_that_wait_for_a_worker_to_start(
    make: Callable[..., tuple[Calls, Any]], another: bool, tmp_path: Path
) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(_numbers(make, tmp_path, another=another)) == list(range(40))


@pytest.fixture
async def connected() -> AsyncIterator[tuple[RpcConnection, socket.socket]]:
    ends: list[socket.socket] = []
    connection = await RpcConnection.over(_pair(ends))
    yield connection, ends[0]
    connection.close()
    ends[0].close()


def _calls(end: socket.socket) -> list[Call]:
    frames = Frames()
    frames.add(end.recv(1 << 20))
    return list(frames.calls())


async def test_a_finished_connection_takes_no_call(
    connected: tuple[RpcConnection, socket.socket],
) -> None:
    connection, _ = connected
    connection.finish()
    with pytest.raises(StoreUnavailable):
        connection.call("flow", "last_id", (), {})


def test_due_rows_carry_each_event_once() -> None:
    make = Maker()
    endpoints = [make.endpoint(f"https://r{n}.example/") for n in range(20)]
    event = make.event(
        *[make.subscription(it) for it in endpoints], data=b'"' + b"x" * 9_998 + b'"'
    )
    works = [Work(it, event.event) for it in event.deliveries]
    due = [
        DueRows(it.endpoint_id, (Work(it, event.event),), (), False, None)
        for it in event.deliveries[:10]
    ]
    due.append(DueRows(endpoints[10].id, (), tuple(works[10:]), True, 7, {(1, 0): (5, 6)}))
    call = Call(1, "flow", "due", (), {})

    frame = encode_reply(call, due)
    frames = Frames()
    frames.add(frame)
    (reply,) = frames.replies()

    assert reply.value == due
    assert len(frame) < 2 * 10_000
    found = [work.event for it in reply.value for work in (*it.fresh, *it.retry)]
    assert len(found) == 20
    assert all(it is found[0] for it in found)


async def test_replies_in_any_order_reach_their_calls(
    connected: tuple[RpcConnection, socket.socket],
) -> None:
    connection, end = connected
    first = connection.call("flow", "last_id", (), {})
    second = connection.call("admin", "catalog_version", (), {})
    one, two = _calls(end)
    end.sendall(encode_error(two.number, RuntimeError("second")) + encode_reply(one, 7))
    assert await first == 7
    with pytest.raises(RuntimeError, match="second"):
        await second


async def test_a_worker_that_cannot_start_fails_every_call_that_waits(
    connected: tuple[RpcConnection, socket.socket],
) -> None:
    connection, end = connected
    waiting = [connection.call("flow", "last_id", (), {}) for _ in range(3)]
    end.sendall(encode_error(START, DataInUse("Process 7 holds it.")))
    replies = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(it) for it in replies] == [DataInUse] * 3


async def test_the_number_of_waiting_calls_is_limited(
    connected: tuple[RpcConnection, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, end = connected
    monkeypatch.setattr(worker, "CALLS_MAX", 2)
    first, second = (connection.call("flow", "last_id", (), {}) for _ in range(2))
    with pytest.raises(StoreUnavailable, match="Too many calls"):
        connection.call("flow", "last_id", (), {})
    end.sendall(encode_reply(_calls(end)[0], 1))
    assert await first == 1
    third = connection.call("flow", "last_id", (), {})
    for call in (second, third):
        call.cancel()
