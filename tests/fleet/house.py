"""A fleet of real processes on a real PostgreSQL, and a receiver that writes down what it gets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import asyncpg

from acceptance.running import KEY, SEAL, Line
from fleet.build import HONEST, MARK, argv
from fleet.judge import Arrival
from net.receiver import a_free_port

LEASE_MS = 4_000
PROBE_EVERY_MS = 5_000


@dataclass(eq=False)
class Process:
    """``homing serve`` in one role; started again it has a new name."""

    dsn: str
    folder: Path
    role: str
    number: int
    build: str = HONEST
    environ: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=a_free_port)
    process: asyncio.subprocess.Process | None = None
    stopped: bool = False
    names: dict[str, int] = field(default_factory=dict)  # label → pid, one for each start

    @property
    def label(self) -> str:
        return f"{self.role}-{self.number}.{len(self.names)}"

    async def start(self) -> None:
        """Until it is ready; while the database is away it waits by itself."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "homing.toml"
        if not config.exists():
            config.write_text(f"[health]\nprobe_every_ms = {PROBE_EVERY_MS}\n")
        environ = {
            **{name: value for name, value in os.environ.items() if "HOMING_" not in name},
            "HOMING_ADMIN_KEY": KEY,
            "HOMING_SECRET_KEY": SEAL,
            "HOMING_CONFIG": str(config),
            "HOMING_DATABASE_URL": self.dsn,
            "HOMING_LOG_FORMAT": "json",
            "HOMING_LEASE_MS": str(LEASE_MS),
            **self.environ,
        }
        data = str(self.folder / f"{self.role}-{self.number}")
        words = ("serve", "--listen", f"127.0.0.1:{self.port}", "--role", self.role)
        with (self.folder / f"{self.role}-{self.number}.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                *argv(self.build, self.label),
                *words,
                *("--allow-loopback", "--data", data),
                env=environ,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        self.names[self.label] = self.process.pid
        assert self.process.stdout is not None
        await self.process.stdout.readline()
        self.stopped = False

    @property
    def up(self) -> bool:
        process = self.process
        return process is not None and process.returncode is None and not self.stopped

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def end(self) -> int:
        assert self.process is not None
        if self.process.returncode is None:
            self.signal(signal.SIGCONT)
            self.process.terminate()
        try:
            return await asyncio.wait_for(self.process.wait(), 30)
        except TimeoutError:
            self.process.kill()
            return await self.process.wait()

    def line(self) -> Line:
        return Line(self.port)


@dataclass
class Receiver:
    """Responds on every path; ``/dead`` with 500."""

    delay_s: float = 0.02
    arrivals: list[Arrival] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)  # of the events that have arrived
    port: int = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                path = lines[0].split(" ")[1]
                head = dict(line.split(": ", 1) for line in lines[1:] if line)
                body = json.loads(await reader.readexactly(int(head["content-length"])))
                who, sent = head[MARK].split(" ")
                delivery, number = head["homing-delivery"], int(head["homing-attempt"])
                at = time.time()
                self.arrivals.append(
                    Arrival(body["id"], body["data"], delivery, number, path, who, float(sent), at)
                )
                self.keys.add(body["id"])
                await self.wait()
                status = b"500 No" if path == "/dead" else b"200 OK"
                writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async def wait(self) -> None:
        await asyncio.sleep(self.delay_s)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Self]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1_000)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()


async def fetch(dsn: str, text: str) -> list[Any]:
    """Raises what asyncpg raises."""
    connection = await asyncpg.connect(dsn, timeout=5)
    try:
        return list(await connection.fetch(text))
    finally:
        await connection.close()
