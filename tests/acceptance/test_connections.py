"""Idle connections, however many, leave descriptors for publishers and for deliveries."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
from pathlib import Path

from acceptance.running import Line, Receiver, Server

SOFT, HARD, IDLE, PUBLISHED = 48, 64, 300, 20
WITHIN_S = 60.0
SAID = (
    b"",
    b"POST /v1/events HTTP/1.1\r\nhost: x\r\nx: ",
    b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n",
)


def limited(soft: int, hard: int) -> tuple[str, ...]:
    """Python's arguments for a server that starts with these limits of descriptors."""
    return (
        "-c",
        f"import resource, runpy; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard})); "
        "runpy.run_module('homing.cli.main', run_name='__main__')",
    )


def open_idle(port: int, count: int) -> list[socket.socket]:
    """Connections that say nothing, half a head, or one request, and then no more."""
    lines = []
    for n in range(count):
        line = socket.create_connection(("127.0.0.1", port), timeout=10)
        with contextlib.suppress(OSError):
            line.sendall(SAID[n % len(SAID)])
        lines.append(line)
    return lines


async def publish_once(port: int, key: str, *, within_s: float = WITHIN_S) -> int:
    """The status of one publish on a connection of its own; 0 if there was no response."""
    line = Line(port)
    try:
        async with asyncio.timeout(within_s):
            event = {"type": "a.b", "id": key, "data": 1}
            return (await line.ask("POST", "/v1/events", event)).status
    except (OSError, EOFError):
        return 0
    finally:
        line.close()


async def test_many_idle_connections_end_neither_publishing_nor_deliveries(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path / "seen", delay_s=0)
    server = Server(tmp_path / "data", argv=limited(SOFT, HARD))
    lines: list[socket.socket] = []
    async with receiver.listening():
        await server.start()
        assert server.process is not None
        pid = server.process.pid
        try:
            assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (HARD, HARD)
            subscription = {"url": receiver.url, "types": ["a.*"]}
            await Line(server.port).ask("POST", "/v1/subscriptions", subscription)
            lines = await asyncio.to_thread(open_idle, server.port, IDLE)
            codes = [await publish_once(server.port, f"e{n}") for n in range(PUBLISHED)]
            assert codes == [202] * PUBLISHED
            async with asyncio.timeout(WITHIN_S):
                while len(receiver.arrivals) < PUBLISHED:
                    await asyncio.sleep(0.02)
            assert len(os.listdir(f"/proc/{pid}/fd")) < HARD
        finally:
            for line in lines:
                line.close()
            await server.terminate()
