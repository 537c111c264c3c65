"""An operator's own authorities, by setting: trusted with it, refused without."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from homing.server.settings import Settings
from homing.testing import running_server
from net.certificates import Authority


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing."""


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, _request: object, _address: object) -> None:
        """A peer that does not trust us hangs up."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def url(authority: Authority) -> Iterator[str]:
    """A receiver whose certificate only the operator's authority vouches for."""
    server = _Quiet(("127.0.0.1", 0), _Handler)
    context = authority.server("127.0.0.1")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}/hook"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("trusted", [True, False])
def test_the_setting_says_whom_to_trust(authority: Authority, url: str, trusted: bool) -> None:
    settings = Settings.of(
        listen="127.0.0.1:0",
        allow_loopback=True,
        grace_ms=1_000,
        ca_file=str(authority.ca_file) if trusted else "",
    )
    with running_server(settings) as server:
        made = server.client.subscribe(url, ["*"])
        attempt = server.client.test_subscription(made.id)
    if trusted:
        assert (attempt.outcome, attempt.code) == ("delivered", 204)
    else:
        assert (attempt.outcome, attempt.code, attempt.failure) == ("failed", None, "tls")
