"""``make fleet``: processes are killed and stopped, the database is restarted, and all is counted.

Prints what was acknowledged, and of that lost, unexpected and doubled; whether a process ever sent
for a bucket of another's; whether a late settle was accepted; probes over the limit; the longest
stall. GOOD means that every one of these holds and that every fault was fired.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from fleet import audit
from fleet.build import BUILDS, HONEST
from fleet.faults import LOST, Faults, Scale
from fleet.house import LEASE_MS, PROBE_EVERY_MS, Process, Receiver
from fleet.judge import Facts, Verdict, judge
from fleet.load import Load
from fleet.measure import compare
from postgres import Server, fast_folder

T = TypeVar("T")

DEAD_EVENTS = 150
DRAIN_S = 90
SLOW_S = 0.15
STALL_S = 5 + LEASE_MS / 1000

SHORT = Scale(2, 2, 60, 12, 20, kills=2, stops=2, restarts=1, backends=5, writers=2)
MIDDLE = Scale(2, 3, 200, 20, 50, kills=6, stops=6, restarts=3, backends=20, writers=6)
LONG = Scale(3, 4, 500, 60, 200, kills=20, stops=20, restarts=20, backends=200, writers=20)


@dataclass
class Count:
    """What is printed."""

    scale: Scale
    verdict: Verdict = field(default_factory=Verdict)
    left_pending: int = 0
    late_settles_accepted: int = 0
    restarts_needed: int = 0
    fired: dict[str, int] = field(default_factory=dict)
    away_s: float = 0.0  # PostgreSQL
    lag_s: float = 0.0  # of the program that publishes and receives

    @property
    def wrong(self) -> list[str]:
        """What does not hold."""
        verdict = self.verdict
        held = {
            "nothing was acknowledged": verdict.acknowledged > 0,
            "lost": verdict.lost == 0,
            "unexpected": verdict.unexpected == 0,
            "left pending": self.left_pending == 0,
            "more duplicates than in flight": verdict.duplicated <= verdict.in_flight_at_faults,
            "retries without a failure": verdict.retried_without_a_failure == 0,
            "duplicates without a cause": verdict.duplicates_without_a_cause == 0,
            "two owners": verdict.two_owners == 0,
            "late settles accepted": self.late_settles_accepted == 0,
            "probes over the limit": verdict.probes_over_the_limit == 0,
            "a stall": verdict.longest_stall_s <= STALL_S,
            "restarts needed": self.restarts_needed == 0,
            "not every fault was fired": self.fired == self.scale.faults,
        }
        return [name for name, holds in held.items() if not holds]

    @property
    def good(self) -> bool:
        return not self.wrong


class Story:
    """One run."""

    def __init__(
        self,
        scale: Scale,
        server: Server,
        dsn: str,
        folder: Path,
        *,
        seed: int,
        build: str = HONEST,
        environ: dict[str, str] | None = None,
    ) -> None:
        self.scale, self.dsn, self.folder = scale, dsn, folder
        self.facts, self.receiver = Facts(), Receiver()
        if build != HONEST:  # So that a stop finds something in flight.
            self.receiver.delay_s = SLOW_S
        self.api = [Process(dsn, folder, "api", n, build, environ or {}) for n in range(scale.api)]
        self.deliver = [
            Process(dsn, folder, "deliver", n, build, environ or {}) for n in range(scale.deliver)
        ]
        self.facts.arrivals = self.receiver.arrivals
        self.faults = Faults(scale, server, dsn, self.all, self.facts, seed)
        self.load = Load(self.api, self.facts, urls=scale.urls, seed=seed)
        self.count = Count(scale)
        self.drain_s = DRAIN_S

    @property
    def all(self) -> list[Process]:
        return [*self.api, *self.deliver]

    async def run(self) -> Count:
        async with self.receiver.listening():
            try:
                await self.api[0].start()
                await asyncio.gather(*(it.start() for it in self.all[1:]))
                await self._prepare()
                faults = asyncio.create_task(self.faults.run())
                scale = self.scale
                await self.load.run(rate=scale.rate, seconds=scale.seconds, until=faults.done)
                await faults
                await self._drain()
                await self._count()
            finally:
                await asyncio.gather(*(it.end() for it in self.all if it.process is not None))
        return self.count

    async def _prepare(self) -> None:
        await audit.begin(self.dsn)
        line = self.api[0].line()
        base = f"http://127.0.0.1:{self.receiver.port}"
        paths = {f"/h/{number}": f"t.{number}" for number in range(self.scale.urls)}
        for path, kind in {**paths, "/dead": "dead"}.items():
            asked = {"url": base + path, "types": [kind]}
            made = await line.ask("POST", "/v1/subscriptions", asked)
            assert made.status == 201, made.body
        for start in range(0, DEAD_EVENTS, 50):
            events = [
                {"id": f"dead-{n}", "type": "dead", "data": n} for n in range(start, start + 50)
            ]
            assert (await line.ask("POST", "/v1/events", events)).status == 202
        line.close()

    async def _drain(self) -> None:
        """Until everything acknowledged has arrived and is settled."""
        ends_at = time.monotonic() + self.drain_s
        while time.monotonic() < ends_at:
            with contextlib.suppress(*LOST, TimeoutError):
                self.count.left_pending = await audit.left(self.dsn)
                if not self.count.left_pending and self.facts.acked.keys() <= self.receiver.keys:
                    return
            await asyncio.sleep(0.5)

    async def _count(self) -> None:
        facts, count = self.facts, self.count
        facts.pids = {label: pid for it in self.all for label, pid in it.names.items()}
        facts.buckets = await audit.buckets(self.dsn)
        facts.hands = await audit.hands(self.dsn)
        facts.settled = await audit.settled(self.dsn)
        facts.failed = await audit.failed(self.dsn)
        facts.disabled_at = await audit.disabled_at(self.dsn)
        count.verdict = judge(facts, probe_every_s=PROBE_EVERY_MS / 1000)
        count.late_settles_accepted = await audit.late(self.dsn)
        count.restarts_needed = sum(not it.up for it in self.all)
        count.fired = dict(self.faults.fired)
        count.away_s, count.lag_s = self.faults.away_s, self.load.lag_s
        where = self.folder / "facts.pickle"  # for whoever looks closer
        where.write_bytes(pickle.dumps(facts))


async def run(
    scale: Scale, server: Server, folder: Path, *, seed: int, build: str = HONEST
) -> Count:
    """One run on a place of its own."""
    if build != HONEST:
        scale = replace(scale, writers=0)  # Some are broken where they write, and have none.
    story = Story(scale, server, await server.make(), folder, seed=seed, build=build)
    return await story.run()


def say(count: Count, *, seed: int, seconds: float) -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    scale, verdict = count.scale, count.verdict
    print(
        f"commit {commit}, seed {seed}, {seconds:.0f} s of wall time, load"
        f" {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    print(
        f"{scale.api} API + {scale.deliver} delivering processes, {scale.rate} events/s for"
        f" {scale.seconds:.0f} s to {scale.urls} URLs, lease {LEASE_MS / 1000:.0f} s"
    )
    for name, number in sorted(count.fired.items()):
        print(f"  {name:32} {number}")
    others = {k: v for k, v in vars(count).items() if k not in {"scale", "verdict", "fired"}}
    for name, value in {**vars(verdict), **others}.items():
        shown = f"{value:.2f}" if isinstance(value, float) else str(value)
        print(f"  {name.replace('_', ' '):32} {shown}")
    print("GOOD" if count.good else f"BAD: {', '.join(count.wrong)}")


def _with_server(folder: str | None, work: Callable[[Server, Path], T]) -> T:
    with tempfile.TemporaryDirectory(prefix="homing-fleet-", dir=fast_folder()) as place:
        house = Path(folder) if folder else Path(place) / "house"
        house.mkdir(parents=True)
        server = Server(Path(place) / "pg", vacuums=True)
        try:
            return work(server, house)
        finally:
            server.stop()


def _control(name: str, seed: int) -> bool:
    """Whether a broken build is found out."""
    count = _with_server(
        None, lambda server, house: asyncio.run(run(MIDDLE, server, house, seed=seed, build=name))
    )
    print(f"  {name:20} {'NOT FOUND' if count.good else 'found: ' + ', '.join(count.wrong)}")
    return not count.good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the short form")
    parser.add_argument("--middle", action="store_true", help="between the two")
    parser.add_argument("--rate", type=int, help="events a second instead of the scale's")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="keep logs and facts in this directory")
    parser.add_argument("--measure", action="store_true", help="1, 2 and 4 processes instead")
    parser.add_argument("--controls", action="store_true", help="every broken build must be BAD")
    parser.add_argument("--failover", action="store_true", help="a primary and its standby")
    parser.add_argument("--rounds", type=int, default=1, help="of failovers, nine in each")
    asked = parser.parse_args()
    if asked.failover:
        from fleet.failover import all_of_them

        with tempfile.TemporaryDirectory(prefix="homing-failover-", dir=fast_folder()) as place:
            folder = Path(asked.keep or place)
            good = asyncio.run(all_of_them(folder, rounds=asked.rounds, quick=asked.quick))
            sys.exit(0 if good else 1)
    if asked.controls:
        print("Controls: deliberately broken builds.")
        found = [_control(name, asked.seed) for name in BUILDS]
        sys.exit(0 if all(found) else 1)
    if asked.measure:
        well = _with_server(asked.keep, lambda server, house: asyncio.run(compare(server, house)))
        sys.exit(0 if well else 1)
    scale = SHORT if asked.quick else MIDDLE if asked.middle else LONG
    scale = replace(scale, rate=asked.rate or scale.rate)
    began = time.monotonic()
    # Not on uvloop, which accepts one connection at a turn of its loop.
    count = _with_server(
        asked.keep, lambda server, house: asyncio.run(run(scale, server, house, seed=asked.seed))
    )
    say(count, seed=asked.seed, seconds=time.monotonic() - began)
    sys.exit(0 if count.good else 1)


if __name__ == "__main__":
    main()
