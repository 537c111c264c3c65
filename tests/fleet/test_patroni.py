"""The page on Patroni and etcd: its lines are run, and the leader is killed under load."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any, cast

import asyncpg
import pytest

from fleet import patroni
from fleet.faults import LOST, Scale
from fleet.house import fetch
from fleet.run import Story
from postgres import Server

BEFORE_S, BETWEEN_S = 3.0, 3.0  # of load
SCALE = Scale(1, 2, 100, 10, 20, 0, 0, 0, 0, 0)


class _Strike:
    """The leader is killed; it comes back as a standby; the roles are changed on purpose."""

    def __init__(self, cluster: patroni.Cluster, dsn: str) -> None:
        self._cluster, self._dsn = cluster, dsn
        self.fired: Counter[str] = Counter()
        self.away_s = 0.0
        self.writable_at: list[float] = []

    async def run(self) -> None:
        cluster = self._cluster
        back, switchover = patroni.blocks("Try a failover")
        await asyncio.sleep(BEFORE_S)
        began = time.time()
        await asyncio.to_thread(cluster.kill, "db1")
        self.writable_at.append(await self._writable("db2"))
        self.away_s = self.writable_at[0] - began
        await asyncio.sleep(BETWEEN_S)
        await asyncio.to_thread(cluster.follow, [back], machine="db1")
        await asyncio.to_thread(cluster.wait_for, {"db1": "Sync Standby", "db2": "Leader"})
        switching = asyncio.create_task(asyncio.to_thread(cluster.follow, [switchover]))
        self.writable_at.append(await self._writable("db1"))
        await switching
        await asyncio.to_thread(cluster.wait_for, {"db1": "Leader", "db2": "Sync Standby"})
        await asyncio.sleep(BETWEEN_S)

    async def _writable(self, machine: str) -> float:
        """When this server was promoted, or soon after."""
        host, port = self._cluster.address_of(machine)
        async with asyncio.timeout(patroni.WITHIN_S):
            while True:
                try:
                    one = await asyncpg.connect(self._dsn, host=host, port=port, timeout=2)
                    waits = await one.fetchval("SELECT pg_is_in_recovery()")
                    one.terminate()
                    if not waits:
                        return time.time()
                except (*LOST, TimeoutError):
                    pass
                await asyncio.sleep(0.05)


async def _follow_the_page(folder: Path) -> None:
    with patroni.cluster() as cluster:
        address = await asyncio.to_thread(cluster.set_up)
        story = Story(SCALE, cast("Server", None), address, folder, seed=1)
        story.dsn = f"{address}?target_session_attrs=read-write"  # as the driver of the audit reads
        strike = _Strike(cluster, address)
        story.faults = cast("Any", strike)
        count = await story.run()

        again = [
            min((it.sent - at for it in story.facts.arrivals if it.sent > at), default=99.0)
            for at in strike.writable_at
        ]
        rows = await fetch(story.dsn, "SELECT key FROM event")
        absent = story.facts.acked.keys() - {row[0] for row in rows}
        verdict = count.verdict
        print(
            f"acknowledged {verdict.acknowledged}, missing {verdict.lost}, absent {len(absent)},"
            f" sent twice {verdict.duplicated} (in flight when a lease ended"
            f" {verdict.in_flight_at_faults}); promoted {strike.away_s:.1f} s after the kill;"
            f" sending again after {again[0]:.2f} and {again[1]:.2f} s"
        )
        assert [it for it in count.wrong if it != "a stall"] == []
        assert not absent
        assert max(again) < 99.0


@pytest.mark.long
def test_patroni_promotes_the_standby_and_nothing_acknowledged_is_missing(tmp_path: Path) -> None:
    if reason := patroni.missing():
        pytest.skip(f"{reason}: the page on Patroni was NOT followed")
    asyncio.run(_follow_the_page(tmp_path))
