"""``homing serve`` as a process: it greets, responds, refuses a second one, and stops cleanly."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest

ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith("HOMING_")}


def command(data: Path, *arguments: str) -> list[str]:
    program = (sys.executable, "-m", "homing.cli.main", "serve")
    return [*program, "--data", str(data), *arguments]


def start(data: Path, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(data, *arguments),
        cwd=data.parent,
        env=ENVIRON | environ,
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
        said = greeting(process, 2)
        address = re.search(r"serves http://(\S+)", said)
        assert address is not None, said
        yield process, address[1], (tmp_path / "data" / "admin.key").read_text().strip()
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


def in_terminal(data: Path) -> str:
    """What a start shows in a terminal."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(command(data, "--listen", "127.0.0.1:0"), env=ENVIRON, stdout=theirs)
    os.close(theirs)
    said = ""
    try:
        while "admin.key" not in said:
            said += os.read(ours, 4096).decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return said


def test_a_new_key_is_shown_once_in_a_terminal_and_never_in_a_log(tmp_path: Path) -> None:
    said = in_terminal(tmp_path / "seen")
    key = (tmp_path / "seen" / "admin.key").read_text().strip()
    assert f"shown only once: {key}" in said
    assert "/sign-in#hl_" in said
    again = in_terminal(tmp_path / "seen")
    assert key not in again
    assert "/sign-in#hl_" in again

    logged = start(tmp_path / "logged", "--listen", "127.0.0.1:0")
    try:
        said = greeting(logged, 2)
        assert f"The admin key is stored in {tmp_path / 'logged' / 'admin.key'}" in said
        assert "hk_" not in said
    finally:
        logged.kill()
        out, err = logged.communicate()
    assert "hk_" not in out + err
    assert "hl_" not in said + out + err


def test_a_command_of_the_first_steps_works_as_pasted_from_any_directory(tmp_path: Path) -> None:
    data = tmp_path / "the data"
    process = start(data, "--listen", "127.0.0.1:0")
    try:
        address = greeting(process, 1).split()[-1]
        key = (data / "admin.key").read_text().strip()
        with httpx.Client(base_url=address) as browser:
            browser.post("/sign-in", data={"key": key})
            page = unescape(browser.get("/").text)
        found = re.search(r"<code>homing (publish .*?)</code>", page)
        assert found is not None, page
        pasted = f"{shlex.quote(sys.executable)} -m homing.cli.main {found[1]}"
        ran = subprocess.run(
            ["bash", "-c", pasted],
            cwd="/",
            env=ENVIRON,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        assert "Published" in ran.stdout
    finally:
        process.kill()
        process.communicate()


def test_one_line_tells_of_variables_that_kubernetes_injects(tmp_path: Path) -> None:
    injected = {"HOMING_PORT": "tcp://10.0.0.1:8700", "HOMING_SERVICE_HOST": "10.0.0.1"}
    process = start(tmp_path / "data", "--listen", "127.0.0.1:0", **injected)
    assert "serves http://127.0.0.1:" in greeting(process, 1)
    process.kill()
    _, err = process.communicate()
    told = [line for line in err.splitlines() if "Kubernetes" in line]
    assert len(told) == 1
    assert "HOMING_PORT" in told[0]
