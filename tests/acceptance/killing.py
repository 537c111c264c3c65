"""Kills a server again and again under load, and judges what was lost from two files.

The publisher's file has every id that was answered with 202, the receiver's file every id that
arrived. Our own tables are not asked. A kill counts only if an attempt was in flight and a publish
was unanswered at that moment. What was in flight then, or answered and not yet settled, may arrive
twice, and nothing else.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from acceptance.running import HONEST, Line, Receiver, Server

PUBLISHERS = 6
SETTLED_S = 0.1  # from an arrival to its settling, response included; 40 kills needed 0.04 at most
READ_S = 0.2  # what a killed server had sent may be read a little later; no other has begun by then
LONG_EVERY = 10
LONG_S = 0.7  # a life long enough that most of it is settled


@dataclass
class Toll:
    """What the run came to."""

    kills: int
    acknowledged: int
    lost: int
    unexpected: int
    duplicated: int
    unsettled: int  # arrivals so soon before a kill that they may be repeated
    unexplained: int  # duplicates of others
    longest_ms: int  # from a first arrival to the kill that let it be repeated


class Kill(NamedTuple):
    """When it was, and since when what had arrived may not have been settled."""

    at: float
    since: float


class Publishers:
    """Publish for ever with ids of their own; an unanswered one is published again."""

    def __init__(self, server: Server, file: Path) -> None:
        self._server, self._file = server, file
        self._numbers: Iterator[int] = itertools.count(1)
        self.asked: set[str] = set()
        self.unanswered = 0
        self.waited: list[tuple[float, float]] = []  # from when until when, for response or kill
        self.up = asyncio.Event()
        self.stopping = False
        self.may_go_on: Callable[[], bool] = lambda: True  # asked before each new event

    async def publish_for_ever(self) -> None:
        line = self._server.line()
        while not self.stopping:
            if not self.may_go_on():
                await asyncio.sleep(0.01)
                continue
            key = f"event-{next(self._numbers)}"
            self.asked.add(key)
            while not await self._published(line, key):
                await self.up.wait()
        line.close()

    async def _published(self, line: Line, key: str) -> bool:
        self.unanswered += 1
        began = _now()
        try:
            reply = await line.ask(
                "POST", "/v1/events", {"type": "kill.test", "id": key, "data": {"id": key}}
            )
        except (OSError, EOFError):
            await asyncio.sleep(0.01)
            return False
        finally:
            self.unanswered -= 1
            self.waited.append((began, _now()))
        if reply.status == 503:  # It is shutting down.
            line.close()
            return False
        assert reply.status == 202, reply.body
        with self._file.open("a") as out:
            out.write(key + "\n")
        return True


async def kill_again_and_again(
    folder: Path, *, kills: int, argv: tuple[str, ...] = HONEST, long_every: int = LONG_EVERY
) -> Toll:
    """Run the whole story in this folder; every so many lives are long ones."""
    sent, arrived = folder / "acknowledged", folder / "arrived"
    sent.touch()
    arrived.touch()
    server = Server(folder / "data", argv=argv)
    async with Receiver(arrived).listening() as receiver:
        await server.start()
        made = await server.line().ask(
            "POST", "/v1/subscriptions", {"url": receiver.url, "types": ["kill.*"]}
        )
        assert made.status == 201, made.body
        publishers = Publishers(server, sent)
        tasks = [asyncio.create_task(publishers.publish_for_ever()) for _ in range(PUBLISHERS)]
        publishers.up.set()
        killed: list[Kill] = []
        for number in range(kills):
            long = number % long_every == long_every // 2
            await asyncio.sleep(0.05 + 0.01 * (number % 7) + LONG_S * long)
            if number == kills - 1:
                server.argv = HONEST  # A broken build is judged by its kills.
            killed.append(await _kill(server, receiver, publishers))
        publishers.stopping = True
        await asyncio.gather(*tasks)
        await _all_arrived(sent, receiver)
        assert await server.terminate() == 0
    acknowledged, seen = _lines(sent), Counter(_lines(arrived))
    unexplained, longest_s = _explained(receiver, killed)
    return Toll(
        kills=len(killed),
        acknowledged=len(acknowledged),
        lost=len(set(acknowledged) - set(seen)),
        unexpected=len(set(seen) - publishers.asked),
        duplicated=sum(seen.values()) - len(seen),
        unsettled=_unsettled(receiver, killed),
        unexplained=unexplained,
        longest_ms=round(longest_s * 1000),
    )


async def _kill(server: Server, receiver: Receiver, publishers: Publishers) -> Kill:
    """Kill it at such a moment, and start it again."""
    while not (receiver.in_flight and publishers.unanswered):
        await asyncio.sleep(0)
    publishers.up.clear()
    server.kill()
    at = _now()
    await server.gone()
    await server.start()
    # A settlement is a commit, as a publish is: what holds up the one holds up the other.
    soon = at - SETTLED_S
    held_up_s = max(min(end, at) - began for began, end in publishers.waited if end >= soon)
    publishers.waited.clear()
    publishers.up.set()
    return Kill(at, soon - held_up_s)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _unsettled(receiver: Receiver, kills: list[Kill]) -> int:
    """How many may be repeated, over all kills."""
    arrivals = [when for times in receiver.arrivals.values() for when in times]
    return sum(kill.since <= when <= kill.at + READ_S for kill in kills for when in arrivals)


def _explained(receiver: Receiver, kills: list[Kill]) -> tuple[int, float]:
    """How many repeats no kill explains, and how long before its kill the earliest was sent."""
    unexplained, longest_s = 0, 0.0
    for times in receiver.arrivals.values():
        for first, second in itertools.pairwise(times):
            between = [it for it in kills if first - READ_S <= it.at <= second]
            unexplained += not between or first < between[0].since
            longest_s = max(longest_s, between[0].at - first if between else 0.0)
    return unexplained, longest_s


def _lines(file: Path) -> list[str]:
    return file.read_text().split()


async def _all_arrived(sent: Path, receiver: Receiver) -> None:
    """Until all that was acknowledged has arrived, or nothing has come for three seconds."""
    wanted = set(_lines(sent))
    quiet, last = 0.0, -1
    while wanted - set(receiver.arrivals) and quiet < 3:
        await asyncio.sleep(0.05)
        quiet = quiet + 0.05 if len(receiver.arrivals) == last else 0.0
        last = len(receiver.arrivals)
