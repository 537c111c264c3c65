"""``make pythons``: Homing on every Python of this machine, from the lock file and from the wheels.

For each version: the server from requirements.lock, as ``make run`` installs it; homing-client
alone and the server from the wheels of the latest commit, with the newest packages that PyPI has;
a program that publishes, receives, verifies and uses the outbox with each; and the tests, with
requirements-dev.lock.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pythons.environments import ROOT, build_release, clean_environ, ran, round_trip

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
SERVER_MB_MAX = 130


def find_python(version: str) -> Path | None:
    """The Python of this version, or None."""
    found = subprocess.run(
        [ROOT / "tools" / "find_python.sh", version], capture_output=True, text=True, check=False
    )
    return Path(found.stdout.strip()) if found.returncode == 0 else None


def megabytes(directory: Path) -> float:
    files = (it for it in directory.rglob("*") if it.is_file() and not it.is_symlink())
    return sum(it.stat().st_blocks * 512 for it in files) / 1e6


class Check:
    """The checks of one Python; each prints what it did."""

    def __init__(self, version: str, python: Path, release: dict[str, Path], place: Path) -> None:
        self.version, self.python, self.release, self.place = version, python, release, place

    def from_lock_file(self) -> None:
        """Install the server as ``make run`` does, and use it."""
        began = time.monotonic()
        environment = self.place / "lock"
        self._make(environment, environment / ".serve.ready")
        took_s, size = time.monotonic() - began, megabytes(environment)
        round_trip(environment, environment, self.place / "run-lock")
        print(f"  lock file      {took_s:5.1f} s {size:6.1f} MB  published, received, verified")
        if size >= SERVER_MB_MAX:
            raise RuntimeError(f"the server takes {size:.0f} MB, more than {SERVER_MB_MAX} MB")

    def from_wheels(self) -> None:
        """Install each wheel into an environment of its own; the one uses the other."""
        client, server = self.place / "client", self.place / "server"
        installed = {}
        for environment, wheel in ((client, "client.whl"), (server, "server.whl")):
            ran(self.python, "-m", "venv", environment)
            empty, began = megabytes(environment), time.monotonic()
            pip = (environment / "bin" / "python", "-m", "pip", "--disable-pip-version-check")
            links = ("--find-links", self.release[wheel].parent)
            ran(*pip, "install", *links, self.release[wheel])
            took_s, added = time.monotonic() - began, megabytes(environment) - empty
            ran(*pip, "check")
            packages = ran(*pip, "list", "--format=freeze").split()
            installed[wheel] = sorted(it.partition("==")[0] for it in packages)
            kind = f"{wheel.partition('.')[0]}'s wheel"
            print(f"  {kind:<14} {took_s:5.1f} s {added:6.1f} MB  {len(packages)} packages")
        alone = set(installed["client.whl"]) - {"pip", "setuptools"}
        if alone != {"homing-client", "msgspec"}:
            raise RuntimeError(f"homing-client brought {alone}")
        result = round_trip(client, server, self.place / "run-wheels")
        if result["has the server"]:
            raise RuntimeError("the client's environment can import the server")
        print("  client's wheel with server's wheel: published, received, verified")

    def by_tests(self, paths: list[str]) -> None:
        """Run the tests with the packages of requirements-dev.lock."""
        began = time.monotonic()
        environment = self.place / "lock"
        self._make(environment, "setup")
        print(f"  tests: {time.monotonic() - began:.1f} s to install, then {' '.join(paths)}")
        sys.stdout.flush()
        command = [str(environment / "bin" / "pytest"), "-n", str(os.cpu_count()), *paths]
        if subprocess.run(command, cwd=ROOT, env=clean_environ(), check=False).returncode:
            raise RuntimeError("tests failed")

    def _make(self, environment: Path, target: str | Path) -> None:
        ran("make", f"VENV={environment}", target, PYTHON=str(self.python))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make pythons", description="Try every Python here.")
    parser.add_argument("--only", nargs="+", choices=VERSIONS, default=VERSIONS, metavar="VERSION")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="paths; none: no tests")
    return parser.parse_args()


def main() -> None:
    """Check every Python that is found; exits with 1 if one of them fails."""
    options = read_options()
    found = {version: find_python(version) for version in options.only}
    failed = []
    with tempfile.TemporaryDirectory(prefix="pythons-") as name:
        release = build_release(Path(name, "release"))
        for version, python in found.items():
            if python is None:
                print(f"Python {version}: not found on this machine")
                continue
            print(f"{ran(python, '--version').strip()}: {python}")
            check = Check(version, python, release, Path(name, version))
            try:
                check.from_lock_file()
                check.from_wheels()
                if options.tests:
                    check.by_tests(options.tests)
            except (RuntimeError, AssertionError) as error:
                failed.append(version)
                print(f"  FAILED: {error}")
            sys.stdout.flush()
    tried = [version for version, python in found.items() if python and version not in failed]
    missing = [version for version, python in found.items() if not python]
    print(
        f"Works on: {', '.join(tried) or 'none'}. Failed on: {', '.join(failed) or 'none'}."
        f" Not found: {', '.join(missing) or 'none'}."
    )
    sys.exit(bool(failed) or not tried)


if __name__ == "__main__":
    main()
