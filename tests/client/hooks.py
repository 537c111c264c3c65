"""A receiver in a thread: it keeps what came and responds with the status it is told."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Hook:
    """What came to a URL."""

    url: str = ""
    status: int = 204
    came: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@contextlib.contextmanager
def hook(status: int = 204, gate: threading.Event | None = None) -> Iterator[Hook]:
    """With a gate, requests get their response when it is set."""
    kept = Hook(status=status)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            kept.came.append((dict(self.headers.items()), body))
            if gate is not None:
                gate.wait(60)
            self.send_response(kept.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    kept.url = f"http://127.0.0.1:{server.server_port}/hook"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
