"""The whole life of a URL through the API of a real server, on both stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acceptance.running import Receiver, Reply, Server
from postgres import Server as Postgres

SETTINGS = """
[health]
rate_after_attempts = 5
consecutive_freeze = 8
freeze_after_ms = 1000
probe_every_ms = 1000
"""
PATIENCE_S = 30.0


class Api:
    """What the story needs of the API."""

    def __init__(self, server: Server) -> None:
        self._line = server.line()

    async def ask(self, method: str, path: str, document: Any = None) -> Any:
        reply: Reply = await self._line.ask(method, path, document)
        assert reply.status < 300, (path, reply.status, reply.body)
        return reply.json if reply.body else None

    async def publish(self, count: int) -> None:
        for _ in range(count):
            await self.ask("POST", "/v1/events", {"type": "life.test", "data": 1})

    async def until(self, path: str, what: Callable[[Any], bool]) -> Any:
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE_S
        while True:
            document = await self.ask("GET", path)
            if what(document):
                return document
            assert loop.time() < end, document
            await asyncio.sleep(0.03)


@pytest.fixture(params=["sqlite-file", "postgres"])
def postgres_or_not(request: pytest.FixtureRequest) -> Postgres | None:
    return request.getfixturevalue("postgres") if request.param == "postgres" else None


async def test_enabled_disabled_probed_enabled_disabled_frozen_enabled_by_api(
    postgres_or_not: Postgres | None, tmp_path: Path
) -> None:
    settings = tmp_path / "homing.toml"
    settings.write_text(SETTINGS)
    server = Server(tmp_path / "data", environ={"HOMING_CONFIG": str(settings)})
    if postgres_or_not is not None:
        server.environ["HOMING_DATABASE_URL"] = await postgres_or_not.make()
    async with Receiver(tmp_path / "arrived", delay_s=0.0).listening() as receiver:
        await server.start()
        try:
            await _live(Api(server), receiver)
        finally:
            assert await server.terminate() == 0


async def _live(api: Api, receiver: Receiver) -> None:
    made = await api.ask("POST", "/v1/subscriptions", {"url": receiver.url, "types": ["life.*"]})
    path = f"/v1/endpoints/{made['endpoint']}"
    assert (await api.ask("GET", path))["state"] == "enabled"

    receiver.status = 500
    await api.publish(8)
    await api.until(path, lambda it: it["state"] == "disabled")
    receiver.status = 200  # the next probe gets through
    await api.until(path, lambda it: it["state"] == "enabled")

    receiver.status = 503
    await api.publish(8)
    await api.until(path, lambda it: it["state"] == "disabled")
    await api.until(path, lambda it: it["state"] == "frozen")
    seen = len(receiver.file.read_text().split())
    receiver.status = 200
    await asyncio.sleep(1.5)  # longer than a probe's period: a frozen one gets none
    assert len(receiver.file.read_text().split()) == seen

    await api.ask("POST", path + "/enable")
    document = await api.ask("GET", path)
    assert document["state"] == "enabled"
    states = [change["after"] for change in document["transitions"]]
    assert states == ["enabled", "frozen", "disabled", "enabled", "disabled"]
    await api.publish(1)
    await api.until("/v1/ledger", lambda it: any(one["delivered"] >= 2 for one in it["items"]))
    for ledger in (await api.ask("GET", "/v1/ledger"))["items"]:
        assert ledger["balanced"]
