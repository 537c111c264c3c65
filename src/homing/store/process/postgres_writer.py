"""The PostgreSQL writer process: publish and settle run beside the event loop.

A publish is six round trips to the database, and in a busy loop each waits for its turn; making
and encoding the rows takes a third of that loop's time. With a worker process, the loop sends each
batch in one piece to the worker, which writes it. Publishes are written one after the other, and so
are settles; neither waits for the other. All other operations use the server's own connections.
Five rounds of ``make bench ARGS="--only a,e,k --rounds 5"`` on two cores: 3,665 deliveries/s with
the worker process and 3,397 without it, 1.57 and 1.34 times part a. It is worth its code while it
gains 5 % or more.

The worker connects when a call needs it: while the database is down, each call raises
StoreUnavailable.
If the worker ends after it has committed a batch and before it has replied, the next worker
recognises the batch by its mark, which is the same in both.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import cast

import asyncpg
import uvloop

from homing.ports import NewEvent, Published, SettleBatch, SettleResult
from homing.store.flow import Flow
from homing.store.postgres import WRITING_CONNECTIONS, ConnectionSpec, PostgresDb
from homing.store.process.codec import Call, Frames, encode_reply
from homing.store.process.worker import (
    RECEIVE_BYTES,
    WorkerProcess,
    begin_worker,
    encode_failure,
)

_METHODS = ("publish", "settle", "check_marks")


class PostgresWriterProcess(WorkerProcess):
    """The server's side."""

    def __init__(
        self, spec: ConnectionSpec, *, node: int, environ: Mapping[str, str] | None = None
    ) -> None:
        super().__init__("homing.store.process.postgres_writer", spec, node, environ=environ)


class OffloadedFlow(Flow):
    """``Flow`` whose publish and settle run in the writer process."""

    def __init__(self, db: PostgresDb, writer: PostgresWriterProcess, *, node: int) -> None:
        super().__init__(db, node)
        self._writer = writer

    async def publish(
        self, requests: Sequence[Sequence[NewEvent]], *, number: int, fence: int = 0
    ) -> Published:
        published = await self._writer.call("flow", "publish", requests, number=number, fence=fence)
        return cast("Published", published)

    async def settle(self, batch: SettleBatch) -> SettleResult:
        return cast("SettleResult", await self._writer.call("flow", "settle", batch))

    async def check_marks(self) -> None:
        await self._writer.call("flow", "check_marks")


# --- the worker's side ----------------------------------------------------------------------


async def _reply(flow: Flow, call: Call) -> bytes:
    try:
        return encode_reply(call, await getattr(flow, call.method)(*call.args, **call.kwargs))
    except Exception as error:  # noqa: BLE001 - a bug is raised in the caller
        return encode_failure(call, error, driver_error=asyncpg.PostgresError)


async def _serve(connection: socket.socket, frames: Frames, flow: Flow) -> None:
    """Run calls until the parent closes the connection."""
    loop = asyncio.get_running_loop()
    connection.setblocking(False)
    sending = asyncio.Lock()
    queues = {method: asyncio.Queue[Call | None]() for method in _METHODS}

    async def run_in_order(queue: asyncio.Queue[Call | None]) -> None:
        while (call := await queue.get()) is not None:
            reply = await _reply(flow, call)
            async with sending:
                await loop.sock_sendall(connection, reply)

    async def receive() -> None:
        while True:
            for call in frames.calls():
                queues[call.method].put_nowait(call)
            data = await loop.sock_recv(connection, RECEIVE_BYTES)
            if not data:
                break
            frames.add(data)
        for queue in queues.values():
            queue.put_nowait(None)

    with contextlib.suppress(ConnectionError):  # The parent was killed.
        await asyncio.gather(receive(), *map(run_in_order, queues.values()))


async def _write(
    connection: socket.socket, frames: Frames, spec: ConnectionSpec, node: int
) -> None:
    db = PostgresDb.at(spec, hot=WRITING_CONNECTIONS)
    await _serve(connection, frames, Flow(db, node=node))
    await db.close()


def main(fd: str) -> None:
    connection, frames, (spec, node) = begin_worker(fd)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_write(connection, frames, spec, node))


if __name__ == "__main__":
    main(*sys.argv[1:])
