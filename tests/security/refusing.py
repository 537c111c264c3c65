"""Scoreboard 32, refused connections: one tenant's dead URLs leave another tenant's latency alone.

A tenant has thousands of URLs at a port where nobody listens, and a backlog for each of them.
Another tenant is offered a steady load, in turns with and without that backlog at work: in a quiet
turn the refusing endpoints are frozen, in a loud turn they are enabled. The latencies of both are
compared, from the time an event was to be published to its arrival.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceptance.running import HONEST
from security.neighbours import Town, town
from security.part import Latencies, Part, Toll, undisturbed

GREEDY = ("-m", "security.greedy")
BATCH = 20  # events for all the refusing URLs in one request
HEALTHY_URLS = 20
AT_ONCE = 16  # requests of ours beside each other, where thousands are made


def refusing_parts(*, quick: bool, seed: int) -> list[Part]:
    """The part of line 32 about URLs that refuse connections."""
    del seed
    urls, each, turns = (400, 50, 4) if quick else (2_000, 50, 10)
    return [
        Part(
            "refusing URLs beside others",
            lambda at: refusing(at, Refusing(urls, each, turns)),
            lambda at: refusing(at, Refusing(400, 50, 2, argv=GREEDY)),
        )
    ]


@dataclass
class Refusing:
    """How many URLs refuse, how many deliveries wait for each, and how it is measured."""

    urls: int
    each: int
    turns: int
    turn_s: float = 5.0
    argv: tuple[str, ...] = HONEST


async def refusing(folder: Path, noise: Refusing) -> Toll:
    """Quiet and loud turns, one after the other."""
    toll, lags = Toll(), Latencies()
    with undisturbed(toll), _closed_port() as port:
        async with town(folder, argv=noise.argv, rate_after_attempts=1_000_000) as at:
            await _turns(at, noise, port, lags, toll)
    lags.judge(toll)
    return toll


async def _turns(at: Town, noise: Refusing, port: int, lags: Latencies, toll: Toll) -> None:
    await at.subscribe("ok", HEALTHY_URLS, own_type=True)
    endpoints = await _subscribe_refusing(at, noise.urls, port)
    await _each(at, endpoints, "freeze")
    for begin in range(0, noise.each, BATCH):
        events = [
            {"tenant": "dead", "type": "dead", "data": begin + n}
            for n in range(min(BATCH, noise.each - begin))
        ]
        await at.ask("POST", "/v1/events", events)
    await at.offer("first", 2.0)
    made = 0
    for n in range(noise.turns):
        lags.quiet.append(await at.offer(f"quiet {n}", noise.turn_s))
        before = await _failed(at)
        await _each(at, endpoints, "enable")
        lags.loud.append(await at.offer(f"loud {n}", noise.turn_s))
        made += await _failed(at) - before
        await _each(at, endpoints, "freeze")
        await at.offer(f"after {n}", 1.0)
    toll.fired = made
    waiting = noise.urls * noise.each
    toll.figures |= {"urls": noise.urls, "waiting": waiting, "refused": made}
    if made >= waiting:
        toll.blame("nothing was left of the backlog")


async def _subscribe_refusing(at: Town, urls: int, port: int) -> list[str]:
    async def one(number: int) -> str:
        document = {
            "tenant": "dead",
            "url": f"http://127.0.0.1:{port}/{number}",
            "types": ["dead"],
            "policy": "rarely",
        }
        return str((await line.ask("POST", "/v1/subscriptions", document)).json["endpoint"])

    line = at.server.line()
    return [await one(number) for number in range(urls)]


async def _each(at: Town, endpoints: list[str], verb: str) -> None:
    """Freeze or enable all of them, some at a time."""
    left = list(endpoints)

    async def work() -> None:
        line = at.server.line()
        while left:
            reply = await line.ask("POST", f"/v1/endpoints/{left.pop()}/{verb}")
            assert reply.status < 300, reply.body
        line.close()

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


async def _failed(at: Town) -> int:
    """Attempts that failed, since the server began."""
    reply = await at.line.ask("GET", "/metrics")
    lines = reply.body.decode().splitlines()
    found = [it for it in lines if it.startswith("homing_attempts_total") and '"failed"' in it]
    return sum(int(float(it.rpartition(" ")[2])) for it in found)


@contextlib.contextmanager
def _closed_port() -> Any:
    """A port that refuses connections: it is bound, and nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
