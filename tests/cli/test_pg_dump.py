"""The lines of the page on backups, run with the real tools of PostgreSQL."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from pathlib import Path

import pytest

from cli.terminal import Terminal
from client.hooks import hook
from homing_client import Homing
from postgres import Server

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "back-up-and-restore.md"
KEY = "hk_dump-test-key-0123456"
SECRET = "aG9taW5nIGFjY2VwdGFuY2UgdGVzdCBzZWFsIGtleSE="


def documented(program: str) -> str:
    """The line of the page that begins with this program."""
    lines = re.findall(rf"^{program} .*$", PAGE.read_text(), re.MULTILINE)
    assert len(lines) == 1
    return str(lines[0])


@pytest.mark.long
def test_a_dump_restores_into_an_empty_database(postgres: Server, tmp_path: Path) -> None:
    more = {
        "HOMING_ADMIN_KEY": KEY,
        "HOMING_SECRET_KEY": SECRET,
        "PATH": f"{postgres.programs}:/usr/bin:/bin",
    }
    asyncio.run(postgres.create("dumped"))
    asyncio.run(postgres.create("restored"))
    terminal = Terminal(tmp_path, more={**more, "HOMING_DATABASE_URL": postgres.dsn("dumped")})
    url = f"http://127.0.0.1:{terminal.port}"
    with hook(status=500) as receiver, terminal.serving(), Homing(url, KEY) as client:
        client.subscribe(receiver.url, ["*"])
        client.publish("invoice.paid", {"n": 1}, id="waits")
        while 0 in {one.attempts_made for one in client.deliveries()}:
            time.sleep(0.01)
        shell(documented("pg_dump"), terminal)  # while the server runs
        before = client.ledger()
    there = Terminal(
        tmp_path, terminal.port, {**more, "HOMING_DATABASE_URL": postgres.dsn("restored")}
    )
    shell(documented("pg_restore"), there)
    with there.serving(), Homing(url, KEY) as client:
        assert client.ledger() == before
        (kept,) = client.deliveries()
        assert (kept.status, kept.attempts_made) == ("pending", 1)
        assert client.publish("invoice.paid", {"n": 1}, id="waits").duplicate


def shell(line: str, terminal: Terminal) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=terminal.place,
        env=terminal.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
