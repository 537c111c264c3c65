"""Kills a server again and again under load, and judges what was lost from two files.

The publisher's file has every id that was answered with 202, the receiver's file every id that
arrived. Our own tables are not asked. A kill counts only if an attempt was in flight and a publish
was unanswered at that moment.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from acceptance.running import HONEST, Line, Receiver, Server

PUBLISHERS = 6
SETTLED_S = 2.0  # an attempt is settled long before
READ_S = 0.2  # what a killed server had sent may be read a little later


@dataclass
class Toll:
    """What the run came to."""

    kills: int
    acknowledged: int
    lost: int
    unexpected: int
    duplicated: int
    unexplained: int  # duplicates without a kill between an attempt and its settling


class Publishers:
    """Publish for ever with ids of their own; an unanswered one is published again."""

    def __init__(self, server: Server, file: Path) -> None:
        self._server, self._file = server, file
        self._numbers: Iterator[int] = itertools.count(1)
        self.asked: set[str] = set()
        self.unanswered = 0
        self.up = asyncio.Event()
        self.stopping = False

    async def publish_for_ever(self) -> None:
        line = self._server.line()
        while not self.stopping:
            key = f"event-{next(self._numbers)}"
            self.asked.add(key)
            while not await self._published(line, key):
                await self.up.wait()
        line.close()

    async def _published(self, line: Line, key: str) -> bool:
        self.unanswered += 1
        try:
            reply = await line.ask(
                "POST", "/v1/events", {"type": "kill.test", "id": key, "data": {"id": key}}
            )
        except (OSError, EOFError):
            await asyncio.sleep(0.01)
            return False
        finally:
            self.unanswered -= 1
        if reply.status == 503:  # It is shutting down.
            line.close()
            return False
        assert reply.status == 202, reply.body
        with self._file.open("a") as out:
            out.write(key + "\n")
        return True


async def kill_again_and_again(folder: Path, *, kills: int, argv: tuple[str, ...] = HONEST) -> Toll:
    """Run the whole story in this folder."""
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
        killed_at: list[float] = []
        while len(killed_at) < kills:
            publishers.up.set()
            await asyncio.sleep(0.05 + 0.01 * (len(killed_at) % 7))
            while not (receiver.in_flight and publishers.unanswered):
                await asyncio.sleep(0)
            publishers.up.clear()
            server.kill()
            killed_at.append(asyncio.get_running_loop().time())
            await server.gone()
            await server.start()
        publishers.up.set()
        publishers.stopping = True
        await asyncio.gather(*tasks)
        await _all_arrived(sent, receiver)
        assert await server.terminate() == 0
    acknowledged, seen = _lines(sent), Counter(_lines(arrived))
    return Toll(
        kills=len(killed_at),
        acknowledged=len(acknowledged),
        lost=len(set(acknowledged) - set(seen)),
        unexpected=len(set(seen) - publishers.asked),
        duplicated=sum(seen.values()) - len(seen),
        unexplained=_unexplained(receiver, killed_at),
    )


def _unexplained(receiver: Receiver, killed_at: list[float]) -> int:
    """A second arrival is explained by a kill soon after the first one was sent."""
    return sum(
        not any(first - READ_S <= kill <= min(second, first + SETTLED_S) for kill in killed_at)
        for times in receiver.arrivals.values()
        for first, second in itertools.pairwise(times)
    )


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
