"""Scoreboard 12 and 15 for real: bad neighbours on a server do not slow down healthy URLs.

A real server and a real receiver, each a process of its own. Healthy URLs are offered a steady load
far below what a machine carries, in turns with and without the noise: the latencies from the time
an event was to be published to its arrival are compared (``part.Latencies``). The run has priority
over everything else on the machine, where it may.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acceptance.running import HONEST, Line, Server
from security.island import FarSide, far_side
from security.part import Latencies, Part, Toll, undisturbed

FLOODS = ("-m", "security.floods")
SETTINGS = """
[policies.rarely]
delays_ms = [86400000]
[health]
rate_after_attempts = {after}
probe_every_ms = 1000
"""
EVERY_S = 0.02  # from one healthy event to the next
BATCH = 1_000
DEADLINE_MS = 5_000
EACH = 16  # events for each that hangs, at the beginning of every loud turn
SLOTS = 16
WITHIN_S = 240.0
NOISE_DELAY_S = 0.2  # of the one with the backlog: five a second and slot
HEALED_DELAY_S = 0.05  # of the one that heals


def neighbour_parts(*, quick: bool, seed: int) -> list[Part]:
    """Shows what-homing-promises.md#lanes-and-fairness, beside noise and after an outage."""
    del seed
    turns = 8 if quick else 10
    urls, hang, waiting = (400, 40, 20_000) if quick else (2_000, 200, 100_000)
    backlog = 16_000 if quick else 50_000  # It must last for all turns; one sends 1,600.
    return [
        Part(
            "noisy neighbours",
            lambda at: noisy(at, Noise(urls, hang, waiting, turns)),
            lambda at: noisy(at, Noise(300, 100, 1_000, 2, argv=FLOODS)),
        ),
        Part(
            "recovery with a backlog",
            lambda at: recovery(at, waiting=backlog, turns=turns),
            lambda at: recovery(at, waiting=1_000, turns=1, argv=FLOODS),
        ),
    ]


@dataclass
class Noise:
    """The size of a run."""

    urls: int
    hang: int
    backlog: int
    turns: int
    turn_s: float = 5.0
    argv: tuple[str, ...] = HONEST


@dataclass
class Turns:
    """The number and length of turns."""

    count: int
    each_s: float


@dataclass
class Town:
    """A server, its receiver, and the requests to both."""

    server: Server
    far: FarSide
    line: Line
    endpoints: dict[str, list[str]] = field(default_factory=dict)  # by kind
    healthy: int = 0

    async def ask(self, method: str, path: str, document: Any = None) -> Any:
        for last in (False, True):  # An idle line may have been closed.
            try:
                reply = await self.line.ask(method, path, document)
            except (OSError, EOFError):
                if last:
                    raise
                continue
            assert reply.status < 300, reply.body
            return reply.json
        raise AssertionError

    async def subscribe(
        self, kind: str, count: int = 1, *, own_type: bool = False, deadline_ms: int = DEADLINE_MS
    ) -> None:
        """URLs of a kind; each hears of its own type, or all of the same."""
        for n in range(count):
            document = {
                "url": f"http://127.0.0.1:{self.far.port}/{kind}/{n}",
                "types": [f"{kind}.{n}" if own_type else kind],
                "deadline_ms": deadline_ms,
                "policy": "rarely",
            }
            made = await self.ask("POST", "/v1/subscriptions", document)
            self.endpoints.setdefault(kind, []).append(made["endpoint"])
        self.healthy = count if kind == "ok" else self.healthy

    async def publish(self, kind: str, count: int) -> None:
        for begin in range(0, count, BATCH):
            size = min(BATCH, count - begin)
            batch = [{"type": kind, "data": begin + n} for n in range(size)]
            await self.ask("POST", "/v1/events", batch)

    async def each(self, kind: str, verb: str) -> None:
        for endpoint in self.endpoints[kind]:
            await self.ask("POST", f"/v1/endpoints/{endpoint}/{verb}")

    async def state(self, kind: str) -> str:
        got = await self.ask("GET", f"/v1/endpoints/{self.endpoints[kind][0]}")
        return str(got["state"])

    async def offer(self, tag: str, turn_s: float) -> list[float]:
        """A steady healthy load; what each took, in milliseconds."""
        rng = random.Random(tag)
        count = int(turn_s / EVERY_S)
        begins = time.monotonic()
        for n in range(count):
            at = begins + n * EVERY_S
            await asyncio.sleep(max(at - time.monotonic(), 0))
            data = {"tag": tag, "at": at}
            event = {"type": f"ok.{rng.randrange(self.healthy)}", "data": data}
            await self.ask("POST", "/v1/events", event)
        lags: list[float] = []
        async with asyncio.timeout(WITHIN_S):
            while len(lags) < count:
                lags += await self.far.tell("lags", tag=tag)
                await asyncio.sleep(0.02)
        return lags

    async def until_far(self, key: str, *, least: int = 0, most: int = 1 << 40) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not least <= (await self.far.tell("books"))[key] <= most:
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def town(
    folder: Path,
    *,
    rate_after_attempts: int,
    argv: tuple[str, ...] = HONEST,
    environ: dict[str, str] | None = None,
) -> AsyncIterator[Town]:
    settings = folder / "homing.toml"
    settings.write_text(SETTINGS.format(after=rate_after_attempts))
    async with far_side() as (far, _):
        named = {"HOMING_CONFIG": str(settings), **(environ or {})}
        server = Server(folder / "data", argv=argv, environ=named)
        await server.start()
        try:
            yield Town(server, far, server.line())
        finally:
            await server.terminate()


