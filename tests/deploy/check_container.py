"""The image: built, weighed, and run without privileges, by Podman or Docker.

Where no registry can be reached, the base of the image is made by debootstrap. The container runs
in the network of this machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.programs import DEPLOY, ROOT, needs
from net.receiver import a_free_port

BASE = "docker.io/library/debian:trixie-slim"
SIZE_MAX = 150 * 1000 * 1000
# What debian:trixie-slim leaves out of a new root.
DOCUMENTATION = ("doc", "info", "lintian", "locale", "man")
LIMITS = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")


class Podman:
    """Podman with a store of its own, in which nothing of this machine's is found or left."""

    def __init__(self, folder: Path) -> None:
        store = ("--root", f"{folder}/store", "--runroot", f"{folder}/run")
        self._options = (*store, "--cgroup-manager", "cgroupfs")

    def __call__(self, *argv: str, given: bytes | None = None) -> str:
        # crun refuses a machine where both versions of control groups have controllers.
        alone = 'umount /sys/fs/cgroup/unified 2>/dev/null; exec podman "$@"'
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", alone, "podman", *self._options, *argv],
            input=given,
            capture_output=True,
            timeout=1_800,
            check=False,
        )
        said = done.stdout.decode()
        assert done.returncode == 0, f"podman {' '.join(argv)}:\n{said}\n{done.stderr.decode()}"
        return said


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    folder = tmp_path_factory.mktemp("podman")
    podman = Podman(folder)
    root = folder / "root"
    subprocess.run(
        ["debootstrap", "--variant=minbase", "trixie", root, "http://deb.debian.org/debian"],
        check=True,
        capture_output=True,
        timeout=1_800,
    )
    for name in DOCUMENTATION:
        shutil.rmtree(root / "usr" / "share" / name, ignore_errors=True)
    for name in ("cache/apt", "lib/apt/lists"):
        shutil.rmtree(root / "var" / name, ignore_errors=True)
    packed = folder / "root.tar"
    subprocess.run(["tar", "-C", root, "--numeric-owner", "-cf", packed, "."], check=True)
    podman("import", str(packed), BASE)
    yield podman
    podman("rm", "--all", "--force", "--volumes")
    podman("rmi", "--all", "--force")


@pytest.fixture(scope="module")
def image(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image, built by the steps of the container file."""
    mounts: list[str] = []
    if certificates := os.environ.get("PIP_CERT"):  # This machine has a CA of its own.
        settings = tmp_path_factory.mktemp("pip") / "pip.conf"
        settings.write_text("[global]\ncert = /host.crt\n")
        mounts = ["--volume", f"{settings}:/etc/pip.conf:ro"]
        mounts += ["--volume", f"{certificates}:/host.crt:ro"]
    podman("build", "--format", "docker", "--network", "host", "--pull=never", *LIMITS, *mounts,
           "--file", str(DEPLOY / "container" / "Containerfile"), "--tag", "homing:latest",
           str(ROOT))  # fmt: skip
    return "localhost/homing:latest"


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap needs root")


@as_root
@needs("podman", "debootstrap", "unshare")
def test_the_image_is_small_and_serves_without_privileges(podman: Podman, image: str) -> None:
    (found,) = json.loads(podman("image", "inspect", image))
    size = found["Size"]
    print(f"size of the image: {size / 1e6:.0f} MB")
    assert size < SIZE_MAX
    assert found["Config"]["User"] == "10001:10001"
    assert found["Config"]["StopSignal"] == "SIGTERM"

    port = a_free_port()
    podman("run", "--detach", "--name", "homing", "--network", "host", "--read-only",
           "--cap-drop", "all", "--security-opt", "no-new-privileges", *LIMITS,
           "--volume", "homing:/var/lib/homing", "--env", f"HOMING_LISTEN=127.0.0.1:{port}",
           image)  # fmt: skip
    podman("exec", "homing", "python3", "-c", WAIT_UNTIL_READY.format(port=port))
    podman("healthcheck", "run", "homing")
    assert "No errors found." in podman("exec", "homing", "homing", "doctor")
    said = podman("exec", "homing", "homing", "publish", "a.b", "{}", "--id", "one", "--json")
    assert "one" in said
    with pytest.raises(AssertionError, match="Read-only file system"):
        podman("exec", "homing", "python3", "-c", "open('/etc/x', 'w')")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=30) as response:
        assert response.status == 200
    podman("stop", "--time", "60", "homing")
    (ended,) = json.loads(podman("inspect", "homing"))
    assert ended["State"]["ExitCode"] == 0


WAIT_UNTIL_READY = """
import time, urllib.request
for _ in range(600):
    try:
        urllib.request.urlopen("http://127.0.0.1:{port}/readyz", timeout=30)
        break
    except OSError:
        time.sleep(0.1)
else:
    raise SystemExit("the server did not become ready")
"""
