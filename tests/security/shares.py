"""Scoreboard 32, slots and rates: one tenant's hanging URLs and backlogs leave another alone.

A tenant has 600 URLs that never respond, or a backlog behind a slow rate. Another tenant is offered
a steady load, in turns with and without that noise, and the latencies of both are compared, from
the time an event was to be published to its arrival.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceptance.running import HONEST
from security.neighbours import BATCH, WITHIN_S, Town, town
from security.part import Latencies, Part, Toll, undisturbed

NO_SHARES = ("-m", "security.no_shares")
HEALTHY_URLS = 20
HANG_MS = 8_000  # longer than a turn, so that all of it meets the hanging URLs
HELD_MIN = 200  # hanging attempts at the beginning of a loud turn, of 600 URLs
SLOW_RATE = 0.1
HOST_RATE = 200  # attempts a second at one host; the healthy load is 50
WATCH_S = 70  # of a backlog behind its rate, at the end
WRITTEN_MAX = 4 << 20  # bytes in that time; a build that dates rows anew writes far more
SHARED_MAX_MS = 1_000  # for a tenant with one delivery at a host, behind another's backlog


@dataclass
class Noise:
    """The size of a run, and how it is measured."""

    count: int  # of hanging URLs, or of deliveries that wait
    turns: int
    turn_s: float = 5.0
    argv: tuple[str, ...] = HONEST


def share_parts(*, quick: bool, seed: int) -> list[Part]:
    """The parts of line 32 about slots and rates."""
    del seed
    turns = 4 if quick else 10
    waiting = 5_000 if quick else 20_000
    return [
        Part(
            "hanging URLs beside others",
            lambda at: hanging(at, Noise(600, turns)),
            lambda at: hanging(at, Noise(600, 2, argv=NO_SHARES)),
        ),
        Part(
            "a slow rate beside others",
            lambda at: slow_rate(at, Noise(waiting, turns)),
            lambda at: slow_rate(at, Noise(waiting, 1, argv=NO_SHARES)),
        ),
        Part(
            "a host shared by two tenants",
            lambda at: shared_host(at, Noise(waiting, turns)),
            why_none="nothing is compared with a broken build: tests/engine has one that is found",
        ),
    ]


async def subscribe(at: Town, kind: str, number: int, **more: Any) -> str:
    """A URL of the noisy tenant; all of a kind get the same events. Its endpoint."""
    host = more.pop("host", "127.0.0.1")
    document = {
        "tenant": more.pop("tenant", "noisy"),
        "url": f"http://{host}:{at.far.port}/{kind}/{number}",
        "types": [kind],
        "policy": "rarely",
        **more,
    }
    return str((await at.ask("POST", "/v1/subscriptions", document))["endpoint"])


async def publish(at: Town, kind: str, count: int, *, tenant: str = "noisy") -> None:
    for begin in range(0, count, BATCH):
        size = min(BATCH, count - begin)
        batch = [{"tenant": tenant, "type": kind, "data": begin + n} for n in range(size)]
        await at.ask("POST", "/v1/events", batch)


# --- hanging URLs -----------------------------------------------------------------------------


async def hanging(folder: Path, noise: Noise) -> Toll:
    """In a loud turn one event goes to every hanging URL; a quiet turn begins when all are over."""
    toll, lags = Toll(), Latencies()
    most = 0
    environ = {"HOMING_GRACE_MS": "0"}
    with undisturbed(toll):
        async with town(
            folder, argv=noise.argv, rate_after_attempts=1_000_000, environ=environ
        ) as at:
            await at.subscribe("ok", HEALTHY_URLS, own_type=True)
            for number in range(noise.count):
                await subscribe(at, "hang", number, deadline_ms=HANG_MS)
            await at.offer("first", 2.0)
            for n in range(noise.turns):
                lags.quiet.append(await at.offer(f"quiet {n}", noise.turn_s))
                await publish(at, "hang", 1)
                await at.until_far("hanging", least=min(HELD_MIN, noise.count // 2))
                lags.loud.append(await at.offer(f"loud {n}", noise.turn_s))
                most = max(most, (await at.far.tell("books"))["hanging"])
                await _all_over(at, (n + 1) * noise.count)
    toll.fired = most
    toll.figures |= {"urls": noise.count, "hanging": most}
    lags.judge(toll)
    return toll


async def _all_over(at: Town, attempts: int) -> None:
    """Until every hanging URL has had its attempt, and nothing hangs any more."""
    async with asyncio.timeout(WITHIN_S):
        while await _failed(at) < attempts:
            await asyncio.sleep(0.1)
    await at.until_far("hanging", most=0)


async def _failed(at: Town) -> int:
    """Attempts that failed since the server began."""
    reply = await at.line.ask("GET", "/metrics")
    lines = reply.body.decode().splitlines()
    found = [it for it in lines if it.startswith("homing_attempts_total") and '"failed"' in it]
    return sum(int(float(it.rpartition(" ")[2])) for it in found)


# --- rates ------------------------------------------------------------------------------------


async def slow_rate(folder: Path, noise: Noise) -> Toll:
    """A backlog behind one attempt in ten seconds; its endpoint is frozen in a quiet turn.

    At the end nothing else happens for a while, and the bytes are counted that are written for it.
    """
    toll, lags = Toll(), Latencies()
    with undisturbed(toll):
        async with town(folder, argv=noise.argv, rate_after_attempts=1_000_000) as at:
            await at.subscribe("ok", HEALTHY_URLS, own_type=True)
            slow = await subscribe(at, "slow", 0, rate_per_second=SLOW_RATE)
            began = time.monotonic()
            await publish(at, "slow", noise.count)
            await at.offer("first", 2.0)
            for n in range(noise.turns):
                await at.ask("POST", f"/v1/endpoints/{slow}/freeze")
                lags.quiet.append(await at.offer(f"quiet {n}", noise.turn_s))
                await at.ask("POST", f"/v1/endpoints/{slow}/enable")
                lags.loud.append(await at.offer(f"loud {n}", noise.turn_s))
            before = _written(at)
            await asyncio.sleep(WATCH_S)
            written = _written(at) - before
            books = await at.far.tell("books")
            left = await _pending(at, "noisy")
    toll.fired = books["ramps"]["/slow/0"]["responded"]
    toll.figures |= {"waiting": left, "sent": toll.fired, "written_kb": written // 1024}
    if written > WRITTEN_MAX:
        toll.blame(f"{written:,} bytes were written in {WATCH_S} s for a few deliveries")
    if toll.fired > SLOW_RATE * (time.monotonic() - began) + 1:
        toll.blame(f"{toll.fired} went, which is more than the rate allows")
    lags.judge(toll)
    return toll


async def shared_host(folder: Path, noise: Noise) -> Toll:
    """Two tenants at one host that takes only so many a second, one of them with a backlog."""
    toll, lags = Toll(), Latencies()
    environ = {"HOMING_HOST_RATE_PER_SECOND": str(HOST_RATE)}
    shared: list[float] = []
    with undisturbed(toll):
        async with town(
            folder, argv=noise.argv, rate_after_attempts=1_000_000, environ=environ
        ) as at:
            await at.subscribe("ok", HEALTHY_URLS, own_type=True)
            backlog = await subscribe(at, "slow", 0, host="localhost")
            await subscribe(at, "ok", 1, host="localhost", tenant="small", types=["small"])
            await at.ask("POST", f"/v1/endpoints/{backlog}/freeze")
            await publish(at, "slow", noise.count)
            await at.offer("first", 2.0)
            for n in range(noise.turns):
                lags.quiet.append(await at.offer(f"quiet {n}", noise.turn_s))
                await at.ask("POST", f"/v1/endpoints/{backlog}/enable")
                small = asyncio.ensure_future(_small(at, f"small {n}", noise.turn_s))
                lags.loud.append(await at.offer(f"loud {n}", noise.turn_s))
                shared += await small
                await at.ask("POST", f"/v1/endpoints/{backlog}/freeze")
            left = await _pending(at, "noisy")
    toll.fired = len(shared)
    toll.figures |= {"waiting": left, "shared_most_ms": round(max(shared), 1)}
    if max(shared) > SHARED_MAX_MS:
        toll.blame(f"a tenant with one delivery waited {max(shared):.0f} ms at the shared host")
    if not left:
        toll.blame("nothing was left of the backlog")
    lags.judge(toll)
    return toll


async def _small(at: Town, tag: str, turn_s: float) -> list[float]:
    """The other tenant of the host publishes now and then; what each delivery took."""
    line, count = at.server.line(), max(int(turn_s / 0.5), 1)
    for _ in range(count):
        data = {"tag": tag, "at": asyncio.get_running_loop().time()}
        reply = await line.ask(
            "POST", "/v1/events", {"tenant": "small", "type": "small", "data": data}
        )
        assert reply.status < 300, reply.body
        await asyncio.sleep(0.5)
    lags: list[float] = []
    async with asyncio.timeout(WITHIN_S):
        while len(lags) < count:
            lags += await at.far.tell("lags", tag=tag)
            await asyncio.sleep(0.05)
    line.close()
    return lags


async def _pending(at: Town, tenant: str) -> int:
    ledger = await at.ask("GET", f"/v1/ledger?tenant={tenant}")
    return sum(int(one["pending"]) for one in ledger["items"])


def _written(at: Town) -> int:
    """The bytes that the server and its children have written so far."""
    process = at.server.process
    assert process is not None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    total = 0
    for pid in (str(process.pid), *children):
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
        total += sum(int(it.split()[1]) for it in lines if it.startswith("wchar"))
    return total
