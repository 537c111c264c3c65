"""Real processes for acceptance tests: a server that can be killed, a receiver, HTTP by hand."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from net.receiver import a_free_port

KEY = "hk_acceptance-test-key"
SEAL = "aG9taW5nIGFjY2VwdGFuY2UgdGVzdCBzZWFsIGtleSE="
HONEST = ("-m", "homing.cli.main")


def children_of(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(it) for it in found]


def is_there(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@dataclass
class Reply:
    """An HTTP response."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Line:
    """One keep-alive HTTP connection to a server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, document: Any = None) -> Reply:
        """Bytes are sent as they are. Raises OSError or EOFError where the connection breaks."""
        if isinstance(document, bytes):
            body = document
        else:
            body = b"" if document is None else json.dumps(document).encode()
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        try:
            writer.write(head.encode() + body)
            return await self._response(reader)
        except (OSError, EOFError):
            self.close()
            raise
        finally:
            if reader.at_eof():
                self.close()

    async def _response(self, reader: asyncio.StreamReader) -> Reply:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
        length = int(headers.get("content-length", "0"))
        body = await reader.readexactly(length)
        return Reply(int(head[0].split()[1]), body, headers)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


@dataclass
class Server:
    """``homing serve`` as a process of its own."""

    data: Path
    port: int = field(default_factory=a_free_port)
    argv: tuple[str, ...] = HONEST
    environ: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ("--allow-loopback",)
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Until it is ready."""
        environ = {
            **{name: value for name, value in os.environ.items() if "HOMING_" not in name},
            "HOMING_ADMIN_KEY": KEY,
            "HOMING_LOG_LEVEL": "error",
            # Servers on one PostgreSQL share the encryption key, each with its own data.
            **({"HOMING_SECRET_KEY": SEAL} if "HOMING_DATABASE_URL" in self.environ else {}),
            **self.environ,
        }
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            *self.argv,
            "serve",
            "--data",
            str(self.data),
            "--listen",
            f"127.0.0.1:{self.port}",
            *self.options,
            env=environ,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self.process.stdout is not None
        first = await self.process.stdout.readline()
        assert first, "the server ended before it was ready"

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)

    async def gone(self) -> int:
        assert self.process is not None
        return await self.process.wait()

    async def terminate(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), 40)

    def line(self) -> Line:
        return Line(self.port)


@dataclass
class Receiver:
    """Responds with 200 after a while, and writes the id of every event it has seen to a file."""

    file: Path
    delay_s: float = 0.02
    status: int = 200
    in_flight: int = 0
    arrivals: dict[str, list[float]] = field(default_factory=dict)  # id → when
    url: str = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                headers = head.decode().lower().split("\r\n")
                (length,) = [it[16:] for it in headers if it.startswith("content-length: ")]
                body = await reader.readexactly(int(length))
                self._note(json.loads(body)["id"])
                self.in_flight += 1
                try:
                    await asyncio.sleep(self.delay_s)
                finally:
                    self.in_flight -= 1
                status = f"HTTP/1.1 {self.status} Response\r\ncontent-length: 0\r\n\r\n"
                writer.write(status.encode())
        writer.close()

    def _note(self, key: str) -> None:
        self.arrivals.setdefault(key, []).append(asyncio.get_running_loop().time())
        with self.file.open("a") as out:
            out.write(key + "\n")

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Receiver]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
        try:
            yield self
        finally:
            server.close()
