"""A server by script: each request gets the next step, whatever bytes these are."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from homing_client.http1 import ResponseReader

CLOSE = b""  # hang up without a word
HANG = b"\0"  # never respond


def response(status: int, document: Any = None, **headers: str) -> bytes:
    body = b"" if document is None else json.dumps(document).encode()
    lines = [f"HTTP/1.1 {status} Said", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


ACCEPTED = response(202, {"events": [{"id": "an-id", "deliveries": 1}]})


@dataclass
class Asked:
    """A request as it came."""

    connection: int
    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Scripted:
    """The server; after the last step it repeats it."""

    steps: list[bytes]
    asked: list[Asked] = field(default_factory=list)
    url: str = ""
    connections: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: list[socket.socket] = field(default_factory=list)

    def hang_up(self) -> None:
        """End every connection."""
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def serve(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                self.connections += 1
                self._open.append(connection)
                arguments = (connection, self.connections)
                threading.Thread(target=self._talk, args=arguments, daemon=True).start()

    def _talk(self, connection: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as stream:
            while line := stream.readline().decode():
                headers: dict[str, str] = {}
                while head := stream.readline().decode().strip():
                    name, _, value = head.partition(": ")
                    headers[name.lower()] = value
                body = stream.read(int(headers.get("content-length", "0")))
                with self._lock:
                    self.asked.append(Asked(number, line.strip(), headers, body))
                    step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
                if step == HANG:
                    stream.read()
                if step in (CLOSE, HANG):
                    return
                connection.sendall(step)
                if b"connection: close" in step:
                    return


@contextlib.contextmanager
def scripted(*steps: bytes) -> Iterator[Scripted]:
    server = Scripted(list(steps))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        threading.Thread(target=server.serve, args=(listener,), daemon=True).start()
        yield server
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


@dataclass
class Relay:
    """Stands before a server, and swallows its first responses."""

    port: int
    swallow: int
    url: str = ""

    def serve(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                front, _ = listener.accept()
                behind = socket.create_connection(("127.0.0.1", self.port))
                threading.Thread(target=self._pass, args=(front, behind), daemon=True).start()

    def _pass(self, front: socket.socket, behind: socket.socket) -> None:
        with contextlib.suppress(OSError), front, behind:
            while request := front.recv(65_536):  # small ones: a request comes in one piece
                behind.sendall(request)
                reply, reader = b"", ResponseReader()
                while reader.response is None:
                    reader.feed(part := behind.recv(65_536))
                    reply += part
                if self.swallow:
                    self.swallow -= 1
                    return
                front.sendall(reply)


@contextlib.contextmanager
def relay(port: int, *, swallow: int) -> Iterator[Relay]:
    server = Relay(port, swallow)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        threading.Thread(target=server.serve, args=(listener,), daemon=True).start()
        yield server
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
