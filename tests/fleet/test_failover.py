"""The short form of ``make fleet``'s failover: real servers, a real standby, real load."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fleet.failover import Failover, fail_over
from fleet.house import Process
from replicas import replicas


@pytest.mark.long
def test_a_standby_that_is_promoted_goes_on_where_the_killed_primary_was(tmp_path: Path) -> None:
    asked = Failover("killed", 1.0, standby_first=True, deliver=1, rate=100, urls=10)
    result = asyncio.run(fail_over(asked, tmp_path))
    print(result.text)
    assert result.wrong == []
    assert result.again_s < 99.0  # `make fleet` judges the time.


async def _start_beside_a_standby(folder: Path) -> None:
    async with replicas() as pair:
        await asyncio.to_thread(pair.primary.kill)
        server = Process(pair.dsn(standby_first=True), folder, "both", 0)
        starting = asyncio.create_task(server.start())
        try:
            log = folder / "both-0.log"
            async with asyncio.timeout(60):
                while not log.exists() or "is a standby or in recovery" not in log.read_text():
                    await asyncio.sleep(0.05)
            assert not starting.done() or server.up
            await pair.promote()
            await asyncio.wait_for(starting, 60)
            line = server.line()
            async with asyncio.timeout(60):
                while (
                    await line.ask("POST", "/v1/events", {"type": "a", "data": 1})
                ).status != 202:
                    await asyncio.sleep(0.1)
            line.close()
        finally:
            await server.end()


@pytest.mark.long
def test_a_server_that_starts_before_the_promotion_goes_on_after_it(tmp_path: Path) -> None:
    asyncio.run(_start_beside_a_standby(tmp_path))
