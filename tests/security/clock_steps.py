"""Scoreboard 35: the wall clock of a running server is stepped, and its receivers do not notice.

libfaketime steps the wall clock of a real ``homing serve`` (and of its writer process) while it
runs; its monotonic clock is left alone. One receiver verifies every request with
``standardwebhooks`` and ``svix`` by the true, stepped time and refuses what is older or newer than
five minutes. Another one always fails: no retry may come before its time has really passed. A third
is frozen with deliveries whose window a step of a day would end: none may be dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from acceptance.running import Server
from net.receiver import Call, receiver
from postgres import Server as Postgres
from referee import accepted_by_both
from security.part import Part, Toll

HONEST = ("-m", "security.under_faketime")
STALE = ("-m", "security.stale_signatures")
UNMOVED = ("-m", "security.unmoved_times")
SETTINGS = """
[policies.short]
delays_ms = [1500, 3000, 5000, 8000]
anchor = "first_failure"
window_ms = 3600000
[policies.hourly]
delays_ms = [3600000]
window_ms = 7200000
[health]
consecutive_disable = 30
[tenants.failing.health]
rate_after_attempts = 1000000
consecutive_disable = 1000000
"""
DELAYS_S = (1.5, 3.0, 5.0, 8.0)
ON_ITS_WAY_S = 30
MINUTE_S, DAY_S = 60, 86_400
STEPS_S = (10 * MINUTE_S, -10 * MINUTE_S, DAY_S, -DAY_S)
RESTARTS = (
    *((by_s, False) for by_s in STEPS_S),
    *((by_s, True) for by_s in (15, -15, 10 * MINUTE_S, -10 * MINUTE_S, 2 * DAY_S, -DAY_S)),
)
NOTICED_WITHIN_S = 5.0
DRAWN_MAX = 1 / 1_000  # how much faster than true time the schedule may run, twice over
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
REFUSED = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n"
BROKEN = b"HTTP/1.1 500 Error\r\ncontent-length: 0\r\n\r\n"


def clock_step_parts(*, quick: bool, seed: int) -> list[Part]:
    """Shows what-homing-promises.md#time."""
    del seed
    return [
        Part(
            "wall clock stepped under load",
            lambda at: stepped(at, STEPS_S * (1 if quick else 5), each_s=4 if quick else 10),
            lambda at: stepped(at, STEPS_S[:1], each_s=4, argv=STALE),
        ),
        Part(
            "one machine of a fleet stepped",
            lambda at: in_a_fleet(at, STEPS_S, each_s=4 if quick else 10),
            lambda at: in_a_fleet(at, STEPS_S[:1], each_s=4, argv=STALE),
        ),
        Part(
            "restart after a clock step",
            restarts,
            lambda at: restarts(at, UNMOVED),
        ),
    ]


def libfaketime() -> Path | None:
    """The path of libfaketime for programs with threads; None if it is not installed."""
    return next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)


