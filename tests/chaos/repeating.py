"""The same ids published by many at once while the server is killed: one event for each id.

Judged by what the API lists, by its ledger, and by what the receiver saw.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from acceptance.running import HONEST, Line, Receiver, Server
from chaos.integrity import integrity

PUBLISHERS = 24
QUIET_S = 5.0
EARLY = 0.9  # The last kill must not come when all is published.


@dataclass
class Repeats:
    """What the run came to."""

    seed: int
    kills: int
    wanted: int  # kills
    ids: int
    copies: int
    publishes: int  # that were answered with 202
    repeated: int  # after a broken connection
    events_per_id_most: int
    missing: int  # ids without an event
    doubled: int  # ids with more than one
    accepted: int  # deliveries in the ledger; one subscription, so one for each id
    lost: int  # never arrived
    refused: int  # other responses than 202
    integrity: str

    @property
    def fired_enough(self) -> bool:
        return self.kills == self.wanted

    @property
    def bad(self) -> int:
        wrong = (
            self.accepted != self.ids
            or self.publishes != self.ids * self.copies
            or self.integrity != "ok"
        )
        return self.missing + self.doubled + self.lost + self.refused + wrong


class Crowd:
    """Publishers that all take from one pile of ids, the same ids next to each other."""

    def __init__(self, server: Server, pile: list[str]) -> None:
        self._server, self._pile = server, pile[::-1]
        self.up = asyncio.Event()
        self.responded = self.unanswered = self.repeated = self.refused = 0

    async def publish_all(self) -> None:
        line = self._server.line()
        while self._pile:
            key = self._pile.pop()
            while not await self._published(line, key):
                self.repeated += 1
                await self.up.wait()
        line.close()

    async def _published(self, line: Line, key: str) -> bool:
        self.unanswered += 1
        try:
            document = {"type": "same.id", "id": key, "data": {"id": key}}
            reply = await line.ask("POST", "/v1/events", document)
        except (OSError, EOFError):
            await asyncio.sleep(0.01)
            return False
        finally:
            self.unanswered -= 1
        self.responded += reply.status == 202
        self.refused += reply.status != 202
        return True


async def publish_the_same(
    folder: Path, *, ids: int, copies: int, kills: int, seed: int, argv: tuple[str, ...] = HONEST
) -> Repeats:
    """``ids`` ids, each published ``copies`` times, and so many kills spread over it."""
    rng = random.Random(seed)
    keys = [f"same-{number}" for number in range(ids)]
    server = Server(folder / "data", argv=argv)
    async with Receiver(folder / "arrived").listening() as receiver:
        await server.start()
        document = {"url": receiver.url, "types": ["same.*"]}
        made = await server.line().ask("POST", "/v1/subscriptions", document)
        assert made.status == 201, made.body
        crowd = Crowd(server, [key for key in keys for _ in range(copies)])
        tasks = [asyncio.create_task(crowd.publish_all()) for _ in range(PUBLISHERS)]
        crowd.up.set()
        killed = 0
        for number in range(kills):
            wanted = (number + rng.random()) * EARLY * ids * copies / kills
            killed += await _killed(server, crowd, tasks, after=wanted)
        await asyncio.gather(*tasks)
        await _quiet(receiver, set(keys))
        listed = await _listed(server.line())
        ledger = (await server.line().ask("GET", "/v1/ledger")).json["items"]
        assert await server.terminate() == 0
    return Repeats(
        seed=seed,
        kills=killed,
        wanted=kills,
        ids=ids,
        copies=copies,
        publishes=crowd.responded,
        repeated=crowd.repeated,
        events_per_id_most=max(listed.values()),
        missing=len(set(keys) - set(listed)),
        doubled=sum(count > 1 for count in listed.values()),
        accepted=sum(item["accepted"] for item in ledger),
        lost=len(set(keys) - set(receiver.arrivals)),
        refused=crowd.refused,
        integrity=integrity(folder / "data"),
    )


async def _killed(
    server: Server, crowd: Crowd, tasks: list[asyncio.Task[None]], *, after: float
) -> bool:
    """Kill it while a publish is unanswered, and start it again; False: all is published."""
    while not (crowd.responded >= after and crowd.unanswered):
        if all(task.done() for task in tasks):
            return False
        await asyncio.sleep(0)
    crowd.up.clear()
    server.kill()
    await server.gone()
    await server.start()
    crowd.up.set()
    return True


async def _listed(line: Line) -> Counter[str]:
    """All events that the API tells of, by id."""
    found: Counter[str] = Counter()
    cursor = ""
    for _ in itertools.count():
        page = (await line.ask("GET", f"/v1/events?type=same.id&limit=200{cursor}")).json
        found.update(item["id"] for item in page["items"])
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"
    raise AssertionError


async def _quiet(receiver: Receiver, wanted: set[str]) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + QUIET_S
    while wanted - set(receiver.arrivals) and loop.time() < until:
        await asyncio.sleep(0.05)
