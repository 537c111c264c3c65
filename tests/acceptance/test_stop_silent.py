"""SIGTERM while the store is silent: after the grace the process ends, and its children with it.

Real processes and real signals. The times are upper bounds only: what is waited for takes a few
seconds, and took 90 s and more before a stop was bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from acceptance.running import (
    HONEST,
    KEY,
    SEAL,
    Receiver,
    Server,
    children_of,
    is_there,
)
from net.receiver import a_free_port
from postgres import Server as Postgres

ENDS_WITHIN_S = 40.0
GRACE = {"HOMING_GRACE_MS": "500"}


async def ended(process: asyncio.subprocess.Process) -> int:
    try:
        return await asyncio.wait_for(process.wait(), ENDS_WITHIN_S)
    except TimeoutError:
        process.kill()
        raise


@contextlib.contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


async def at_work(server: Server, receiver: Receiver) -> None:
    """A server with a delivery under way."""
    await server.start()
    line = server.line()
    made = await line.ask("POST", "/v1/subscriptions", {"url": receiver.url, "types": ["*"]})
    assert made.status == 201, made.body
    assert (await line.ask("POST", "/v1/events", {"type": "a.b", "data": 1})).status == 202
    while not receiver.in_flight:
        await asyncio.sleep(0.01)


async def publish_in_vain(server: Server) -> None:
    with contextlib.suppress(OSError, EOFError):
        await server.line().ask("POST", "/v1/events", {"type": "a.b", "data": 2})


@pytest.mark.parametrize("signals", [1, pytest.param(2, marks=pytest.mark.long)])
async def test_a_stopped_writer_process_does_not_hold_a_stop_up(
    tmp_path: Path, signals: int
) -> None:
    """A second SIGTERM ends at once, however long the grace is."""
    grace = GRACE if signals == 1 else {"HOMING_GRACE_MS": "600000"}
    server = Server(tmp_path / "data", environ=grace)
    async with Receiver(tmp_path / "arrived", delay_s=0.3).listening() as receiver:
        await at_work(server, receiver)
        assert server.process is not None
        (writer,) = children_of(server.process.pid)
        with stopped([writer]):
            waits = asyncio.create_task(publish_in_vain(server))
            await asyncio.sleep(0.05)
            for _ in range(signals):
                server.process.send_signal(signal.SIGTERM)
                await asyncio.sleep(0.2)
            assert await ended(server.process) == 1
            assert not is_there(writer)
        await waits
        again = Server(tmp_path / "data")
        await again.start()  # The file is free, and nothing is lost.
        while len(receiver.arrivals) < 1:
            await asyncio.sleep(0.02)
        assert await again.terminate() == 0


async def backends(url: str) -> list[int]:
    """The server processes of a database's connections."""
    connection = await asyncpg.connect(url)
    try:
        found = await connection.fetch(
            "SELECT pid FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    finally:
        await connection.close()
    return [row["pid"] for row in found]


@pytest.mark.parametrize("role", ["all", pytest.param("deliver", marks=pytest.mark.long)])
async def test_stopped_postgres_backends_do_not_hold_a_stop_up(
    postgres: Postgres, tmp_path: Path, role: str
) -> None:
    url = await postgres.make()
    database = {"HOMING_DATABASE_URL": url}
    server = Server(tmp_path / "data", environ={**database, **GRACE})
    async with Receiver(tmp_path / "arrived", delay_s=0.3).listening() as receiver:
        if role == "all":
            await at_work(server, receiver)
        else:
            server.environ["HOMING_ROLE"] = role
            await server.start()
        assert server.process is not None
        children = children_of(server.process.pid)
        with stopped(await backends(url)):
            server.process.send_signal(signal.SIGTERM)
            assert await ended(server.process) in ({1} if role == "all" else {0, 1})
            assert not [it for it in children if is_there(it)]


@contextlib.asynccontextmanager
async def silent_port() -> AsyncIterator[int]:
    """A port that takes connections and says nothing."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read(-1)
        writer.close()

    port = a_free_port()
    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield port
    finally:
        server.close()


@pytest.mark.parametrize("command", ["serve", "relay"])
async def test_a_database_that_never_responds_does_not_hold_a_stop_up(
    tmp_path: Path, command: str
) -> None:
    """While a server starts, and while a relay looks for rows."""
    async with silent_port() as port:
        url = f"postgresql://homing@127.0.0.1:{port}/homing"
        words = {
            "serve": ("serve", "--data", str(tmp_path), "--listen", f"127.0.0.1:{a_free_port()}"),
            "relay": ("relay", "--database", url, "--server", f"http://127.0.0.1:{port}"),
        }[command]
        environ = {
            **{name: value for name, value in os.environ.items() if "HOMING_" not in name},
            **({"HOMING_DATABASE_URL": url} if command == "serve" else {}),
            **GRACE,
            "HOMING_ADMIN_KEY": KEY,
            "HOMING_SECRET_KEY": SEAL,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *HONEST,
            *words,
            env=environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdout is not None
        said = await asyncio.wait_for(process.stdout.readline(), ENDS_WITHIN_S)
        assert b"waiting for the database" in said or b"relays to" in said
        process.send_signal(signal.SIGTERM)
        assert await ended(process) in {0, 1}