class WallClock:
    """The wall clock of the processes that are started with ``environ``."""

    def __init__(self, file: Path, ahead_s: int) -> None:
        library = libfaketime()
        assert library is not None, "libfaketime is not installed"
        self._file, self.ahead_s = file, 0
        self._stepped_ms: list[int] = []  # what the clock said at each step, before it
        self.step(ahead_s)
        self.environ = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }

    def step(self, by_s: int) -> None:
        """Set the time atomically: a process reads the old or the new time, never half a file."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{self.ahead_s + by_s:+d}\n")
        os.replace(new, self._file)
        self._stepped_ms.append(self.now_ms())
        self.ahead_s += by_s

    def now_ms(self) -> int:
        """The true time in this run."""
        return int(time.time() * 1000) + self.ahead_s * 1000

    def was_true(self, at_s: int) -> bool:
        """Whether the clock showed this time shortly before a step: the request was under way."""
        return any(at_s <= ms // 1000 <= at_s + ON_ITS_WAY_S for ms in self._stepped_ms)


@dataclass
class Seen:
    """The requests that receivers saw."""

    clock: WallClock
    secrets: dict[str, str] = field(default_factory=dict)  # by path
    verified: int = 0
    refused: list[str] = field(default_factory=list)
    tries: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    async def serve(self, call: Call) -> None:
        while request := await call.request():
            call.writer.write(self._response(request))

    def _response(self, request: bytes) -> bytes:
        head, _, body = request.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        path, headers = first.split()[1], dict(line.split(": ", 1) for line in lines)
        if path in {"/fails", "/late"}:
            self.tries[headers["homing-delivery"]].append(time.monotonic())
            return BROKEN
        signed_s = int(headers["webhook-timestamp"])
        on_its_way = self.clock.was_true(signed_s)
        at = signed_s * 1000 if on_its_way else self.clock.now_ms()
        if accepted_by_both(headers, body, self.secrets[path], at=at):
            self.verified += not on_its_way
            return OK
        self.refused.append(f"{signed_s - self.clock.now_ms() // 1000:+d} s away from the time")
        return REFUSED

    def early(self) -> list[str]:
        """Retries that came before their time; the schedule counts from the first failure."""
        return [
            f"retry {n} after {at - times[0]:.3f} s"
            for times in self.tries.values()
            for n, at in enumerate(times[1:], 1)
            if at - times[0] < DELAYS_S[n - 1] * (1 - DRAWN_MAX)
        ]


@dataclass
class Scene:
    """A server, its receivers, and the clock that can be stepped."""

    server: Server
    clock: WallClock
    seen: Seen
    base: str

    async def ask(self, method: str, path: str, document: Any = None) -> Any:
        line = self.server.line()
        try:
            reply = await line.ask(method, path, document)
        finally:
            line.close()
        assert reply.status < 300, reply.body
        return reply.json

    async def subscribe(self, path: str, policy: str = "workfront", tenant: str = "default") -> str:
        document = {
            "url": self.base + path,
            "types": [path[1:]],
            "policy": policy,
            "tenant": tenant,
        }
        made = await self.ask("POST", "/v1/subscriptions", document)
        self.seen.secrets[path] = made["secret"]
        return str(made["endpoint"])

    async def publish(self, kind: str, count: int = 1, tenant: str = "default") -> None:
        batch = [{"type": kind, "data": n, "tenant": tenant} for n in range(count)]
        await self.ask("POST", "/v1/events", batch)

    async def states(self) -> list[str]:
        got = await self.ask("GET", "/v1/endpoints")
        return sorted(one["state"] for one in got["items"])

    async def dropped(self) -> int:
        got = await self.ask("GET", "/v1/ledger?tenant=default")
        return sum(one["dropped"] for one in got["items"])

    async def noticed(self, steps: int, most_s: float) -> float:
        """How long it took until ``/readyz`` reported so many steps."""
        began = time.monotonic()
        while time.monotonic() - began < most_s:
            told = (await self.ask("GET", "/readyz")).get("clock") or {}
            if told.get("steps", 0) >= steps:
                break
            await asyncio.sleep(0.05)
        return time.monotonic() - began


@contextlib.asynccontextmanager
async def scene(
    folder: Path, *, argv: tuple[str, ...] = HONEST, ahead_s: int = 0, database_url: str = ""
) -> AsyncIterator[Scene]:
    settings = folder / "homing.toml"
    settings.write_text(SETTINGS)
    clock = WallClock(folder / "wall-clock", ahead_s)
    seen = Seen(clock)
    more = {"HOMING_CONFIG": str(settings), **clock.environ}
    if database_url:
        more["HOMING_DATABASE_URL"] = database_url
    server = Server(folder / "data", argv=argv, environ=more)
    async with receiver(seen.serve) as far:
        await server.start()
        try:
            yield Scene(server, clock, seen, f"http://127.0.0.1:{far.port}")
        finally:
            await server.terminate()


async def stepped(
    folder: Path,
    steps_s: tuple[int, ...],
    *,
    each_s: float,
    last_s: float = DELAYS_S[-1],
    within_s: float = NOTICED_WITHIN_S,
    argv: tuple[str, ...] = HONEST,
    database_url: str = "",
) -> Toll:
    """Step the wall clock again and again under a steady load, and wait for each to be noticed."""
    toll = Toll()
    async with scene(folder, argv=argv, database_url=database_url) as at:
        await at.subscribe("/verifies")
        await at.subscribe("/fails", "short", "failing")
        held = await at.subscribe("/held", "short")
        await at.ask("POST", f"/v1/endpoints/{held}/freeze")
        await at.publish("held", 20)
        before, longest = await at.states(), 0.0
        for number, by_s in enumerate(steps_s, 1):
            await at.publish("fails", tenant="failing")
            load = asyncio.create_task(_load(at, each_s))
            await asyncio.sleep(each_s / 4)
            at.clock.step(by_s)
            toll.fired += 1
            took = await at.noticed(number, 2 * within_s)
            longest = max(longest, took)
            if took > within_s:
                toll.blame(f"a step of {by_s:+d} s was not noticed in {took:.1f} s")
            await load
        await asyncio.sleep(last_s)  # Retries of the last step come.
        await _judge(at, toll, before)
        toll.figures["noticed_after_s"] = round(longest, 2)
    return toll


async def in_a_fleet(
    folder: Path, steps_s: tuple[int, ...], *, each_s: float, argv: tuple[str, ...] = HONEST
) -> Toll:
    """The same on PostgreSQL, whose own clock is not stepped: steady time follows that one."""
    server = await asyncio.to_thread(Postgres, folder / "postgres")
    try:
        url = await server.make()
        return await stepped(folder, steps_s, each_s=each_s, argv=argv, database_url=url)
    finally:
        await server.halt()


async def _load(at: Scene, for_s: float) -> None:
    ends = time.monotonic() + for_s
    while time.monotonic() < ends:
        await at.publish("verifies", 5)
        await asyncio.sleep(0.05)


async def _judge(at: Scene, toll: Toll, before: list[str]) -> None:
    seen, after = at.seen, await at.states()
    changed = 0 if after == before else len(set(before) ^ set(after)) or 1
    early, dropped = seen.early(), await at.dropped()
    retries = sum(len(times) - 1 for times in seen.tries.values())
    toll.figures |= {
        "verified": seen.verified,
        "stale_signatures": len(seen.refused),
        "endpoints_changed": changed,
        "retries": retries,
        "early": len(early),
        "dropped": dropped,
    }
    for said in (*seen.refused[:2], *early[:2]):
        toll.blame(said)
    if changed:
        toll.blame(f"endpoints were {before} and are {after}")
    if dropped:
        toll.blame(f"{dropped} deliveries were dropped")
    if not seen.verified or not retries:
        toll.blame("nothing was verified, or nothing was tried again")


# --- a restart ------------------------------------------------------------------------------


async def restarts(folder: Path, argv: tuple[str, ...] = HONEST) -> Toll:
    """Set forward and back, by minutes and a day, while the server runs and while it does not."""
    whole = Toll()
    for number, (by_s, while_down) in enumerate(RESTARTS):
        place = folder / str(number)
        place.mkdir()
        toll = await restarted(place, by_s, while_down=while_down, wait_s=6, argv=argv)
        whole.fired += toll.fired
        whole.figures[f"{by_s:+d}s{'_down' if while_down else ''}_late_s"] = toll.figures["late_s"]
        for said in toll.first:
            whole.blame(said)
    return whole


async def restarted(
    folder: Path, by_s: int, *, while_down: bool, wait_s: float, argv: tuple[str, ...] = HONEST
) -> Toll:
    """The clock is set while a retry waits, the server is killed and starts again.

    The clock is set before the kill, or ``while_down``. What the API says of the next attempt is
    compared with the time that really passed, and the short retries must really come.
    """
    toll = Toll()
    async with scene(folder, argv=argv, ahead_s=max(-by_s, 0)) as at:  # It ran ahead at the start.
        await at.subscribe("/fails", "short", "failing")
        await at.subscribe("/late", "hourly", "failing")
        await at.publish("fails", tenant="failing")
        await at.publish("late", tenant="failing")
        failed_at = time.monotonic()
        await _until(lambda: len(at.seen.tries) == 2)
        if not while_down:
            at.clock.step(by_s)
            await at.noticed(1, 60)
        await asyncio.sleep(1.5)  # The step is marked in the store.
        at.server.kill()
        await at.server.gone()
        if while_down:
            at.clock.step(by_s)
        await at.server.start()
        toll.fired += 1
        before = sum(map(len, at.seen.tries.values()))
        await asyncio.sleep(wait_s)
        toll.figures["retries"] = sum(map(len, at.seen.tries.values())) - before
        got = await at.ask("GET", "/v1/deliveries?tenant=failing&status=pending")
        due = [one["due_at"] for one in got["items"] if one["type"] == "late"]
        ends = datetime.fromisoformat(due[0]).timestamp() * 1000 if due else 0.0
        ahead_ms = (await at.ask("GET", "/v1/status"))["clock"]["ahead_ms"]
        left_s = (ends - at.clock.now_ms() + ahead_ms) / 1000  # Times are shown in steady time.
        late_s = left_s - (3600 - (time.monotonic() - failed_at))
        toll.figures["late_s"] = round(late_s, 1)
    if wait_s and not toll.figures["retries"]:
        toll.blame("no retry came after the restart")
    if not -1 < late_s < 2 * MINUTE_S:
        toll.blame(f"the retry of an hour is {late_s:.0f} s late")
    for said in at.seen.early():
        toll.blame(said)
    return toll


async def _until(there: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not there():
            await asyncio.sleep(0.02)
