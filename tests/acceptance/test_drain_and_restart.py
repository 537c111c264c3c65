"""A stop that load balancers notice in time, and a restart during which no caller is refused."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from acceptance.running import KEY, Line, Reply, Server
from postgres import Server as Postgres

EVENT = {"type": "a.b", "data": 1}
# Hands a descriptor over, as systemd does: descriptor, count, command.
HAND_OVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_FDS": sys.argv[2], "LISTEN_PID": str(os.getpid())}
os.execv(sys.argv[3], sys.argv[3:])
"""


async def once(port: int, method: str, path: str, document: object = None) -> Reply:
    """The response on a connection of its own."""
    line = Line(port)
    try:
        return await line.ask(method, path, document)
    finally:
        line.close()


async def closing_response(line: Line) -> Reply:
    """The response that announces the end of this connection."""
    while "connection" not in (reply := await line.ask("POST", "/v1/events", EVENT)).headers:
        await asyncio.sleep(0.01)
    return reply


@pytest.mark.parametrize("processes", [1, 2])
async def test_while_draining_new_connections_are_served_and_see_that_it_is_not_ready(
    processes: int, postgres: Postgres, tmp_path: Path
) -> None:
    server = Server(tmp_path / "data", environ={"HOMING_DRAIN_MS": "600000"})
    if processes > 1:
        server.environ["HOMING_DATABASE_URL"] = await postgres.make()
        server.environ["HOMING_PROCESSES"] = str(processes)
    await server.start()
    assert server.process is not None
    kept = server.line()
    assert (await kept.ask("POST", "/v1/events", EVENT)).headers.get("connection") is None
    assert (await once(server.port, "GET", "/readyz")).status == 200

    server.process.send_signal(signal.SIGTERM)
    # Each process gets the signal in its own time. The kept connection is asked meanwhile: a server
    # closes one that is idle for five seconds.
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(closing_response(kept))
        while (await once(server.port, "GET", "/readyz")).status == 200:
            await asyncio.sleep(0.01)
        while "connection" not in (await once(server.port, "POST", "/v1/events", EVENT)).headers:
            await asyncio.sleep(0.01)

    last = asked.result()
    assert (last.status, last.headers["connection"]) == (202, "close")
    refused = await once(server.port, "GET", "/readyz")
    assert (refused.status, refused.json["code"]) == (503, "shutting_down")
    assert (await once(server.port, "GET", "/healthz")).status == 200
    server.process.send_signal(signal.SIGTERM)  # at once, without draining
    await server.gone()


async def test_after_draining_the_process_ends_with_0(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", environ={"HOMING_DRAIN_MS": "50"})
    await server.start()
    assert await server.terminate() == 0


async def hand_over(
    descriptor: int, data: Path, *, count: int = 1, stderr: int | None = None
) -> asyncio.subprocess.Process:
    """A server on a socket that is already open."""
    environ = {name: value for name, value in os.environ.items() if "HOMING_" not in name}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HAND_OVER, str(descriptor), str(count)),
        *(sys.executable, "-m", "homing.cli.main", "serve", "--data", str(data)),
        env=environ | {"HOMING_ADMIN_KEY": KEY, "HOMING_LOG_LEVEL": "error"},
        pass_fds=[descriptor],
        stderr=stderr,
    )


@pytest.mark.long
async def test_a_restart_on_a_socket_that_was_handed_over_refuses_nobody(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        port = listener.getsockname()[1]
        stopping, accepted = False, 0

        async def publish() -> None:
            nonlocal accepted
            while not stopping:
                reply = await once(port, "POST", "/v1/events", EVENT)  # raises if it is refused
                assert reply.status == 202, reply.body
                accepted += 1

        process = await hand_over(listener.fileno(), tmp_path)
        publishers = [asyncio.create_task(publish()) for _ in range(8)]
        for _ in range(3):
            before = accepted
            while accepted < before + 50:
                await asyncio.sleep(0.01)
                assert not any(task.done() for task in publishers)
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
            process = await hand_over(listener.fileno(), tmp_path)
        stopping = True
        await asyncio.gather(*publishers)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


@pytest.mark.parametrize("count", [1, 2])
async def test_another_descriptor_is_refused_in_words(count: int, tmp_path: Path) -> None:
    with Path(os.devnull).open() as file:
        process = await hand_over(
            file.fileno(), tmp_path, count=count, stderr=asyncio.subprocess.PIPE
        )
    _, said = await process.communicate()
    assert process.returncode == 2
    assert said.decode().startswith("homing: A setting is wrong. LISTEN_FDS")
    assert len(said.splitlines()) == 1
