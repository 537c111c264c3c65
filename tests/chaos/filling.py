"""A disk that fills up under load and has space again: nothing lost, no restart, soon back.

The data lies on a small tmpfs, filled by a ballast file. Where mounting is not allowed, a limit on
the size of the server's files takes its place; the run says which of the two it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from acceptance.running import HONEST, Line, Receiver, Server
from chaos.integrity import integrity
from chaos.orphaning import children

DISK_MB = 64  # its log alone takes 16 MB before it is written back
ROOM_BYTES = 192 * 1024  # what is left when the ballast is in
FULL_S = 1.5  # how long it stays full after the first refusal
PUBLISHERS = 4
DATA = "x" * 2_000
BACK_MAX_S = 5.0
WAIT_S = 30.0


@dataclass
class Fillings:
    """What the run came to."""

    disk: str  # tmpfs or a limit
    rounds: int
    filled: int  # rounds in which a publish was refused
    refused: int
    acknowledged: int
    lost: int
    unexpected: int
    duplicated: int
    restarts: int
    other_responses: int  # neither 202 nor 503
    slowest_s: float  # from space to the next 202
    integrity: str

    @property
    def fired_enough(self) -> bool:
        return self.filled == self.rounds

    @property
    def bad(self) -> int:
        wrong = (
            self.integrity != "ok"
            or self.filled != self.rounds
            or self.slowest_s > BACK_MAX_S
            or self.restarts > 0
        )
        return self.lost + self.unexpected + self.other_responses + wrong


class Ballast:
    """A file that takes the space of a small disk."""

    name = f"tmpfs of {DISK_MB} MB"

    def __init__(self, disk: Path) -> None:
        self._disk, self._file = disk, disk / "ballast"

    def fill(self, _server: Server) -> None:
        with self._file.open("wb", buffering=0) as out, contextlib.suppress(OSError):
            while True:
                out.write(bytes(64 * 1024))
        size = self._file.stat().st_size
        with self._file.open("r+b") as out:
            out.truncate(max(0, size - ROOM_BYTES))

    def clear(self, _server: Server) -> None:
        self._file.unlink()


class Limit:
    """No file of the server may grow; SQLite sees it as a full disk."""

    name = "NO MOUNT ALLOWED: a limit on the size of files"

    def _set(self, server: Server, bytes_most: int) -> None:
        assert server.process is not None
        for pid in (server.process.pid, *children(server.process.pid)):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (bytes_most, resource.RLIM_INFINITY))

    def fill(self, server: Server) -> None:
        sizes = [it.stat().st_size for it in server.data.glob("homing.db*")]
        self._set(server, max(sizes) + ROOM_BYTES)

    def clear(self, server: Server) -> None:
        self._set(server, resource.RLIM_INFINITY)


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[tuple[Path, Ballast | Limit]]:
    """Where the data goes, and what fills it."""
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "none", str(disk)]
    try:
        fine = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        fine = False
    if not fine:
        yield disk, Limit()
        return
    try:
        yield disk, Ballast(disk)
    finally:
        subprocess.run(["umount", str(disk)], check=False)


class Load:
    """Publishers that take 503 for a response and publish the next one."""

    def __init__(self, server: Server) -> None:
        self._server, self._numbers = server, itertools.count(1)
        self.acknowledged: set[str] = set()
        self.asked: set[str] = set()
        self.refused = self.others = 0
        self.last_refused = self.last_accepted = 0.0
        self.stopping = False

    async def publish_for_ever(self) -> None:
        line = self._server.line()
        while not self.stopping:
            key = f"fill-{next(self._numbers)}"
            self.asked.add(key)
            await self._publish(line, key)
            await asyncio.sleep(0.01)
        line.close()

    async def _publish(self, line: Line, key: str) -> None:
        document = {"type": "fill.up", "id": key, "data": {"id": key, "much": DATA}}
        try:
            reply = await line.ask("POST", "/v1/events", document)
        except (OSError, EOFError):
            self.others += 1
            return
        match reply.status:
            case 202:
                self.acknowledged.add(key)
                self.last_accepted = time.monotonic()
            case 503:
                self.refused += 1
                self.last_refused = time.monotonic()
            case _:
                self.others += 1


async def fill_again_and_again(
    folder: Path,
    *,
    rounds: int,
    argv: tuple[str, ...] = HONEST,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Fillings:
    """Fill, stay full, make room, and see how long until it accepts again."""
    with small_disk(folder) as (disk, filler):
        server = Server(disk / "data", argv=argv)
        server.data.mkdir()
        async with Receiver(folder / "arrived").listening() as receiver:
            await server.start()
            assert server.process is not None
            document = {"url": receiver.url, "types": ["*"]}
            made = await server.line().ask("POST", "/v1/subscriptions", document)
            assert made.status == 201, made.body
            load = Load(server)
            tasks = [asyncio.create_task(load.publish_for_ever()) for _ in range(PUBLISHERS)]
            filled, back = 0, [0.0]
            for number in range(rounds):
                progress(number, rounds)
                await asyncio.sleep(0.3)
                filled += await _full(load, filler, server)
                back.append(await _accepts_again(load, filler, server))
            load.stopping = True
            await asyncio.gather(*tasks)
            await _arrived(load, receiver)
            ended = server.process.returncode is not None or await server.terminate() != 0
        said = integrity(server.data)
    seen = set(receiver.arrivals)
    return Fillings(
        disk=filler.name,
        rounds=rounds,
        filled=filled,
        refused=load.refused,
        acknowledged=len(load.acknowledged),
        lost=len(load.acknowledged - seen),
        unexpected=len(seen - load.asked),
        duplicated=sum(len(times) - 1 for times in receiver.arrivals.values()),
        restarts=int(ended),
        other_responses=load.others,
        slowest_s=round(max(back), 2),
        integrity=said,
    )


async def _full(load: Load, filler: Ballast | Limit, server: Server) -> bool:
    filler.fill(server)
    began, refused = time.monotonic(), load.refused
    while load.refused == refused and time.monotonic() < began + WAIT_S / 3:
        await asyncio.sleep(0.01)
    await asyncio.sleep(FULL_S)
    return load.refused > refused


async def _accepts_again(load: Load, filler: Ballast | Limit, server: Server) -> float:
    filler.clear(server)
    began = time.monotonic()
    while load.last_accepted < began and time.monotonic() < began + WAIT_S:
        await asyncio.sleep(0.01)
    return time.monotonic() - began


async def _arrived(load: Load, receiver: Receiver) -> None:
    until = time.monotonic() + WAIT_S / 2
    while load.acknowledged - set(receiver.arrivals) and time.monotonic() < until:
        await asyncio.sleep(0.05)
