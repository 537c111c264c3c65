"""What a fleet does on this machine: how soon work starts elsewhere, how much more processes do.

First a quiet fleet: how long from the start of a publish at one process to the arrival from the one
that owns the bucket. Then a backlog and 1, 2 and 4 delivering processes: deliveries a second, and
what one costs the database in commits and bytes of WAL, publishing included. At last the same with
every statement logged, to count them: not every PostgreSQL brings ``pg_stat_statements``. Receiver,
load and database share the cores with what is measured.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import NamedTuple

from fleet.house import Process, Receiver, fetch
from postgres import Server

EVENTS = 6_000
URLS = 50
QUIET_EVENTS = 300
QUIET_PAUSE_S = 0.02
NEAR_MS = 50  # what the median may be
WITHIN_S = 180

_WAL = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"
_COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"


class Figures(NamedTuple):
    """Of one run."""

    processes: int
    per_second: float
    wal_bytes: float  # per delivery, publishing included
    commits: float


async def _read(dsn: str) -> tuple[int, int]:
    return (await fetch(dsn, _WAL))[0][0], (await fetch(dsn, _COMMITS))[0][0]


async def _subscribe(api: Process, receiver: Receiver) -> None:
    line = api.line()
    for number in range(URLS):
        url = f"http://127.0.0.1:{receiver.port}/h/{number}"
        made = await line.ask("POST", "/v1/subscriptions", {"url": url, "types": [f"t.{number}"]})
        assert made.status == 201, made.body
    line.close()


async def _until_done(dsn: str, receiver: Receiver, events: int) -> None:
    async with asyncio.timeout(WITHIN_S):
        while (
            len(receiver.keys) < events or (await fetch(dsn, "SELECT count(*) FROM pending"))[0][0]
        ):
            await asyncio.sleep(0.1)


async def median_ms(server: Server, folder: Path) -> float:
    """From asking one process to publish until another, which owns the bucket, has delivered."""
    dsn, receiver = await server.make(), Receiver(delay_s=0)
    crew = [Process(dsn, folder, "api", 0), Process(dsn, folder, "deliver", 0)]
    asked: dict[str, float] = {}
    async with receiver.listening():
        try:
            await asyncio.gather(*(it.start() for it in crew))
            await _subscribe(crew[0], receiver)
            line = crew[0].line()
            for n in range(QUIET_EVENTS):
                asked[f"e-{n}"] = time.time()
                event = {"id": f"e-{n}", "type": f"t.{n % URLS}", "data": {"n": n}}
                assert (await line.ask("POST", "/v1/events", event)).status == 202
                await asyncio.sleep(QUIET_PAUSE_S)
            await _until_done(dsn, receiver, QUIET_EVENTS)
        finally:
            await asyncio.gather(*(it.end() for it in crew if it.process is not None))
    waits = sorted(it.at - asked[it.key] for it in receiver.arrivals)
    return 1000 * waits[len(waits) // 2]


async def measure(server: Server, folder: Path, processes: int) -> Figures:
    dsn, receiver = await server.make(), Receiver(delay_s=0)
    api = Process(dsn, folder, "api", 0)
    crew = [Process(dsn, folder, "deliver", n) for n in range(processes)]
    async with receiver.listening():
        try:
            await api.start()
            await _subscribe(api, receiver)
            before = await _read(dsn)
            line = api.line()
            for start in range(0, EVENTS, 100):
                batch = [
                    {"id": f"e-{n}", "type": f"t.{n % URLS}", "data": {"n": n}}
                    for n in range(start, start + 100)
                ]
                assert (await line.ask("POST", "/v1/events", batch)).status == 202
            await asyncio.gather(*(it.start() for it in crew))
            await _until_done(dsn, receiver, EVENTS)
            after = await _read(dsn)
        finally:
            await asyncio.gather(*(it.end() for it in (api, *crew) if it.process is not None))
    times = sorted(it.at for it in receiver.arrivals)
    wal, commits = (now - then for now, then in zip(after, before, strict=True))
    per_second = len(times) / (times[-1] - times[0])
    return Figures(processes, per_second, wal / EVENTS, commits / EVENTS)


async def compare(server: Server, folder: Path) -> bool:
    """Print it all; whether the median is as promised."""
    near = await median_ms(server, folder / "quiet")
    print(
        f"  from publish to arrival by another process: {near:.1f} ms in the median (<= {NEAR_MS})"
    )
    first: Figures | None = None
    for processes in (1, 2, 4):
        found = await measure(server, folder / f"of-{processes}", processes)
        first = first or found
        print(
            f"  {processes} delivering: {found.per_second / first.per_second:.2f} x"
            f" ({found.per_second:,.0f}/s); per delivery {found.commits:.3f} commits and"
            f" {found.wal_bytes:,.0f} bytes of WAL"
        )
    async with server.counting() as statements:
        await measure(server, folder / "counted", 1)
    print(f"  {statements.count / EVENTS:.3f} statements per delivery, with 1 delivering")
    print(
        f"  {os.cpu_count()} cores carry processes, receiver, load and PostgreSQL together"
        f" (load {os.getloadavg()[0]:.1f})."
    )
    return near <= NEAR_MS
