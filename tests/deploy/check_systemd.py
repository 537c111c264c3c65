"""The unit under a real systemd: it boots in a root made by debootstrap, with systemd-nspawn."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from acceptance.running import children_of
from deploy.programs import ROOT, needs
from net.receiver import a_free_port

PACKAGES = "ca-certificates,dbus,python3,python3-venv,systemd,systemd-sysv"
PAGE = ROOT / "docs" / "howto" / "run-with-systemd.md"
SOURCES = ("deploy", "packages", "src", "LICENSE", "pyproject.toml", "requirements.lock")
PATIENCE_S = 300

Run = Callable[..., str]


def output(*argv: str | Path) -> str:
    done = subprocess.run(
        list(map(str, argv)), capture_output=True, timeout=1_800, check=False, text=True
    )
    assert done.returncode == 0, f"{argv}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def lines_of_the_page() -> list[str]:
    """The lines that install Homing, without those that need a running systemd."""
    found = re.search(r"```sh\n(python3 -m venv.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return [it for it in found.group(1).splitlines() if not it.startswith(("systemctl", "journal"))]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, int]]:
    """A running systemd with the unit: how to run commands in it, and the port of the server."""
    root, port = tmp_path_factory.mktemp("machine") / "root", a_free_port()
    mirror = "http://deb.debian.org/debian"
    output("debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", root, mirror)
    (root / "source").mkdir()
    output("cp", "--archive", *(ROOT / name for name in SOURCES), root / "source")
    environ = ["PATH=/usr/sbin:/usr/bin"]
    if certificates := os.environ.get("PIP_CERT"):  # This machine has a CA of its own.
        shutil.copy(certificates, root / "host.crt")
        environ.append("PIP_CERT=/host.crt")
    script = "\n".join(["set -eu", "cd /source", *lines_of_the_page()])
    output("chroot", root, "env", "-i", *environ, "sh", "-c", script)
    output("chroot", root, "systemctl", "enable", "homing")
    (root / "etc" / "homing").mkdir()
    (root / "etc" / "homing" / "environment").write_text(f"HOMING_LISTEN=127.0.0.1:{port}\n")
    boot = subprocess.Popen(
        ["systemd-nspawn", f"--directory={root}", "--boot", "--register=no", "--keep-unit",
         "--console=pipe", "--resolv-conf=off", "--timezone=off"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    ends_at = time.monotonic() + PATIENCE_S
    try:
        while not _is_ready(port):
            assert boot.poll() is None, "systemd did not start"
            assert time.monotonic() < ends_at, "the service did not become ready"
            time.sleep(0.2)
        (first,) = children_of(boot.pid)

        def run(*argv: str) -> str:
            inside = ("nsenter", "--target", str(first), "--mount", "--pid", "--uts", "--ipc", "--")
            return output(*inside, *argv)

        yield run, port
        run("systemctl", "--no-block", "poweroff")
        boot.wait(60)
    finally:
        boot.kill()


def _is_ready(port: int) -> bool:
    with contextlib.suppress(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30)
        return True
    return False


@pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap and systemd-nspawn need root")
@needs("debootstrap", "systemd-nspawn", "nsenter")
def test_the_service_runs_in_its_sandbox(machine: tuple[Run, int]) -> None:
    run, port = machine
    key = run("cat", "/var/lib/homing/admin.key").strip()
    (pid,) = run("systemctl", "show", "--property=MainPID", "--value", "homing").split()
    status = run("cat", f"/proc/{pid}/status")
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
    assert re.search(r"^Seccomp:\s+2$", status, re.MULTILINE)
    assert not re.search(r"^Uid:\s+0\b", status, re.MULTILINE)

    def ask(path: str, body: bytes | None = None) -> bytes:
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            return bytes(response.read())

    assert b'"duplicate":false' in ask("/v1/events", b'{"type": "a.b", "id": "one", "data": {}}')
    assert b"process_open_fds" in ask("/metrics")
    run("systemctl", "restart", "homing")
    while not _is_ready(port):
        time.sleep(0.1)
    assert b'"duplicate":true' in ask("/v1/events", b'{"type": "a.b", "id": "one", "data": {}}')
    run("systemctl", "stop", "homing")
    shown = run("systemctl", "show", "--property=Result,ExecMainStatus", "homing")
    assert shown.split() == ["Result=success", "ExecMainStatus=0"]
