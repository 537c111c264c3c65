"""A sender outage, made with real receivers that all go away at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import sleep

from homing.testing import HomingServer

HOSTS = [f"127.0.0.{number}" for number in range(1, 6)]


class _Fine(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def receivers() -> Iterator[list[str]]:
    """One for each host; the URLs of two endpoints at each."""
    servers = [ThreadingHTTPServer((host, 0), _Fine) for host in HOSTS]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield [
            f"http://{host}:{server.server_port}/{name}"
            for host, server in zip(HOSTS, servers, strict=True)
            for name in "ab"
        ]
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def begin_outage(server: HomingServer, until: Callable[[], bool]) -> None:
    """Ten endpoints on five hosts are healthy, and then gone; it judges for some seconds."""
    with receivers() as urls:
        for url in urls:
            server.client.subscribe(url, ["*"])
        server.client.publish("before", 1)
        server.settle()
        assert not until()
    server.client.publish("meanwhile", 2)
    for _ in range(600):
        server.clock.advance(0.1)
        if until():
            return
        sleep(0.1)
    raise AssertionError("no outage begins")