# --- 12 -------------------------------------------------------------------------------------


async def noisy(folder: Path, noise: Noise) -> Toll:
    """Some hang, one has a backlog; the noise is held back in every other turn."""
    toll, lags = Toll(), Latencies()
    with undisturbed(toll):
        async with town(folder, argv=noise.argv, rate_after_attempts=1_000_000) as at:
            await _turns(at, noise, toll, lags)
    lags.judge(toll)
    return toll


async def _turns(at: Town, noise: Noise, toll: Toll, lags: Latencies) -> None:
    await at.far.tell("set", delay_s=NOISE_DELAY_S)
    await at.subscribe("ok", noise.urls - noise.hang - 1, own_type=True)
    await at.subscribe("hang", noise.hang)
    await at.subscribe("slow")
    await at.publish("slow", noise.backlog)  # It is being delivered meanwhile.
    await _hold(at)
    await at.offer("first", 2.0)
    hanging = 0
    for n in range(noise.turns):
        lags.quiet.append(await at.offer(f"quiet {n}", noise.turn_s))
        await at.each("slow", "enable")
        await at.each("hang", "enable")
        await at.publish("hang", EACH)
        await at.publish("slow", 200)
        await at.until_far("hanging", least=noise.hang)
        hanging = max(hanging, (await at.far.tell("books"))["hanging"])
        lags.loud.append(await at.offer(f"loud {n}", noise.turn_s))
        books = await at.far.tell("books")
        await _hold(at)
    ledger = await at.ask("GET", "/v1/ledger")
    left = sum(int(one["pending"]) for one in ledger["items"])
    toll.fired = books["ramps"]["/slow/0"]["responded"]
    toll.figures |= {"urls": noise.urls, "hanging": hanging, "still_waiting": left}
    if left < noise.backlog // 10:
        toll.blame(f"only {left} were left of the backlog")


async def _hold(at: Town) -> None:
    """Stop the noise, and wait until nothing hangs."""
    await at.each("hang", "freeze")
    await at.each("slow", "freeze")
    await at.until_far("hanging", most=0)


# --- 15 -------------------------------------------------------------------------------------


async def recovery(
    folder: Path, *, waiting: int, turns: int, turn_s: float = 5.0, argv: tuple[str, ...] = HONEST
) -> Toll:
    """A URL is disabled, a backlog gathers, it heals; and again by a person, turn by turn."""
    toll, lags = Toll(), Latencies()
    with undisturbed(toll):
        async with town(folder, argv=argv, rate_after_attempts=100) as at:
            ramps = await _recoveries(at, waiting, Turns(turns, turn_s), lags)
    over = sum(one["over"] for one in ramps)
    peak, second = (max(one[key] for one in ramps) for key in ("peak", "second"))
    toll.fired = sum(one["responded"] for one in ramps)
    most = round(SLOTS / HEALED_DELAY_S)
    toll.figures |= {"waiting": waiting, "peak": peak, "over": over, "second": f"{second}/{most}"}
    if over or peak > SLOTS:
        toll.blame(f"{over} requests beyond the ramp, {peak} at a time")
    if second > most + SLOTS:
        toll.blame(f"{second} requests in one second")
    lags.judge(toll)
    return toll


async def _recoveries(
    at: Town, waiting: int, turns: Turns, lags: Latencies
) -> list[dict[str, int]]:
    """By a probe, then by a person; the ramp of each."""
    ramps: list[dict[str, int]] = []
    await at.far.tell("set", delay_s=HEALED_DELAY_S)
    await at.subscribe("ok", 200, own_type=True)
    await at.subscribe("ill")
    await disabled(at)
    await at.publish("ill", waiting)
    await at.offer("first", 2.0)
    for n in range(turns.count):
        lags.quiet.append(await at.offer(f"quiet {n}", turns.each_s))
        if n:
            await at.each("ill", "enable")
        else:
            await healed(at)
        lags.loud.append(await at.offer(f"loud {n}", turns.each_s))
        await at.each("ill", "freeze")
        ramps.append(await landed(at))
        await at.far.tell("set", probes=0)
        await at.far.tell("forget")
    return ramps


async def disabled(at: Town) -> None:
    """By the rule of 70 per cent."""
    await at.publish("ill", 300)
    async with asyncio.timeout(WITHIN_S):
        while await at.state("ill") != "disabled":
            await asyncio.sleep(0.05)


async def healed(at: Town) -> None:
    """By the next probe."""
    await at.far.tell("set", ill=False, probes=1)
    async with asyncio.timeout(WITHIN_S):
        while await at.state("ill") != "enabled":
            await asyncio.sleep(0.05)


async def landed(at: Town) -> dict[str, int]:
    """The ramp of the one that was ill, once nothing is in flight."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            ramp: dict[str, int] = (await at.far.tell("books"))["ramps"]["/ill/0"]
            if not ramp["flying"]:
                return ramp
            await asyncio.sleep(0.05)
