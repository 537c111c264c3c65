"""A fleet of real processes on a real PostgreSQL, and a receiver that counts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from acceptance.running import KEY, Line, free_port

LEASE_MS = 3_000
PROBE_EVERY_MS = 5_000

# Who deletes a pending row must hold its bucket at that moment, by the lease table itself.
AUDIT = """
CREATE TABLE audit (at timestamptz DEFAULT clock_timestamp(), who text, bucket integer);
CREATE FUNCTION audited() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit (who, bucket)
    SELECT current_setting('application_name'), gone.bucket FROM gone
    JOIN lease l ON l.bucket = gone.bucket LEFT JOIN process p ON p.id = l.owner
    WHERE 'homing ' || p.name IS DISTINCT FROM current_setting('application_name');
    RETURN NULL;
END $$;
CREATE TRIGGER audited AFTER DELETE ON pending
REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION audited();
"""


@dataclass(eq=False)
class Process:
    """``homing serve`` in one role."""

    dsn: str
    folder: Path
    role: str
    number: int
    port: int = field(default_factory=free_port)
    process: asyncio.subprocess.Process | None = None
    stopped: bool = False
    ends: list[float] = field(default_factory=list)  # when it was killed or stopped
    pids: list[int] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.folder / f"{self.role}-{self.number}.log"

    async def start(self) -> None:
        """Until it is ready; tried again while the database is away."""
        config = self.folder / "homing.toml"
        config.write_text(f"[health]\nprobe_every_ms = {PROBE_EVERY_MS}\n")
        environ = {
            **{name: value for name, value in os.environ.items() if "HOMING_" not in name},
            "HOMING_ADMIN_KEY": KEY,
            "HOMING_DATABASE_URL": self.dsn,
            "HOMING_LOG_FORMAT": "json",
            "HOMING_LOG_LEVEL": "info",
        }
        words: tuple[str, ...] = (
            "serve",
            "--config",
            str(config),
            "--listen",
            f"127.0.0.1:{self.port}",
        )
        words += ("--allow-loopback", "--role", self.role, "--lease-ms", str(LEASE_MS))
        while True:
            with self.log.open("ab") as log:
                self.process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "homing.cli.main",
                    *words,
                    "--data",
                    str(self.folder / "data"),
                    env=environ,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                )
            assert self.process.stdout is not None
            if await self.process.stdout.readline():
                self.pids.append(self.process.pid)
                self.stopped = False
                return
            await self.process.wait()
            await asyncio.sleep(0.3)

    @property
    def up(self) -> bool:
        process = self.process
        return process is not None and process.returncode is None and not self.stopped

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        if number in {signal.SIGKILL, signal.SIGSTOP}:
            self.ends.append(time.time())
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
    """Answers every path; ``/dead`` with 500."""

    delay_s: float = 0.01
    in_flight: int = 0
    arrivals: dict[str, list[float]] = field(default_factory=dict)
    dead: list[float] = field(default_factory=list)
    port: int = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
                (length,) = [it[16:] for it in head if it.startswith("content-length: ")]
                body = json.loads(await reader.readexactly(int(length)))
                dead = "/dead" in head[0]
                if dead:
                    self.dead.append(time.time())
                else:
                    self.arrivals.setdefault(body["id"], []).append(time.time())
                self.in_flight += 1
                try:
                    await asyncio.sleep(self.delay_s)
                finally:
                    self.in_flight -= 1
                status = b"500 No" if dead else b"200 OK"
                writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Receiver]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()


def log_lines(processes: list[Process]) -> Iterator[tuple[Process, dict[str, Any]]]:
    for one in processes:
        for line in one.log.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                found = json.loads(line)
                if "time" in found:
                    yield one, found


async def fetch(dsn: str, text: str) -> list[Any]:
    """Raises what asyncpg raises."""
    connection = await asyncpg.connect(dsn, timeout=5)
    try:
        return list(await connection.fetch(text))
    finally:
        await connection.close()
