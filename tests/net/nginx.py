"""An nginx of its own for a test."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from net.receiver import a_free_port

CONFIG = """
daemon off; worker_processes 1; pid {dir}/pid; error_log {dir}/error.log;
events {{ worker_connections 128; }}
http {{
  access_log {dir}/access.log; client_body_temp_path {dir}; proxy_temp_path {dir};
  fastcgi_temp_path {dir}; uwsgi_temp_path {dir}; scgi_temp_path {dir};
  server {{ listen 127.0.0.1:{port}{tls}; {server} }}
}}
"""


@dataclass
class Nginx:
    port: int
    directory: Path


@contextmanager
def nginx_with(directory: Path, server: str, *, tls: bool = False) -> Iterator[Nginx]:
    """An nginx with this ``server`` block, without its ``listen``; skips if there is none."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed: this was NOT tested with it")
    port = a_free_port()
    config = directory / "nginx.conf"
    config.write_text(
        CONFIG.format(dir=directory, port=port, tls=" ssl" if tls else "", server=server)
    )
    process = subprocess.Popen([program, "-p", str(directory), "-c", str(config)])
    try:
        wait_for_port(port, process)
        yield Nginx(port, directory)
    finally:
        process.terminate()
        process.wait()


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Until a program accepts connections; fails if it ends before."""
    for _ in range(3_000):
        assert process.poll() is None, "the program has ended"
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise AssertionError("the program does not listen")
