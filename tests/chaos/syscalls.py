"""A SIGKILL at every write, sync, send and connect of a small story, by strace.

First the story runs once and its calls are counted; then once for every point, each time on a copy
of the same data. Whatever was killed, server or writer, in the end all must have arrived.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import shlex
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from acceptance.running import HONEST, Line, Receiver, Server
from chaos.integrity import integrity
from chaos.orphaning import children

CALLS = "pwrite64,fdatasync,fsync,ftruncate,write,writev,sendto,sendmsg,connect"
TRACED = (str(Path(__file__).with_name("traced.py")),)
WAIT_S = 10.0
READY_S = 20.0
TRACED_S = 4.0
FIRED_MIN = 0.8  # Calls are counted in one life of the story; another may need fewer.


class Point(NamedTuple):
    """Where to kill."""

    writer: str  # how the server commits: process or thread
    call: str
    number: int
    serving: bool = True  # not while it starts


@dataclass
class Points:
    """What the kills came to."""

    seed: int
    events: int
    points: int = 0  # of the story
    runs: int = 0
    fired: int = 0
    of: dict[str, int] = field(default_factory=dict)  # fired, by each call of the story
    acknowledged: int = 0
    lost: int = 0
    unexpected: int = 0
    duplicated: int = 0
    bad_restarts: int = 0
    corrupt: int = 0
    first: list[str] = field(default_factory=list)

    @property
    def fired_enough(self) -> bool:
        return self.fired >= FIRED_MIN * self.runs and all(self.of.values())

    @property
    def bad(self) -> int:
        return self.lost + self.unexpected + self.bad_restarts + self.corrupt


class Tale:
    """Some requests of a few events each, published one after the other until all are accepted."""

    def __init__(self, server: Server, receiver: Receiver, *, events: int) -> None:
        self._server, self._receiver = server, receiver
        keys = [f"point-{number}" for number in range(events)]
        self._requests = [keys[at : at + 5] for at in range(0, events, 5)]
        self.acknowledged: set[str] = set()
        self.asked = set(keys)

    async def tell(self, *, within_s: float = WAIT_S) -> None:
        """Raises OSError or EOFError when the server is gone."""
        async with asyncio.timeout(within_s):
            await self._tell()

    async def told(self) -> bool:
        """Whether all was accepted, has arrived and is settled, after a time that is enough."""
        try:
            await self.tell()
        except TimeoutError:
            return False
        return True

    async def _tell(self) -> None:
        line = self._server.line()
        try:
            for request in self._requests:
                if not self.acknowledged.issuperset(request):
                    await self._publish(line, request)
            while self.acknowledged - set(self._receiver.arrivals):
                await asyncio.sleep(0.01)
                await line.ask("GET", "/healthz")
            while (await line.ask("GET", "/v1/ledger")).json["items"][0]["pending"]:
                await asyncio.sleep(0.01)
        finally:
            line.close()

    async def _publish(self, line: Line, keys: list[str]) -> None:
        events = [{"type": "point.x", "id": key, "data": {"id": key}} for key in keys]
        while (reply := await line.ask("POST", "/v1/events", events)).status == 503:
            await asyncio.sleep(0.05)
        assert reply.status == 202, reply.body
        self.acknowledged.update(keys)


async def kill_at_every_call(
    folder: Path,
    *,
    events: int,
    seed: int,
    most: int | None = None,
    at_responses: bool = False,
    argv: tuple[str, ...] = HONEST,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Points:
    """At every point of the story, or at ``most`` points drawn from all kinds alike.

    With ``at_responses`` at the first writes to a socket while serving: a build that
    responds too early has then confirmed events that it has not yet committed.
    """
    toll = Points(seed, events)
    async with Receiver(folder / "arrived", delay_s=0.005).listening() as receiver:
        data = await prepared(folder / "prepared", receiver)
        points: list[Point] = []
        for writer in ("process", "thread"):
            points += await points_of(folder, data, receiver, writer, events=events)
        if at_responses:
            points = [it for it in points if it[:2] == ("process", "write") and it.serving][2:8]
        toll.points = len(points)
        toll.of = dict.fromkeys((it.call for it in points), 0)
        chosen = points if most is None else some_of(points, most, random.Random(seed))
        for number, point in enumerate(chosen):
            progress(number, len(chosen))
            await _run_at(toll, point, folder, data, receiver, argv)
        for point in _once_more(toll, points, chosen):
            await _run_at(toll, point, folder, data, receiver, argv)
    return toll


async def _run_at(
    toll: Points,
    point: Point,
    folder: Path,
    data: Path,
    receiver: Receiver,
    argv: tuple[str, ...],
) -> None:
    """The story once, on a copy of the data, with a kill at this point."""
    receiver.arrivals.clear()
    here, trace = folder / "here", folder / "trace"
    shutil.copytree(data, here)
    server = traced(here, trace, point.writer, argv)
    try:
        await _kill_at(toll, point, server, trace, receiver)
    except (TimeoutError, AssertionError) as error:
        toll.bad_restarts += 1
        toll.first.append(f"{point}: {error!r}")
        await end_it(server)
    shutil.rmtree(here)


def _once_more(toll: Points, points: list[Point], chosen: list[Point]) -> list[Point]:
    """Of a call that had its turns and never fired, the first, which surely comes."""
    tried = {it.call for it in chosen}
    firsts = {it.call: it for it in points if it.number == 1}
    return [it for call, it in firsts.items() if call in tried and not toll.of[call]]


def some_of(points: list[Point], most: int, rng: random.Random) -> list[Point]:
    """Every kind of call has its turn."""
    kinds: dict[tuple[str, str], list[Point]] = {}
    for point in rng.sample(points, len(points)):
        kinds.setdefault((point.writer, point.call), []).append(point)
    chosen: list[Point] = []
    while len(chosen) < min(most, len(points)):
        chosen += [pile.pop() for pile in kinds.values() if pile]
    return chosen[:most]


async def prepared(data: Path, receiver: Receiver) -> Path:
    server = Server(data)
    await server.start()
    document = {"url": receiver.url, "types": ["point.*"]}
    made = await server.line().ask("POST", "/v1/subscriptions", document)
    assert made.status == 201, made.body
    assert await server.terminate() == 0
    return data


async def points_of(
    folder: Path, data: Path, receiver: Receiver, writer: str, *, events: int
) -> list[Point]:
    """How often each call is made, in the thread that makes it most."""
    here, trace = folder / "counted", folder / "trace"
    shutil.copytree(data, here)
    server = traced(here, trace, writer, HONEST)
    receiver.arrivals.clear()
    await server.start()
    before = _made(trace)
    await Tale(server, receiver, events=events).tell()
    await end_it(server)
    shutil.rmtree(here)
    made = _made(trace)
    most = {call: (thread, call) for (thread, call), _ in reversed(made.most_common())}
    return [
        Point(writer, call, number, serving=number > before[key])
        for call, key in most.items()
        for number in range(1, made[key] + 1)
    ]


def _made(trace: Path) -> Counter[tuple[str, str]]:
    """How often each thread has made each call."""
    return Counter(re.findall(r"^(\d+) +(\w+)\(", trace.read_text(), re.MULTILINE))


def traced(data: Path, trace: Path, writer: str, argv: tuple[str, ...]) -> Server:
    environ = {
        "CHAOS_PROGRAM": shlex.join(argv),
        "CHAOS_TRACE": str(trace),
        "CHAOS_CALLS": CALLS,
        "HOMING_WRITER": writer,
    }
    return Server(data, argv=TRACED, environ=environ)


async def _kill_at(
    toll: Points, point: Point, server: Server, trace: Path, receiver: Receiver
) -> None:
    server.environ["CHAOS_INJECT"] = f"{point.call}:signal=SIGKILL:when={point.number}"
    tale = Tale(server, receiver, events=toll.events)
    ready = False
    try:
        async with asyncio.timeout(READY_S):
            await server.start()
        ready = True
        await tale.tell(within_s=TRACED_S)
    except TimeoutError:
        assert point.writer == "process"  # Every new writer may be killed at the same point.
    except (OSError, EOFError):
        await _written_down(server)  # It was killed while it served …
    except AssertionError:
        assert not ready  # … or before.
        await _written_down(server)
    finally:
        fired = "killed by SIGKILL" in trace.read_text()  # before we kill the rest
        await end_it(server)
    toll.runs += 1
    toll.fired += fired
    toll.of[point.call] += fired
    server.argv = HONEST
    await server.start()
    in_time = await tale.told()
    assert await server.terminate() == 0
    seen = set(receiver.arrivals)
    lost = tale.acknowledged - seen
    toll.acknowledged += len(tale.acknowledged)
    toll.lost += len(lost)
    toll.unexpected += len(seen - tale.asked)
    toll.duplicated += sum(len(times) - 1 for times in receiver.arrivals.values())
    toll.corrupt += integrity(server.data) != "ok"
    if lost:
        toll.first.append(f"{point}: {len(lost)} lost")
    assert in_time or lost, "not all was accepted and settled in time"


async def _written_down(server: Server) -> None:
    """The server has ended: strace says so in its trace, a little later, and ends too."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(server.gone(), WAIT_S)


async def end_it(server: Server) -> None:
    """Kill what strace has started, so that strace ends by itself; or the server itself."""
    if server.process is not None and server.process.returncode is None:
        if server.argv is not TRACED:
            server.kill()
        for pid in children(server.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.wait_for(server.gone(), 10)
