"""How much more 2 and 4 delivering processes do than one, and what a delivery costs the database.

A backlog is published first; the time counts from the first arrival to the last. Receiver, load and
database share the cores with what is measured, so that with two cores the ceiling lies below two.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import NamedTuple

from fleet.house import Process, Receiver, fetch
from postgres import Server

EVENTS = 4_000
URLS = 50
WITHIN_S = 120

_WAL = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"
_COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"


class Figures(NamedTuple):
    """Of one run."""

    processes: int
    per_second: float
    wal_bytes: float  # per delivery, publishing included
    commits: float  # per delivery, publishing included


async def measure(server: Server, folder: Path, processes: int) -> Figures:
    dsn = await server.make()
    (folder / "data").mkdir(mode=0o700, parents=True)
    receiver = Receiver(delay_s=0)
    api = Process(dsn, folder, "api", 0)
    crew = [Process(dsn, folder, "deliver", n) for n in range(processes)]
    async with receiver.listening():
        try:
            await api.start()
            line = api.line()
            for number in range(URLS):
                url = f"http://127.0.0.1:{receiver.port}/h/{number}"
                await line.ask("POST", "/v1/subscriptions", {"url": url, "types": [f"t.{number}"]})
            wal, commits = (await fetch(dsn, _WAL))[0][0], (await fetch(dsn, _COMMITS))[0][0]
            for start in range(0, EVENTS, 100):
                batch = [
                    {"id": f"e-{n}", "type": f"t.{n % URLS}", "data": {"n": n}}
                    for n in range(start, start + 100)
                ]
                assert (await line.ask("POST", "/v1/events", batch)).status == 202
            await asyncio.gather(*(it.start() for it in crew))
            async with asyncio.timeout(WITHIN_S):
                while len(receiver.arrivals) < EVENTS or await _left(dsn):
                    await asyncio.sleep(0.1)
            wal = (await fetch(dsn, _WAL))[0][0] - wal
            commits = (await fetch(dsn, _COMMITS))[0][0] - commits
        finally:
            await asyncio.gather(*(it.end() for it in (api, *crew) if it.process is not None))
    times = sorted(at for arrived in receiver.arrivals.values() for at in arrived)
    return Figures(processes, len(times) / (times[-1] - times[0]), wal / EVENTS, commits / EVENTS)


async def _left(dsn: str) -> int:
    return int((await fetch(dsn, "SELECT count(*) FROM pending"))[0][0])


async def compare(server: Server, folder: Path) -> None:
    """Print the ratios."""
    first: Figures | None = None
    for processes in (1, 2, 4):
        found = await measure(server, folder / f"of-{processes}", processes)
        first = first or found
        print(
            f"  {processes} delivering: {found.per_second / first.per_second:.2f} x"
            f" ({found.per_second:,.0f}/s), {found.wal_bytes:,.0f} bytes of WAL and"
            f" {found.commits:.3f} commits per delivery"
        )
    print(f"  {os.cpu_count()} cores carry processes, receiver, load and PostgreSQL together.")
