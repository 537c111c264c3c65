"""The tutorial about events that are read: its lines, and the command that shows events."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

from acceptance.running import KEY, Server
from homing_client import AsyncHoming

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/tutorial/receive-without-a-public-url.md"
BIN = Path(sys.executable).parent


def environ(server: Server) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOMING_SERVER": f"http://127.0.0.1:{server.port}",
        "HOMING_ADMIN_KEY": KEY,
    }


@pytest.mark.long
@pytest.mark.skipif(shutil.which("curl") is None, reason="the tutorial's lines need curl")
async def test_the_lines_of_the_tutorial_do_what_it_says(tmp_path: Path) -> None:
    server = Server(tmp_path / "homing-data")
    await server.start()
    (tmp_path / "homing-data" / "admin.key").write_text(KEY)
    text = re.sub(r"\b8700\b", str(server.port), PAGE.read_text())
    lines = re.findall(r"<!-- tested:.*?-->\n```sh\n(.*?)```", text, re.DOTALL)
    assert len(lines) == 4
    shell = await asyncio.create_subprocess_exec(
        "bash",
        "-euc",
        "\n".join(lines),
        cwd=tmp_path,
        env=environ(server),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await shell.communicate()
    shown = output.decode()
    assert shell.returncode == 0, shown
    for n in (18, 19, 20):
        assert f"invoice.paid {{'invoice': {n}}}" in shown
    assert '"id": "invoice-18-paid"' in shown  # in curl's page
    assert '"name":"shell"' in shown
    assert "report" in shown.rpartition("}")[2]  # in the list of readers
    assert await server.terminate() == 0


async def test_listening_without_a_url_shows_events_and_leaves_nothing(tmp_path: Path) -> None:
    server = Server(tmp_path)
    await server.start()
    listener = await asyncio.create_subprocess_exec(
        BIN / "homing",
        *("listen", "--pull", "invoice.*"),
        env=environ(server),
        stdout=asyncio.subprocess.PIPE,
    )
    assert listener.stdout is not None
    async with AsyncHoming(f"http://127.0.0.1:{server.port}", KEY) as homing, asyncio.timeout(60):
        assert b"Reading sub_" in await listener.stdout.readline()
        await homing.publish("order.paid", {"n": 16})
        await homing.publish("invoice.paid", {"n": 17}, id="invoice-17-paid")
        while b"invoice-17-paid" not in await listener.stdout.readline():
            pass
        assert b'{"n":17}' in await listener.stdout.readline()
        listener.send_signal(signal.SIGINT)
        assert b"order.paid" not in await listener.stdout.read()
        assert await listener.wait() == 0
        assert [it async for it in homing.subscriptions()] == []
    assert await server.terminate() == 0
