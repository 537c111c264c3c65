"""``homing serve`` as a process: it greets, responds, refuses a second one, and stops cleanly."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith("HOMING_")}


def start(data: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "homing.cli.main", "serve", "--data", str(data)]
    return subprocess.Popen(
        [*command, *arguments],
        cwd=data.parent,
        env=ENVIRON,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def greeting(process: subprocess.Popen[str], lines: int) -> str:
    assert process.stdout is not None
    return "".join(process.stdout.readline() for _ in range(lines))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A running process, its address and its key."""
    process = start(tmp_path / "data", "--listen", "127.0.0.1:0")
    try:
        said = greeting(process, 3)
        address = re.search(r"serves http://(\S+)", said)
        key = re.search(r"shown this once: (hk_\S+)", said)
        assert address is not None, said
        assert key is not None, said
        yield process, address[1], key[1]
    finally:
        process.kill()
        process.communicate()


def ask(address: str, path: str, key: str) -> int:
    connection = HTTPConnection(address, timeout=30)
    connection.request("GET", path, headers={"Authorization": f"Bearer {key}"})
    status = connection.getresponse().status
    connection.close()
    return status


def test_it_responds_and_a_sigterm_ends_it_with_0(
    served: tuple[subprocess.Popen[str], str, str],
) -> None:
    process, address, key = served
    assert ask(address, "/readyz", "none") == 200
    assert ask(address, "/v1/ledger", key) == 200
    assert ask(address, "/v1/ledger", "none") == 401
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert key not in out + err


def test_a_second_one_on_its_data_or_its_address_is_refused_with_one_line(
    served: tuple[subprocess.Popen[str], str, str], tmp_path: Path
) -> None:
    process, address, _ = served
    for data, listen, told in (
        ("data", "127.0.0.1:0", str(process.pid)),
        ("other", address, "Address already in use"),
    ):
        second = start(tmp_path / data, "--listen", listen)
        out, err = second.communicate(timeout=60)
        assert (second.returncode, out) == (2, ""), err
        assert len(err.splitlines()) == 1
        assert told in err


def test_the_key_is_not_shown_at_the_next_start(
    served: tuple[subprocess.Popen[str], str, str], tmp_path: Path
) -> None:
    process, _, key = served
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    again = start(tmp_path / "data", "--listen", "127.0.0.1:0")
    try:
        said = greeting(again, 2)
        assert "admin.key" in said
        assert key not in said
        address = re.search(r"serves http://(\S+)", said)
        assert address is not None
        assert ask(address[1], "/v1/ledger", key) == 200
    finally:
        again.kill()
        again.communicate()
