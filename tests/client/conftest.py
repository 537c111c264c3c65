"""A real server process that the tests of the client share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.running import Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """``homing serve`` as a process of its own, for tests that leave it running."""
    data: Path = tmp_path_factory.mktemp("homing")
    server = Server(data)
    with asyncio.Runner() as runner:
        runner.run(server.start())
        yield server
        assert runner.run(server.terminate()) == 0
