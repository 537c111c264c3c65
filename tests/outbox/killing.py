"""Kills relays again and again while applications publish, and judges from the application's word.

The application writes down every id whose transaction was committed, and no other. In the end the
events of Homing must be exactly those: none is missing, none is there twice or unasked. The
receiver's log shows that each was delivered.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from acceptance.running import KEY, Receiver, Server
from homing.store.outbox import open_outbox
from homing_client import AsyncHoming
from outbox.application import Application

RELAY = (sys.executable, "-m", "homing.cli.main", "relay")
WRITERS = 3


@dataclass
class Toll:
    """What the run came to."""

    kills: int
    committed: int
    rolled_back: int
    events: int
    lost: int
    unexpected: int
    doubled: int  # events that made more deliveries than one
    arrived: int
    refused: int


class Writers:
    """Applications that commit or roll back, by the dice."""

    def __init__(self, address: str, seed: int) -> None:
        self._address = address
        self._dice = random.Random(seed)
        self.committed: set[str] = set()
        self.rolled_back: set[str] = set()
        self.stopping = False

    async def write_for_ever(self) -> None:
        one = Application(self._address)
        while not self.stopping:
            keep = self._dice.random() < 0.7
            await asyncio.to_thread(self._transact, one, keep)
            await asyncio.sleep(self._dice.random() * 0.03)
        one.close()

    def _transact(self, one: Application, keep: bool) -> None:
        one.run("BEGIN IMMEDIATE" if one.kind == "sqlite" else "BEGIN")
        keys = {one.publish("kill.test", '{"n": 1}') for _ in range(3)}
        one.run("COMMIT" if keep else "ROLLBACK")
        (self.committed if keep else self.rolled_back).update(keys)


async def start_relay(address: str, server: Server) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *RELAY,
        "--database",
        address,
        "--server",
        f"http://127.0.0.1:{server.port}",
        "--key",
        KEY,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert await process.stdout.readline(), "the relay ended before it was ready"
    return process


@contextlib.asynccontextmanager
async def writing(writers: Writers) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(writers.write_for_ever()) for _ in range(WRITERS)]
    try:
        yield
    finally:
        writers.stopping = True
        await asyncio.gather(*tasks)


async def kill_relays(folder: Path, address: str, *, kills: int, seed: int = 1) -> Toll:
    """Run the whole story in this folder."""
    arrived = folder / "arrived"
    arrived.touch()
    dice = random.Random(seed)
    server = Server(folder / "data")
    writers = Writers(address, seed)
    outbox = open_outbox(address)
    async with Receiver(arrived, delay_s=0).listening() as receiver:
        await server.start()
        client = AsyncHoming(f"http://127.0.0.1:{server.port}", KEY)
        await client.subscribe(receiver.url, ["kill.*"])
        async with writing(writers):
            for _ in range(kills):
                relay = await start_relay(address, server)
                await asyncio.sleep(dice.random() * 0.3)
                relay.send_signal(signal.SIGKILL)
                await relay.wait()
        relay = await start_relay(address, server)
        async with asyncio.timeout(120):
            while (await outbox.stats()).waiting:
                await asyncio.sleep(0.05)
            events = [event async for event in client.events()]
            while set(receiver.arrivals) < {event.id for event in events}:
                await asyncio.sleep(0.05)
        relay.send_signal(signal.SIGTERM)
        assert await relay.wait() == 0
        refused = (await outbox.stats()).refused
        ids = [event.id for event in events]
        deliveries = sum(row.accepted for row in await client.ledger())
        await client.close()
        await outbox.close()
        await server.terminate()
    return Toll(
        kills=kills,
        committed=len(writers.committed),
        rolled_back=len(writers.rolled_back),
        events=len(ids),
        lost=len(writers.committed - set(ids)),
        unexpected=len(set(ids) - writers.committed),
        doubled=deliveries - len(writers.committed),
        arrived=len(receiver.arrivals),
        refused=refused,
    )
