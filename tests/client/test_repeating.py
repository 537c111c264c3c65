"""Calls that meet trouble: repeated where that is safe, over connections that are kept."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from acceptance.running import KEY, Server
from client.both import Make, both, listed, raised
from client.scripted import ACCEPTED, CLOSE, HANG, relay, response, scripted
from homing_client import (
    AsyncHoming,
    BadResponse,
    Homing,
    Refused,
    TimedOut,
    Unavailable,
    Unreachable,
)

BUSY = response(503, {"code": "store_unavailable"})


@both
@pytest.mark.parametrize(
    "trouble",
    [CLOSE, HANG, BUSY, response(429), response(502)],
    ids=["close", "hang", "503", "429", "502"],
)
async def test_publishing_goes_on_with_the_same_id_until_it_is_answered(
    make: Make, trouble: bytes
) -> None:
    with scripted(trouble, trouble, ACCEPTED) as server:
        patient = trouble != HANG  # On a busy machine a response may come late.
        homing = make(server.url, attempt_timeout=20 if patient else 0.5, timeout=30)
        assert (await homing.publish("a", {"n": 1})).deliveries == 1
    assert len(server.asked) == 3 if patient else len(server.asked) >= 3
    assert len({one.body for one in server.asked}) == 1
    assert len(server.asked[0].json["id"]) == 32


@both
async def test_the_whole_call_ends_by_its_deadline_with_the_last_error(make: Make) -> None:
    began = time.monotonic()
    with scripted(BUSY) as server:
        error = await raised(make(server.url, timeout=2).publish("a", 1))
    # On a busy machine the deadline may cut the last try off.
    assert isinstance(error, Unavailable | TimedOut)
    assert isinstance(error, TimedOut) or error.code == "store_unavailable"
    with scripted(HANG) as server:
        assert isinstance(await raised(make(server.url, timeout=0.3).publish("a", 1)), TimedOut)
    nobody = await raised(make("http://127.0.0.1:1", timeout=0.3).publish("a", 1))
    assert isinstance(nobody, Unreachable)
    assert not nobody.maybe_done
    assert time.monotonic() - began < 15  # Left to themselves they go on for longer.


@both
async def test_a_retry_after_beyond_the_deadline_is_told_at_once(make: Make) -> None:
    with scripted(response(503, retry_after="60")) as server:
        error = await raised(make(server.url, timeout=5).publish("a", 1))
    assert isinstance(error, Unavailable)
    assert error.retry_after_s == 60
    assert len(server.asked) == 1


@both
@pytest.mark.parametrize("trouble", [CLOSE, BUSY], ids=["close", "503"])
async def test_what_would_be_done_twice_is_sent_once(make: Make, trouble: bytes) -> None:
    with scripted(trouble) as server:
        error = await raised(make(server.url).subscribe("http://r.example", ["*"]))
    assert len(server.asked) == 1
    assert isinstance(error, Unreachable | Unavailable)


@both
async def test_a_deletion_whose_first_response_was_lost_is_done(make: Make) -> None:
    with scripted(CLOSE, response(404, {"code": "not_found"})) as server:
        await make(server.url).delete_subscription("sub_1")
    assert [one.line.split()[0] for one in server.asked] == ["DELETE", "DELETE"]


@both
async def test_what_is_not_homing_is_not_asked_again(make: Make) -> None:
    with scripted(b"SSH-2.0-OpenSSH\r\n\r\n") as server:
        assert isinstance(await raised(make(server.url).publish("a", 1)), BadResponse)
    with scripted(response(302, location="/login")) as server:
        assert isinstance(await raised(make(server.url).publish("a", 1)), Refused)
    assert len(server.asked) == 1


# --- connections ----------------------------------------------------------------------------


@both
async def test_a_connection_serves_one_request_after_the_other(make: Make) -> None:
    with scripted(ACCEPTED) as server:
        homing = make(server.url)
        for _ in range(5):
            await homing.publish("a", 1)
    assert server.connections == 1
    assert len(server.asked) == 5


@both
async def test_a_connection_that_the_server_left_is_not_used_again(make: Make) -> None:
    made = response(404, {}, connection="close")
    kept = ACCEPTED.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1)
    with scripted(kept, made) as server:
        homing = make(server.url)
        await homing.publish("a", 1)
        assert isinstance(await raised(homing.subscribe("http://r.example", ["*"])), Refused)
    assert server.connections == 2


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not what():
            await asyncio.sleep(0.005)


@both
async def test_a_connection_that_ends_while_it_is_idle_is_noticed(make: Make) -> None:
    """Otherwise a request that may be sent only once would be lost on it."""
    with scripted(ACCEPTED, response(404, {})) as server:
        homing = make(server.url)
        await homing.publish("a", 1)
        server.hang_up()
        await asyncio.sleep(0.05)  # the farewell arrives
        assert isinstance(await raised(homing.subscribe("http://r.example", ["*"])), Refused)
    assert server.connections == 2


async def test_one_client_serves_several_event_loops_in_turn() -> None:
    with scripted(ACCEPTED) as server:
        homing = AsyncHoming(server.url, "key")
        for _ in range(2):
            await asyncio.to_thread(lambda: asyncio.run(publish(homing)))
    assert server.connections == 2


async def publish(homing: AsyncHoming) -> None:
    await homing.publish("a", 1)


async def test_a_cancelled_call_does_not_leave_its_response_to_the_next_one() -> None:
    with scripted(HANG, ACCEPTED) as server:
        homing = AsyncHoming(server.url, "key")
        task = asyncio.create_task(homing.publish("a", 1))
        await until(lambda: len(server.asked) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await homing.publish("a", 2)).id == "an-id"
    assert server.connections == 2


def test_a_forked_process_does_not_use_its_parents_connections() -> None:
    with scripted(ACCEPTED) as server:
        homing = Homing(server.url, "key")
        homing.publish("a", "parent")
        child = os.fork()
        if child == 0:
            try:
                homing.publish("a", "child")
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        homing.publish("a", "parent")
    seen = [(one.connection, one.json["data"]) for one in server.asked]
    assert seen == [(1, "parent"), (2, "child"), (1, "parent")]


def test_many_threads_share_a_client_and_each_gets_its_own_response(server: Server) -> None:
    wrong: list[str] = []
    with Homing(f"http://127.0.0.1:{server.port}", KEY) as homing:

        def run(number: int) -> None:
            for round_ in range(25):
                mine = f"thread-{number}-{round_}"
                receipt = homing.publish("a", mine, id=mine, tenant="threads")
                shown = homing.event(mine, tenant="threads")
                if (receipt.id, bytes(shown.data)) != (mine, f'"{mine}"'.encode()):
                    wrong.append(mine)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert sum(1 for _ in homing.events(tenant="threads")) == 16 * 25


async def test_many_tasks_share_a_client_and_each_gets_its_own_response(server: Server) -> None:
    async with AsyncHoming(f"http://127.0.0.1:{server.port}", KEY) as homing:
        names = [f"task-{number}" for number in range(200)]
        receipts = await asyncio.gather(
            *(homing.publish("a", one, id=one, tenant="tasks") for one in names)
        )
        assert [one.id for one in receipts] == names


# --- a server that dies ---------------------------------------------------------------------


@pytest.mark.long
@both
async def test_publishing_across_a_kill_and_a_restart_makes_exactly_one_event_each(
    make: Make, tmp_path: Path
) -> None:
    server = Server(tmp_path / "data")
    await server.start()
    homing = make(f"http://127.0.0.1:{server.port}", KEY, timeout=30.0)
    responded: list[str] = []

    async def publish_for_ever(number: int) -> None:
        for round_ in range(10_000):
            if stopping.is_set():
                return
            data = f"{number}-{round_}"
            responded.append((await homing.publish("kill.test", data)).id)

    stopping = asyncio.Event()
    tasks = [asyncio.create_task(publish_for_ever(number)) for number in range(8)]
    await until(lambda: len(responded) > 50)
    server.kill()
    await server.gone()
    before = len(responded)
    await server.start()
    await until(lambda: len(responded) > before + 50)
    stopping.set()
    await asyncio.gather(*tasks)
    events = await listed(homing.events(type="kill.test"))
    assert sorted(one.id for one in events) == sorted(responded)
    assert await server.terminate() == 0


@both
async def test_an_event_whose_response_was_lost_is_one_event(make: Make, server: Server) -> None:
    """The server has it and has said so, but the client was not told."""
    tenant = f"lost-{make.__name__}"
    with relay(server.port, swallow=2) as front:
        receipt = await make(front.url, KEY).publish("a", 1, tenant=tenant)
    assert front.swallow == 0
    homing = make(f"http://127.0.0.1:{server.port}", KEY)
    assert [one.id for one in await listed(homing.events(tenant=tenant))] == [receipt.id]
