"""``make fleet``: processes are killed and stopped, the database is restarted, and all is counted.

Prints what was acknowledged, and of that lost, unexpected and doubled; whether two processes ever
held one bucket; whether a late settle was accepted; probes over the limit; the longest stall.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import asyncpg

from fleet.house import AUDIT, LEASE_MS, PROBE_EVERY_MS, Process, Receiver, fetch, log_lines
from fleet.measure import compare
from postgres import Server

_LOST = (OSError, EOFError, asyncpg.PostgresError, asyncpg.InterfaceError)
DEAD_EVENTS = 150
DRAIN_S = 90


@dataclass(frozen=True)
class Scale:
    """How large a run is."""

    api: int
    deliver: int
    rate: int
    seconds: float
    urls: int
    kills: int
    stops: int
    restarts: int
    backends: int


SHORT = Scale(2, 2, 60, 14, 20, kills=2, stops=1, restarts=1, backends=5)
LONG = Scale(3, 4, 500, 60, 200, kills=20, stops=20, restarts=20, backends=200)


@dataclass
class Count:
    """What is printed."""

    acknowledged: int = 0
    lost: int = 0
    unexpected: int = 0
    duplicated: int = 0
    in_flight_at_faults: int = 0
    two_owners: int = 0
    late_settles_accepted: int = 0
    times_lost: int = 0  # a process found some of its buckets gone
    probes_over_the_limit: int = 0
    longest_stall_s: float = 0.0
    median_ms: float = 0.0
    restarts_needed: int = 0
    faults: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def good(self) -> bool:
        wrong = (self.lost, self.unexpected, self.two_owners, self.late_settles_accepted)
        return not any((*wrong, self.probes_over_the_limit, self.restarts_needed))


class Story:
    """One run."""

    def __init__(self, scale: Scale, server: Server, dsn: str, folder: Path, seed: int) -> None:
        self.scale, self.server, self.dsn, self.folder = scale, server, dsn, folder
        self.chance = random.Random(seed)
        self.receiver = Receiver()
        self.api = [Process(dsn, folder, "api", n) for n in range(scale.api)]
        self.deliver = [Process(dsn, folder, "deliver", n) for n in range(scale.deliver)]
        self.count = Count()
        self.acked: dict[str, float] = {}
        self.sent: set[str] = set()
        self.restarting = asyncio.Lock()
        self.faults_over = False

    @property
    def all(self) -> list[Process]:
        return [*self.api, *self.deliver]

    async def run(self) -> Count:
        async with self.receiver.listening():
            try:
                await self.api[0].start()
                await asyncio.gather(*(it.start() for it in self.all[1:]))
                await self._prepare()
                faults = asyncio.create_task(self._faults())
                await self._publish()
                await faults
                await self._drain()
                await self._settle_counts()
            finally:
                await asyncio.gather(*(it.end() for it in self.all if it.process is not None))
        self._count_owners()
        return self.count

    async def _prepare(self) -> None:
        connection = await asyncpg.connect(self.dsn)
        await connection.execute(AUDIT)
        await connection.close()
        line = self.api[0].line()
        base = f"http://127.0.0.1:{self.receiver.port}"
        for number in range(self.scale.urls):
            made = await line.ask(
                "POST", "/v1/subscriptions", {"url": f"{base}/h/{number}", "types": [f"t.{number}"]}
            )
            assert made.status == 201, made.body
        made = await line.ask(
            "POST", "/v1/subscriptions", {"url": f"{base}/dead", "types": ["dead"]}
        )
        assert made.status == 201, made.body
        for _ in range(DEAD_EVENTS // 50):
            await line.ask("POST", "/v1/events", [{"type": "dead", "data": 1}] * 50)
        line.close()

    # --- publishing --------------------------------------------------------------------------

    async def _publish(self) -> None:
        ends_at = time.monotonic() + self.scale.seconds
        writers = 8
        tasks = [self._writer(n, ends_at, self.scale.rate / writers) for n in range(writers)]
        await asyncio.gather(*tasks)

    async def _writer(self, number: int, ends_at: float, rate: float) -> None:
        lines: dict[int, Any] = {}
        made = 0
        started = time.monotonic()
        while time.monotonic() < ends_at or not self.faults_over:
            made += 1
            key = f"e-{number}-{made}"
            kind = f"t.{self.chance.randrange(self.scale.urls)}"
            await self._until_accepted(lines, {"id": key, "type": kind, "data": {"n": made}})
            await asyncio.sleep(max(0.0, started + made / rate - time.monotonic()))
        for line in lines.values():
            line.close()

    async def _until_accepted(self, lines: dict[int, Any], event: dict[str, Any]) -> None:
        """The same id again, at another process, until somebody has said 202."""
        self.sent.add(event["id"])
        while True:
            api = self.chance.choice(self.api)
            line = lines.setdefault(api.number, api.line())
            try:
                async with asyncio.timeout(4):
                    reply = await line.ask("POST", "/v1/events", event)
                if reply.status == 202:
                    self.acked[event["id"]] = time.time()
                    return
            except (*_LOST, TimeoutError):
                line.close()
                lines.pop(api.number, None)
            await asyncio.sleep(0.05)

    # --- faults ------------------------------------------------------------------------------

    async def _faults(self) -> None:
        scale = self.scale
        kinds: list[Callable[[], Coroutine[Any, Any, None]]] = [
            *([self._kill] * scale.kills),
            *([self._stop] * scale.stops),
            *([self._restart] * scale.restarts),
            *([self._cut] * (scale.backends // 5)),
        ]
        self.chance.shuffle(kinds)
        await asyncio.sleep(1)
        pause = (scale.seconds - 2) / len(kinds)
        tasks = []
        for fault in kinds:
            self.count.in_flight_at_faults += self.receiver.in_flight
            tasks.append(asyncio.create_task(fault()))
            await asyncio.sleep(pause)
        await asyncio.gather(*tasks)
        self.faults_over = True

    def _victim(self) -> Process | None:
        up = [it for it in self.all if it.up]
        return self.chance.choice(up) if len(up) > 2 else None

    async def _kill(self) -> None:
        while (victim := self._victim()) is None:
            await asyncio.sleep(0.1)
        self.count.faults["SIGKILL"] += 1
        victim.signal(signal.SIGKILL)
        victim.stopped = True
        assert victim.process is not None
        await victim.process.wait()
        await victim.start()

    async def _stop(self) -> None:
        while (victim := self._victim()) is None:
            await asyncio.sleep(0.1)
        self.count.faults["SIGSTOP"] += 1
        victim.stopped = True
        victim.signal(signal.SIGSTOP)
        await asyncio.sleep(LEASE_MS * 1.5 / 1000)
        victim.signal(signal.SIGCONT)
        victim.stopped = False

    async def _restart(self) -> None:
        """As after a crash: the server is not asked to finish anything."""
        async with self.restarting:
            self.count.faults["restart of PostgreSQL"] += 1
            await self.server.crash()

    async def _cut(self) -> None:
        text = (
            "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity"
            " WHERE application_name LIKE 'homing %' ORDER BY random() LIMIT 5) AS chosen"
        )
        with contextlib.suppress(*_LOST, TimeoutError):
            self.count.faults["killed backend"] += len(await fetch(self.dsn, text))

    # --- counting ----------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Until everything acknowledged has arrived and is settled."""
        ends_at = time.monotonic() + DRAIN_S
        text = (
            "SELECT count(*) FROM pending p JOIN endpoint e ON e.id = p.endpoint_id"
            " WHERE e.url NOT LIKE '%/dead'"
        )
        while time.monotonic() < ends_at:
            with contextlib.suppress(*_LOST, TimeoutError):
                left = (await fetch(self.dsn, text))[0][0]
                if left == 0 and all(key in self.receiver.arrivals for key in self.acked):
                    return
            await asyncio.sleep(0.5)

    async def _settle_counts(self) -> None:
        count, arrivals = self.count, self.receiver.arrivals
        count.acknowledged = len(self.acked)
        count.lost = sum(key not in arrivals for key in self.acked)
        count.unexpected = sum(key not in self.sent for key in arrivals)
        count.duplicated = sum(len(times) - 1 for times in arrivals.values())
        waits = sorted(arrivals[key][0] - at for key, at in self.acked.items() if key in arrivals)
        count.longest_stall_s = waits[-1] if waits else 0.0
        count.median_ms = 1000 * waits[len(waits) // 2] if waits else 0.0
        count.late_settles_accepted = (await fetch(self.dsn, "SELECT count(*) FROM audit"))[0][0]
        disabled = await fetch(self.dsn, "SELECT min(at) FROM transition WHERE after = 'disabled'")
        since = (disabled[0][0] or 0) / 1000 + 1.0
        probes = [at for at in self.receiver.dead if at > since]
        gaps = [after - before for before, after in pairwise(probes)]
        count.probes_over_the_limit = sum(gap < PROBE_EVERY_MS / 1000 * 0.9 for gap in gaps)
        count.restarts_needed = sum(not it.up for it in self.all)

    def _count_owners(self) -> None:
        """From what each process said that it took, let go of, and lost."""
        spans: dict[int, list[tuple[float, float, Process]]] = defaultdict(list)
        holds: dict[Process, dict[int, float]] = {it: {} for it in self.all}

        def over(process: Process, bucket: int, at: float) -> None:
            begun = holds[process].pop(bucket, None)
            if begun is not None:  # One that was killed or stopped did nothing from then on.
                end = min([at, *(it for it in process.ends if it > begun)])
                spans[bucket].append((begun, end, process))

        for process, line in log_lines(self.all):
            event, at = line.get("event"), datetime.fromisoformat(line["time"]).timestamp()
            if event == "buckets taken":
                holds[process].update({int(bucket): at for bucket in line["epochs"]})
            elif event == "joined":
                for bucket in list(holds[process]):
                    over(process, bucket, at)
            elif event in {"buckets lost", "buckets handed over"}:
                self.count.times_lost += event == "buckets lost"
                for bucket in _read_ranges(line["buckets"]):
                    over(process, bucket, at)
        self.count.two_owners = sum(_overlaps(held) for held in spans.values())


def _overlaps(held: list[tuple[float, float, Process]]) -> int:
    """How often somebody took a bucket that another still had."""
    return sum(
        before[2] is not after[2] and before[1] > after[0] + 0.05
        for before, after in pairwise(sorted(held, key=lambda it: it[0]))
    )


def _read_ranges(text: str) -> list[int]:
    found: list[int] = []
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        found += range(int(low), int(high or low) + 1)
    return found


async def run(scale: Scale, server: Server, folder: Path, seed: int) -> Count:
    """One run on a place of its own."""
    (folder / "data").mkdir(mode=0o700)
    return await Story(scale, server, await server.make(), folder, seed).run()


def say(count: Count, scale: Scale, seed: int, seconds: float) -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    print(f"commit {commit}, seed {seed}, {seconds:.0f} s of wall time")
    print(
        f"{scale.api} API + {scale.deliver} delivering processes, {scale.rate} events/s for"
        f" {scale.seconds:.0f} s to {scale.urls} URLs, lease {LEASE_MS / 1000:.0f} s"
    )
    for name, number in sorted(count.faults.items()):
        print(f"  {name:32} {number}")
    for name, value in vars(count).items():
        if name != "faults":
            shown = f"{value:.2f}" if isinstance(value, float) else str(value)
            print(f"  {name.replace('_', ' '):32} {shown}")
    print("GOOD" if count.good else "BAD")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the short form")
    parser.add_argument("--measure", action="store_true", help="1, 2 and 4 processes instead")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="keep the processes' logs in this directory")
    asked = parser.parse_args()
    scale = SHORT if asked.quick else LONG
    with tempfile.TemporaryDirectory(prefix="homing-fleet-") as place:
        folder = Path(asked.keep) if asked.keep else Path(place) / "house"
        folder.mkdir(parents=True)
        server = Server(Path(place) / "pg")
        began = time.monotonic()
        try:
            if asked.measure:
                asyncio.run(compare(server, folder))
                return
            count = asyncio.run(run(scale, server, folder, asked.seed))
        finally:
            server.stop()
        say(count, scale, asked.seed, time.monotonic() - began)
        if count.lost:
            print(json.dumps({"lost": count.lost}))
    sys.exit(0 if count.good else 1)


if __name__ == "__main__":
    main()
