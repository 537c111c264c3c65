"""The lines to the children: calls arrive in the order they were made, also while one begins."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from homing.errors import StoreUnavailable
from homing.ports import SettleBatch
from homing.store.line import answers_on, new_line
from homing.store.postgres import Place
from homing.store.scribe import Scribe
from homing.store.wire import Frames
from homing.store.writer import Writer

Calls = Callable[[int], Awaitable[Any]]


def scribe(ends: list[socket.socket], _folder: Path) -> tuple[Calls, Callable[[], Awaitable[Any]]]:
    it = Scribe(Place("", "", False, {}, 1), node=0)
    it._begin = lambda: [_line(ends), _line(ends)]  # type: ignore[method-assign]
    return (
        lambda number: it.call("publish", [], catalog_version=0, number=number),
        lambda: it.call("settle", SettleBatch(number=1)),
    )


def writer(ends: list[socket.socket], folder: Path) -> tuple[Calls, Callable[[], Awaitable[Any]]]:
    it = Writer(folder / "homing.db", node=0)
    it._begin = lambda: [_line(ends)]  # type: ignore[method-assign]
    return (
        lambda number: it.call("flow", "publish", [], catalog_version=0, number=number),
        lambda: it.call("flow", "last_id"),
    )


def _line(ends: list[socket.socket]) -> socket.socket:
    ours, theirs = new_line()
    ends.append(theirs)
    return ours


async def _numbers(
    make: Callable[..., tuple[Calls, Any]], folder: Path, *, another: bool
) -> list[int]:
    """Of publishes, one in each turn of the loop, in the order in which a child gets them."""
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
            got += [call[3]["number"] for call in frames.calls() if call[1] == "publish"]
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:
        end.close()
    return got


@pytest.mark.parametrize("another", [False, True])
@pytest.mark.parametrize("make", [scribe, writer])
def test_calls_do_not_pass_those_that_wait_for_a_child_to_begin(
    make: Callable[..., tuple[Calls, Any]], another: bool, tmp_path: Path
) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(_numbers(make, tmp_path, another=another)) == list(range(40))


async def test_a_line_that_was_hung_up_takes_no_call() -> None:
    ours, theirs = new_line()
    answers = await answers_on(ours)
    answers.hang_up()
    with pytest.raises(StoreUnavailable):
        answers.ask(("flow", "last_id", (), {}))
    answers.close()
    theirs.close()
