"""The programs that check the files in ``deploy``, and how they are run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/go/bin"))


def find(program: str) -> str | None:
    return shutil.which(program, path=_PATH)


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skip the test where one of these programs is not installed."""
    missing = [it for it in programs if find(it) is None]
    reason = f"{', '.join(missing)}: not installed on this machine"
    return pytest.mark.skipif(bool(missing), reason=reason)


def output_of(*argv: str | Path, cwd: Path = ROOT, timeout_s: float = 300) -> str:
    """What a program prints; fails with that text if the program fails."""
    program = find(str(argv[0])) or str(argv[0])
    done = subprocess.run(
        [program, *map(str, argv[1:])],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout_s,
        check=False,
        text=True,
    )
    assert done.returncode == 0, f"{' '.join(map(str, argv))} failed:\n{done.stdout}"
    return done.stdout


@contextlib.asynccontextmanager
async def started(*argv: str | Path, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program that runs for a while and writes what it says to ``log``."""
    program = find(str(argv[0])) or str(argv[0])
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            program, *map(str, argv[1:]), stdout=out, stderr=asyncio.subprocess.STDOUT
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def listening(port: int, process: asyncio.subprocess.Process, log: Path) -> None:
    """Until a program accepts connections."""
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        assert process.returncode is None, log.read_text()
        await asyncio.sleep(0.05)
