"""SIGTERM again and again under load: ends with 0 in time, nothing lost, nothing sent twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from acceptance.killing import Publishers
from acceptance.running import HONEST, Receiver, Server
from chaos.integrity import integrity

PUBLISHERS = 4
GRACE_S = 10.0
ARRIVE_S = 20.0


@dataclass
class Stops:
    """What the run came to."""

    stops: int
    acknowledged: int
    lost: int
    unexpected: int
    duplicated: int
    other_codes: int  # exits with something else than 0
    slowest_s: float
    integrity: str

    @property
    def fired_enough(self) -> bool:
        return self.stops > 0

    @property
    def bad(self) -> int:
        wrong = self.integrity != "ok" or not self.acknowledged or self.slowest_s > GRACE_S
        return self.lost + self.unexpected + self.duplicated + self.other_codes + wrong


async def stop_again_and_again(
    folder: Path,
    *,
    stops: int,
    argv: tuple[str, ...] = HONEST,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Stops:
    """Each stop comes while an attempt is in flight and a publish is unanswered."""
    environ = {"HOMING_GRACE_MS": f"{GRACE_S * 1000:.0f}"}
    server = Server(folder / "data", argv=argv, environ=environ)
    sent = folder / "acknowledged"
    sent.touch()
    codes: list[int] = []
    took: list[float] = []
    async with Receiver(folder / "arrived").listening() as receiver:
        await server.start()
        document = {"url": receiver.url, "types": ["*"]}
        made = await server.line().ask("POST", "/v1/subscriptions", document)
        assert made.status == 201, made.body
        publishers = Publishers(server, sent)
        publishers.up.set()
        tasks = [asyncio.create_task(publishers.publish_for_ever()) for _ in range(PUBLISHERS)]
        for number in range(stops):
            progress(number, stops)
            await asyncio.sleep(0.02 * (number % 5))
            while not (receiver.in_flight and publishers.unanswered):
                await asyncio.sleep(0)
            began = time.monotonic()
            codes.append(await _stopped(server))
            took.append(time.monotonic() - began)
            await server.start()
        publishers.stopping = True
        await asyncio.gather(*tasks)
        wanted = set(sent.read_text().split())
        until = time.monotonic() + ARRIVE_S
        while wanted - set(receiver.arrivals) and time.monotonic() < until:
            await asyncio.sleep(0.02)
        codes.append(await _stopped(server))
    return Stops(
        stops=stops,
        acknowledged=len(wanted),
        lost=len(wanted - set(receiver.arrivals)),
        unexpected=len(set(receiver.arrivals) - publishers.asked),
        duplicated=sum(len(times) - 1 for times in receiver.arrivals.values()),
        other_codes=sum(code != 0 for code in codes),
        slowest_s=round(max(took), 2),
        integrity=integrity(folder / "data"),
    )


async def _stopped(server: Server) -> int:
    """Its exit code; one that does not end is killed."""
    try:
        return await server.terminate()
    except TimeoutError:
        server.kill()
        return await server.gone()
