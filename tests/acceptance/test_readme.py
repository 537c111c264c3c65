"""The README's first delivery, line by line."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import pytest

from acceptance.running import KEY, Receiver, Server

README = Path(__file__).resolve().parents[2] / "README.md"


def readme_lines() -> str:
    found = re.search(r"<!-- tested:.*?-->\n```sh\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    return found.group(1)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the README's lines need curl")
async def test_the_lines_of_the_readme_deliver_an_event(tmp_path: Path) -> None:
    server = Server(tmp_path / "homing-data")
    async with Receiver(tmp_path / "arrived", delay_s=0.0).listening() as receiver:
        await server.start()
        (tmp_path / "homing-data" / "admin.key").write_text(KEY)
        script = (
            readme_lines()
            .replace("127.0.0.1:8700", f"127.0.0.1:{server.port}")
            .replace("http://127.0.0.1:9000/hook", receiver.url)
        )
        shell = await asyncio.create_subprocess_exec(
            "bash", "-euc", script, cwd=tmp_path, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await shell.communicate()
        assert shell.returncode == 0
        assert b'"deliveries":1' in output.replace(b" ", b"")
        while "invoice-17-paid" not in receiver.arrivals:
            await asyncio.sleep(0.02)
        assert await server.terminate() == 0
