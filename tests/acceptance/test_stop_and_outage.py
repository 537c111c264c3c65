"""SIGTERM under load, and a database that goes away and comes back under a running server.

Promised: what-homing-promises.md#nothing-is-lost.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from acceptance.killing import Publishers
from acceptance.running import Receiver, Server
from postgres import Server as Postgres


@pytest.mark.long
async def test_sigterm_under_load_loses_nothing_and_sends_nothing_twice(tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    sent = tmp_path / "acknowledged"
    sent.touch()
    async with Receiver(tmp_path / "arrived").listening() as receiver:
        await server.start()
        document = {"url": receiver.url, "types": ["*"]}
        made = await server.line().ask("POST", "/v1/subscriptions", document)
        assert made.status == 201, made.body
        publishers = Publishers(server, sent)
        publishers.up.set()
        tasks = [asyncio.create_task(publishers.publish_for_ever()) for _ in range(4)]
        for _ in range(4):
            while not (receiver.in_flight and publishers.unanswered):
                await asyncio.sleep(0)
            assert await server.terminate() == 0
            await server.start()
            await asyncio.sleep(0.2)
        publishers.stopping = True
        await asyncio.gather(*tasks)
        wanted = set(sent.read_text().split())
        while wanted - set(receiver.arrivals):
            await asyncio.sleep(0.02)
        assert await server.terminate() == 0
    assert {key: len(times) for key, times in receiver.arrivals.items() if len(times) > 1} == {}
    assert len(wanted) > 50


async def test_a_database_that_is_gone_gives_503_and_all_works_again_without_a_restart(
    postgres: Postgres, tmp_path: Path
) -> None:
    server = Server(tmp_path / "data")
    server.environ["HOMING_DATABASE_URL"] = await postgres.make()
    async with Receiver(tmp_path / "arrived", delay_s=0.3).listening() as receiver:
        await server.start()
        line = server.line()
        document = {"url": receiver.url, "types": ["*"]}
        assert (await line.ask("POST", "/v1/subscriptions", document)).status == 201
        event = {"type": "a.b", "id": "before", "data": 1}
        assert (await line.ask("POST", "/v1/events", event)).status == 202
        while not receiver.in_flight:
            await asyncio.sleep(0.01)
        await postgres.halt()
        try:
            refused = await line.ask("POST", "/v1/events", {**event, "id": "during"})
            assert refused.status == 503
            assert refused.headers["retry-after"]
            assert refused.json["code"] == "store_unavailable"
            assert (await line.ask("GET", "/readyz")).status == 503
        finally:
            await postgres.resume()
        while (await line.ask("POST", "/v1/events", {**event, "id": "during"})).status != 202:
            await asyncio.sleep(0.1)
        while set(receiver.arrivals) != {"before", "during"}:
            await asyncio.sleep(0.02)
        while (await line.ask("GET", "/v1/ledger")).json["items"][0]["pending"]:
            await asyncio.sleep(0.05)
        assert (await line.ask("GET", "/readyz")).status == 200
        assert await server.terminate() == 0
    assert {key: len(times) for key, times in receiver.arrivals.items()} == {
        "before": 1,
        "during": 1,
    }
