"""A real PgBouncer in transaction mode in front of a test server, where the machine has one."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from net.receiver import a_free_port
from postgres import Server

SERVER_CONNECTIONS = 4  # for however many clients

_INI = """
[databases]
* = {target} user=postgres

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 500
logfile = {log}
pidfile = {pid}
"""


def program() -> str | None:
    """Where it is; None: not here."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


@contextlib.contextmanager
def pooling(server: Server, folder: Path) -> Iterator[int]:
    """The port at which it takes clients."""
    (host,) = parse_qs(urlsplit(server.dsn("postgres")).query)["host"]
    # It does not run as root; the server's user may read its socket.
    user = Path(host).owner() if os.geteuid() == 0 else None
    with pooling_to(f"host={host}", folder, user=user) as port:
        yield port


@contextlib.contextmanager
def pooling_to(target: str, folder: Path, *, user: str | None) -> Iterator[int]:
    """The same, to a server that is given as PgBouncer's settings name it."""
    found = program()
    assert found is not None
    port, ini = a_free_port(), folder / "pgbouncer.ini"
    text = _INI.format(
        target=target,
        port=port,
        size=SERVER_CONNECTIONS,
        log=folder / "pgbouncer.log",
        pid=folder / "pgbouncer.pid",
    )
    ini.write_text(text)
    if user is not None:
        folder.chmod(0o777)
    process = subprocess.Popen([found, "-q", str(ini)], user=user)
    try:
        ends_at = time.monotonic() + 30
        while not _responds(port):
            assert process.poll() is None, (folder / "pgbouncer.log").read_text()
            assert time.monotonic() < ends_at
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(10)


def _responds(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
