"""Publishers that do not wait for each other: an event is due at its time, a few in each request.

A request is made again, with the same ids, at another process until somebody has said 202.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from acceptance.running import Line
from fleet.judge import Facts

RESPONSE_WITHIN_S = 3.0
AVOID_S = 1.0  # who did not respond is not asked for a while, as a load balancer does it
AT_A_TIME = 64  # requests
EVENTS_MAX = 20  # in one
TICK_S = 0.01
AGAIN_S = (0.05, 0.1, 0.2, 0.5)


class Api(Protocol):
    """A server that accepts events."""

    number: int

    def line(self) -> Line: ...


class Load:
    """Events at a rate, to the API processes."""

    def __init__(self, api: Sequence[Api], facts: Facts, *, urls: int, seed: int) -> None:
        self._api, self._facts, self._urls = api, facts, urls
        self._rng = random.Random(seed)
        self._free: dict[int, list[Line]] = defaultdict(list)
        self._avoid: dict[int, float] = defaultdict(float)
        self._room = asyncio.Semaphore(AT_A_TIME)
        self.lag_s = 0.0  # how late this program itself was at most

    async def run(self, *, rate: float, seconds: float, until: Callable[[], bool]) -> None:
        """For so long, and on until ``until`` is true."""
        began, made = time.monotonic(), 0
        tasks: set[asyncio.Task[None]] = set()
        while (passed := time.monotonic() - began) < seconds or not until():
            while due := min(int(passed * rate) - made, EVENTS_MAX):
                await self._room.acquire()
                task = asyncio.create_task(self._publish(range(made, made + due)))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                made += due
            before = time.monotonic()
            await asyncio.sleep(TICK_S)
            self.lag_s = max(self.lag_s, time.monotonic() - before - TICK_S)
        await asyncio.gather(*tasks)
        for lines in self._free.values():
            for line in lines:
                line.close()

    async def _publish(self, numbers: range) -> None:
        events = [
            {"id": f"e-{n}", "type": f"t.{self._rng.randrange(self._urls)}", "data": {"n": n}}
            for n in numbers
        ]
        self._facts.sent.update({str(it["id"]): it["data"] for it in events})
        tries = 0
        try:
            while not await self._asked(events):
                await asyncio.sleep(AGAIN_S[min(tries, len(AGAIN_S) - 1)])
                tries += 1
        finally:
            self._room.release()

    async def _asked(self, events: list[dict[str, Any]]) -> bool:
        now = time.monotonic()
        well = [it for it in self._api if self._avoid[it.number] <= now]
        api = self._rng.choice(well or list(self._api))
        free = self._free[api.number]
        line = free.pop() if free else api.line()
        try:
            async with asyncio.timeout(RESPONSE_WITHIN_S):
                reply = await line.ask("POST", "/v1/events", events)
        except (OSError, EOFError, TimeoutError):
            line.close()
            self._avoid[api.number] = time.monotonic() + AVOID_S
            return False
        free.append(line)
        if reply.status == 202:
            self._facts.acked.update(dict.fromkeys((it["id"] for it in events), time.time()))
        return reply.status == 202
