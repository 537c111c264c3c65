"""Virtual environments, and a server in one of them that a client in another one uses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
KEY = "hk_test-of-the-wheels"


def clean_environ() -> dict[str, str]:
    """The environment without what would let a program import this checkout."""
    ours = ("PYTHON", "HOMING_", "VIRTUAL_ENV", "MAKE", "MFLAGS")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def ran(*command: str | Path, cwd: Path = ROOT, **environ: str) -> str:
    """What the command printed; raises RuntimeError with its output if it fails."""
    done = subprocess.run(
        [str(it) for it in command],
        cwd=cwd,
        env=clean_environ() | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(str(it) for it in command)}:\n{done.stdout}")
    return done.stdout


def build_release(out: Path, *arguments: str | Path) -> dict[str, Path]:
    """The files of a release by the last part of their names, for example ``client.whl``."""
    ran(sys.executable, ROOT / "tools" / "release.py", out, *arguments)
    kinds = {"homing_client-": "client", "homing-": "server", "SHA256SUMS": "sums"}
    endings = {".whl": ".whl", ".tar.gz": ".tar.gz", ".cdx.json": ".cdx.json", "SHA256SUMS": ""}
    found = {}
    for file in out.iterdir():
        kind = next(name for start, name in kinds.items() if file.name.startswith(start))
        ending = next(short for end, short in endings.items() if file.name.endswith(end))
        found[kind + ending] = file
    return found


@contextmanager
def serving(environment: Path, place: Path) -> Iterator[tuple[str, Path]]:
    """A server from this environment: its URL, and the SQLite file whose outbox it relays."""
    homing, shop = environment / "bin" / "homing", place / "shop.db"
    place.mkdir(parents=True)
    ran(homing, "outbox", "install", "--database", f"sqlite:{shop}", cwd=place)
    more = {
        "HOMING_ADMIN_KEY": KEY,
        "HOMING_OUTBOX_URL": f"sqlite:{shop}",
        "HOMING_LOG_LEVEL": "error",
    }
    options = ("--listen", "127.0.0.1:0", "--data", place / "data", "--allow-loopback")
    process = subprocess.Popen(
        [str(it) for it in (homing, "serve", *options)],
        cwd=place,
        env=clean_environ() | more,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        try:
            first = process.stdout.readline().split()
            assert first, "the server ended before it was ready"
            yield first[-1], shop
        finally:
            process.terminate()
    assert process.returncode == 0


def round_trip(client: Path, server: Path, place: Path) -> dict[str, Any]:
    """Publish and receive with the client of one environment and the server of another."""
    program = Path(__file__).with_name("round_trip.py")
    with serving(server, place) as (url, shop):
        said = ran(client / "bin" / "python", "-I", program, url, KEY, shop, cwd=place)
    result: dict[str, Any] = json.loads(said.splitlines()[-1])
    return result
