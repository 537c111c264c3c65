"""The PostgreSQL scribe: publish and settle as a process of their own, beside the event loop.

A publish is nine round trips to the server, and in a busy loop each waits for its turn; making and
encoding the rows would take a third of that loop's time. Here the loop's process sends each batch
over a socket pair in one piece, and a child writes it. There are two lines, one for publish and one
for settle: on each one batch after the other, and neither waits for the other. Everything else
stays on the parent's own connections.

The child is told where the database is on its line: a password stands neither on a command line
nor in its environment. It connects when it must, so a server that is away is StoreUnavailable for
each call. If the child alone ends, so is what it was asked, and the next call starts another; a
batch that had been committed without an answer is known by its mark, which a new child writes the
same.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

import asyncpg
import uvloop

from homing.errors import HomingError
from homing.ports import NewEvent, Receipt, Refusal, SettleBatch
from homing.store.child import Child
from homing.store.flow import Flow
from homing.store.line import RECEIVE_BYTES, end_with_parent
from homing.store.postgres import WRITING_CONNECTIONS, Place, PostgresDb
from homing.store.wire import Call, Frames, write_answer, write_call, write_error

_LINES = ("publish", "settle")


class Scribe(Child):
    """The parent's side."""

    def __init__(
        self, place: Place, *, node: int, environ: Mapping[str, str] | None = None
    ) -> None:
        told = write_call(("scribe", "begin", (place, node), {}))
        super().__init__("homing.store.scribe", _LINES, told=told, environ=environ)

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Publish or settle, in the child."""
        return await self.ask(method, ("flow", method, args, kwargs))


class ScribedFlow(Flow):
    """``Flow`` whose publish and settle are written by the scribe."""

    def __init__(self, db: PostgresDb, scribe: Scribe, *, node: int) -> None:
        super().__init__(db, node)
        self._scribe = scribe

    async def publish(
        self, requests: Sequence[Sequence[NewEvent]], *, catalog_version: int, number: int
    ) -> list[list[Receipt] | Refusal]:
        told = await self._scribe.call(
            "publish", requests, catalog_version=catalog_version, number=number
        )
        return cast("list[list[Receipt] | Refusal]", told)

    async def settle(self, batch: SettleBatch) -> frozenset[int]:
        return cast("frozenset[int]", await self._scribe.call("settle", batch))


# --- the child ------------------------------------------------------------------------------


def _begun(line: socket.socket, frames: Frames) -> tuple[Place, int] | None:
    """What the parent tells first; None when it has hung up."""
    while data := line.recv(RECEIVE_BYTES):
        frames.add(data)
        if (call := next(frames.calls(), None)) is not None:
            place, node = call[2]
            return place, node
    return None


async def _answer(flow: Flow, call: Call) -> bytes:
    _, method, args, kwargs = call
    try:
        return write_answer(call, await getattr(flow, method)(*args, **kwargs))
    except HomingError as error:
        return write_error(error, call)
    except asyncpg.PostgresError as error:  # Only its kind: its text could quote a row.
        return write_error(RuntimeError(f"{method}: {type(error).__name__}"), call)
    except Exception as error:  # noqa: BLE001 - a bug is raised where it was asked for
        return write_error(RuntimeError(f"{method}: {type(error).__name__}: {error}"), call)


async def _serve(line: socket.socket, frames: Frames, flow: Flow) -> None:
    """One call after the other, until the parent hangs up."""
    loop = asyncio.get_running_loop()
    line.setblocking(False)
    data = b"-"
    with contextlib.suppress(ConnectionError):  # The parent was killed.
        while data:
            for call in frames.calls():
                await loop.sock_sendall(line, await _answer(flow, call))
            data = await loop.sock_recv(line, RECEIVE_BYTES)
            frames.add(data)


async def _write(place: Place, node: int, lines: Sequence[tuple[socket.socket, Frames]]) -> None:
    db = PostgresDb.at(place, hot=WRITING_CONNECTIONS)
    flow = Flow(db, node=node)
    await asyncio.gather(*(_serve(line, frames, flow) for line, frames in lines))
    await db.close()


def main(*numbers: str) -> None:
    """Write what comes on the lines, until the parent hangs up."""
    end_with_parent()
    lines = [(socket.socket(fileno=int(number)), Frames()) for number in numbers]
    begun = _begun(*lines[0])
    if begun is None:
        return
    gc.freeze()  # What is there stays; rows are plain values, which make no garbage.
    gc.set_threshold(50_000, 20, 50)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_write(*begun, lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
