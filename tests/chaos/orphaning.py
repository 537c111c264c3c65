"""The writer's process killed alone, again and again, under a server that lives on.

What it was asked is refused or done again; the server starts another writer. Nothing is lost, and
nothing is sent twice: the outcomes are still in the server's memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceptance.killing import Publishers
from acceptance.running import HONEST, Receiver, Server
from chaos.integrity import integrity

PUBLISHERS = 6
AHEAD_MAX = 1_000  # events that have not arrived: one URL gets few hundred in a second
ARRIVE_S = 20.0
SETTLE_S = 5.0
WRITER_S = 20.0  # A new writer is there long before, and at work.


@dataclass
class Orphans:
    """What the run came to."""

    seed: int
    kills: int
    wanted: int  # kills
    acknowledged: int
    lost: int
    unexpected: int
    duplicated: int
    accepted: int  # deliveries in the ledger
    pending: int  # there, though all have arrived and there was time to settle them
    balance: int  # accepted - delivered - pending - dropped - cancelled
    asked: int  # different ids ever published: accepted must be the same
    dead: int  # the server itself ended
    integrity: str

    @property
    def fired_enough(self) -> bool:
        return self.kills == self.wanted

    @property
    def outcomes_lost(self) -> int:
        """Sent, and not in the store as sent: still pending, or read from there and sent again."""
        return self.pending + self.duplicated

    @property
    def bad(self) -> int:
        wrong = self.integrity != "ok" or self.accepted != self.asked or self.balance != 0
        sent = self.lost + self.unexpected + self.duplicated
        return sent + self.pending + self.dead + wrong


def children(pid: int) -> list[int]:
    """The processes that this one has started."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # It may end meanwhile.
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    return found


async def kill_the_writer(
    folder: Path,
    *,
    kills: int,
    seed: int,
    argv: tuple[str, ...] = HONEST,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Orphans:
    """Each kill comes while an attempt is in flight and a publish is unanswered."""
    rng = random.Random(seed)
    server = Server(folder / "data", argv=argv, environ={"HOMING_WRITER": "process"})
    sent = folder / "acknowledged"
    sent.touch()
    killed: set[int] = set()
    async with Receiver(folder / "arrived").listening() as receiver:
        await server.start()
        assert server.process is not None
        document = {"url": receiver.url, "types": ["*"]}
        made = await server.line().ask("POST", "/v1/subscriptions", document)
        assert made.status == 201, made.body
        publishers = Publishers(server, sent)
        publishers.up.set()
        publishers.may_go_on = lambda: len(publishers.asked) - len(receiver.arrivals) < AHEAD_MAX
        tasks = [asyncio.create_task(publishers.publish_for_ever()) for _ in range(PUBLISHERS)]
        for number in range(kills):
            progress(number, kills)
            await asyncio.sleep(0.3 + 0.3 * rng.random())
            found = await _killed(server.process.pid, receiver, publishers, before=killed)
            if not found:
                break
            killed |= found
        publishers.stopping = True
        await asyncio.wait(tasks, timeout=ARRIVE_S)
        wanted = set(sent.read_text().split())
        until = time.monotonic() + ARRIVE_S
        while wanted - set(receiver.arrivals) and time.monotonic() < until:
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)  # for what should not come
        ledger = await _settled(server)
        code = await server.terminate()
    done = sum(ledger[it] for it in ("delivered", "pending", "dropped", "cancelled"))
    return Orphans(
        seed=seed,
        kills=len(killed),
        wanted=kills,
        acknowledged=len(wanted),
        lost=len(wanted - set(receiver.arrivals)),
        unexpected=len(set(receiver.arrivals) - publishers.asked),
        duplicated=sum(len(times) - 1 for times in receiver.arrivals.values()),
        accepted=ledger["accepted"],
        pending=ledger["pending"],
        balance=ledger["accepted"] - done,
        asked=len(publishers.asked),
        dead=int(code != 0),
        integrity=integrity(folder / "data"),
    )


async def _killed(
    pid: int, receiver: Receiver, publishers: Publishers, *, before: set[int]
) -> set[int]:
    """Kill the writer at such a moment; empty: none came in time."""
    until = time.monotonic() + WRITER_S
    while time.monotonic() < until:
        writers = [it for it in children(pid) if it not in before]
        if writers and receiver.in_flight and publishers.unanswered:
            os.kill(writers[0], signal.SIGKILL)
            return {writers[0]}
        await asyncio.sleep(0.01)
    return set()


async def _settled(server: Server) -> dict[str, Any]:
    """The ledger when nothing is pending any more, or when it takes too long."""
    until = time.monotonic() + SETTLE_S
    while True:
        ledger: dict[str, Any] = (await server.line().ask("GET", "/v1/ledger")).json["items"][0]
        if not ledger["pending"] or time.monotonic() > until:
            return ledger
        await asyncio.sleep(0.05)
