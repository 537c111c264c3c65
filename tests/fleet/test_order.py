"""Order by key at two real processes on one PostgreSQL, of which one stops and starts again.

Events of a few keys are published at both processes in turn, each after the response to the one
before. One process is stopped while its deliveries wait. A receiver must see each key in order.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from fleet.house import Process, Receiver
from fleet.judge import Arrival
from fleet.test_erasures import ask, crew_of
from homing.model import bucket_of
from homing.policy.bucket_shares import BUCKETS
from postgres import Server

URLS, KEYS, EVENTS, BATCH = 6, 5, 120, 10  # each key twice in a batch
DELAY_S = 0.1
WITHIN_S = 90.0  # an upper bound only, for a busy machine


async def publish(crew: list[Process], numbers: range) -> None:
    """One batch after the other, at the processes that are up in turn."""
    for first in numbers[::BATCH]:
        up = [it for it in crew if it.up]
        line = up[first // BATCH % len(up)].line()
        batch = [
            {"type": "a.b", "id": f"e-{n}", "key": f"k-{n % KEYS}", "data": n}
            for n in range(first, first + BATCH)
        ]
        await ask(line, "POST", "/v1/events", batch)
        line.close()


def urls_of_both_halves(port: int) -> list[str]:
    """URLs of which each process owns some: half of them have a bucket in each half."""
    halves: dict[bool, list[str]] = {False: [], True: []}
    for number in range(1_000):
        url = f"http://127.0.0.1:{port}/{number}"
        halves[bucket_of("default", url) < BUCKETS // 2].append(url)
    return [url for half in halves.values() for url in half[: URLS // 2]]


def disorder(arrivals: list[Arrival]) -> list[tuple[Arrival, Arrival]]:
    """Of one URL and key: requests after that of a later event, or while another is held."""
    last: dict[tuple[str, int], Arrival] = {}
    seen: set[tuple[str, str]] = set()
    found = []
    for it in arrivals:
        if (it.path, it.key) in seen:
            continue  # A process that stopped had not stored the response.
        seen.add((it.path, it.key))
        before = last.get((it.path, it.data % KEYS))
        if before is not None and (before.data > it.data or it.at < before.at + DELAY_S):
            found.append((before, it))
        last[it.path, it.data % KEYS] = it
    return found


@pytest.mark.parametrize("order", ["key", pytest.param("none", marks=pytest.mark.long)])
async def test_a_key_stays_in_order_while_a_process_stops_and_starts(
    postgres: Server, tmp_path: Path, order: str
) -> None:
    dsn = await postgres.make()
    async with (
        asyncio.timeout(WITHIN_S),
        Receiver(delay_s=DELAY_S).listening() as receiver,
        crew_of(("both", "both"), dsn, tmp_path) as crew,
    ):
        line = crew[0].line()
        for url in urls_of_both_halves(receiver.port):
            new = {"url": url, "types": ["*"], "order": order}
            await ask(line, "POST", "/v1/subscriptions", new)
        line.close()
        await publish(crew, range(EVENTS // 2))
        crew[1].signal(signal.SIGTERM)
        assert crew[1].process is not None
        stopped = asyncio.ensure_future(crew[1].process.wait())
        crew[1].stopped = True
        await publish(crew, range(EVENTS // 2, EVENTS))
        assert await stopped == 0
        await crew[1].start()
        while len({(it.path, it.key) for it in receiver.arrivals}) < URLS * EVENTS:
            await asyncio.sleep(0.05)

    assert len({it.who for it in receiver.arrivals}) > 1
    found = disorder(receiver.arrivals)
    assert not found if order == "key" else found, "without an order it must be seen"
