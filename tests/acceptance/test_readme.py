"""The README's first delivery, line by line."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from pathlib import Path

import pytest

from acceptance.running import KEY, Server
from net.receiver import a_free_port

README = Path(__file__).resolve().parents[2] / "README.md"


def blocks(server_port: int, receiver_port: int) -> list[str]:
    """What the reader types, for a server and a receiver at other ports."""
    homing = Path(sys.executable).with_name("homing")
    text = re.sub(r"\b8700\b", str(server_port), README.read_text())
    text = re.sub(r"\b9000\b", str(receiver_port), text)
    text = text.replace(
        ".venv/bin/homing deliveries",
        f"HOMING_SERVER=http://127.0.0.1:{server_port} {homing} deliveries",
    )
    return re.findall(r"<!-- tested:.*?-->\n```(?:sh)?\n(.*?)```", text, re.DOTALL)


async def typed(script: str, place: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        "bash", "-euc", script, cwd=place, stdout=asyncio.subprocess.PIPE
    )


async def output(script: str, place: Path) -> bytes:
    shell = await typed(script, place)
    told, _ = await shell.communicate()
    assert shell.returncode == 0
    return told


async def listening(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return


@pytest.mark.skipif(shutil.which("curl") is None, reason="the README's lines need curl")
async def test_the_lines_of_the_readme_do_what_it_says(tmp_path: Path) -> None:
    server, port = Server(tmp_path / "homing-data"), a_free_port()
    receive, subscribe, publish_another = blocks(server.port, port)
    await server.start()
    (tmp_path / "homing-data" / "admin.key").write_text(KEY)
    receiver = await typed(f"exec {receive}", tmp_path)
    await listening(port)
    assert b'"deliveries":1,"duplicate":false' in await output(subscribe, tmp_path)
    assert receiver.stdout is not None
    async with asyncio.timeout(30):
        while b"invoice-17-paid" not in await receiver.stdout.readline():
            pass
    receiver.terminate()
    await receiver.wait()

    key = subscribe.splitlines()[0]
    told = await output(f"{key}\n{publish_another}", tmp_path)
    assert b'"deliveries":1,"duplicate":false' in told
    assert b"Waiting: 1 attempt so far, without success; retry 1 of 11 is due at" in told
    assert b"refused" in told
    assert b'"duplicate":true' in await output(f"{key}\n{publish_another}", tmp_path)
    assert await server.terminate() == 0
