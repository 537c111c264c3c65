"""Faults at even times, in full number: kills, stops, restarts of PostgreSQL, killed sessions.

Also of the writer processes: their servers live on.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from fleet.house import LEASE_MS, Process, fetch
from fleet.judge import Facts, Strike
from postgres import Server

LOST = (OSError, EOFError, asyncpg.PostgresError, asyncpg.InterfaceError)
STOP_S = LEASE_MS * 1.25 / 1000
CUT = 5  # backends at a time
FIRST_S, LAST_S = 1.0, 3.0  # before the first, after the last

_CUT = (
    "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity"
    " WHERE application_name LIKE 'homing %' ORDER BY random() LIMIT {}) AS chosen"
)


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
    writers: int

    @property
    def faults(self) -> dict[str, int]:
        every = {
            "SIGKILL": self.kills,
            "SIGSTOP": self.stops,
            "restart of PostgreSQL": self.restarts,
            "killed backend": self.backends,
            "killed writer": self.writers,
        }
        return {name: count for name, count in every.items() if count}


class Faults:
    """Strikes a fleet."""

    def __init__(
        self, scale: Scale, server: Server, dsn: str, crew: list[Process], facts: Facts, seed: int
    ) -> None:
        self._scale, self._server, self._dsn = scale, server, dsn
        self._crew, self._facts, self._rng = crew, facts, random.Random(seed)
        self._restarting = asyncio.Lock()
        self.fired: Counter[str] = Counter()
        self.away_s = 0.0  # PostgreSQL, in all

    async def run(self) -> None:
        """Until the last is over."""
        scale = self._scale
        room = scale.seconds - FIRST_S - LAST_S
        kinds: list[tuple[Callable[[], Coroutine[Any, Any, None]], int]] = [
            (self._kill, scale.kills),
            (self._stop, scale.stops),
            (self._restart, scale.restarts),
            (self._cut, scale.backends // CUT),
            (self._orphan, scale.writers),
        ]
        plan = [
            (FIRST_S + room * (number + (place + 0.5) / len(kinds)) / count, fault)
            for place, (fault, count) in enumerate(kinds)
            for number in range(count)
        ]
        began = time.monotonic()
        tasks = []
        for at, fault in sorted(plan, key=lambda it: it[0]):
            await asyncio.sleep(max(0.0, began + at - time.monotonic()))
            tasks.append(asyncio.create_task(fault()))
        await asyncio.gather(*tasks)

    async def _victim(self) -> Process:
        """One that is up, and is not the last of its role."""
        while True:
            up = Counter(it.role for it in self._crew if it.up)
            if able := [it for it in self._crew if it.up and up[it.role] > 1]:
                return self._rng.choice(able)
            await asyncio.sleep(0.05)

    def _strike(self, victim: Process, number: signal.Signals) -> None:
        assert victim.process is not None
        victim.stopped = True
        self.fired[number.name] += 1
        self._facts.strikes.append(Strike(victim.process.pid, time.time()))
        victim.signal(number)

    async def _kill(self) -> None:
        victim = await self._victim()
        self._strike(victim, signal.SIGKILL)
        assert victim.process is not None
        await victim.process.wait()
        await victim.start()

    async def _stop(self) -> None:
        victim = await self._victim()
        self._strike(victim, signal.SIGSTOP)
        await asyncio.sleep(STOP_S)
        victim.signal(signal.SIGCONT)
        victim.stopped = False

    async def _orphan(self) -> None:
        """The process that writes for another, which goes on: no cause for a duplicate."""
        while True:
            victim = await self._victim()
            assert victim.process is not None
            if children := _children(victim.process.pid):
                os.kill(children[0], signal.SIGKILL)
                self.fired["killed writer"] += 1
                return
            await asyncio.sleep(0.05)  # It is being started.

    async def _restart(self) -> None:
        """As after a crash: the server is not asked to finish anything."""
        async with self._restarting:
            began = time.monotonic()
            await self._server.crash()
            self.away_s += time.monotonic() - began
            self.fired["restart of PostgreSQL"] += 1

    async def _cut(self) -> None:
        left = CUT
        while left:
            try:
                left -= len(await fetch(self._dsn, _CUT.format(left)))
            except (*LOST, TimeoutError):
                await asyncio.sleep(0.1)
        self.fired["killed backend"] += CUT


def _children(pid: int) -> list[int]:
    """Of a process; none, if it has just ended."""
    try:
        return [int(it) for it in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
