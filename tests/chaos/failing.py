"""A whole server whose writes and syncs fail with EIO or ENOSPC, once or for ever after.

After one failure it must go on by itself. While all fail it must stay alive and refuse; and after a
restart on a sound disk all that was acknowledged must arrive.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from acceptance.running import HONEST, Receiver, Server
from chaos.integrity import integrity
from chaos.syscalls import Point, Tale, end_it, points_of, prepared, some_of, traced

ERRORS = ("EIO", "ENOSPC")
CALLS = ("pwrite64", "fdatasync", "ftruncate")
FAILING_S = 3.0
FIRED_MIN = 0.8  # Calls are counted in one life of the story; another may need fewer.


@dataclass
class Failures:
    """What the failures came to."""

    seed: int
    events: int
    points: int = 0
    runs: int = 0
    fired: int = 0
    of: dict[str, int] = field(default_factory=dict)  # fired, by each call of the story
    acknowledged: int = 0
    lost: int = 0
    unexpected: int = 0
    duplicated: int = 0
    dead: int = 0  # the server ended, or did not go on after a single failure
    corrupt: int = 0
    first: list[str] = field(default_factory=list)

    @property
    def fired_enough(self) -> bool:
        return self.fired >= FIRED_MIN * self.runs and all(self.of.values())

    @property
    def bad(self) -> int:
        return self.lost + self.unexpected + self.dead + self.corrupt


async def fail_at_calls(
    folder: Path,
    *,
    events: int,
    seed: int,
    most: int,
    at_first: bool = False,
    argv: tuple[str, ...] = HONEST,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Failures:
    """At ``most`` points of a story, each with one of the errors, once and for ever in turn.

    With ``at_first`` all fails from the first write on: a build that acknowledges all the same has
    then nothing of it.
    """
    toll, rng = Failures(seed, events), random.Random(seed)
    async with Receiver(folder / "arrived", delay_s=0.005).listening() as receiver:
        data = await prepared(folder / "prepared", receiver)
        points: list[Point] = []
        for writer in ("process", "thread"):
            found = await points_of(folder, data, receiver, writer, events=events)
            points += [it for it in found if it.call in CALLS and it.serving]
        if at_first:
            points = [it for it in points if it[:2] == ("thread", "pwrite64")][:1]
        toll.points = len(points)
        toll.of = dict.fromkeys((it.call for it in points), 0)
        for number, chosen in enumerate(some_of(points, most, rng)):
            progress(number, most)
            # A story is not the same twice: where this call did not come, the earliest such does.
            earliest = min(
                (it for it in points if it.call == chosen.call), key=lambda it: it.number
            )
            for point in (chosen, earliest):
                receiver.arrivals.clear()
                here, trace = folder / "here", folder / "trace"
                shutil.copytree(data, here)
                server = traced(here, trace, point.writer, argv)
                tale = Tale(server, receiver, events=events)
                for_ever = at_first or number % 2 == 1
                error = rng.choice(ERRORS)
                when = f"{point.number}+" if for_ever else str(point.number)
                server.environ["CHAOS_INJECT"] = f"{point.call}:error={error}:when={when}"
                trouble = await _live(server, tale, for_ever=for_ever)
                toll.dead += bool(trouble)
                fired = "INJECTED" in trace.read_text()
                toll.fired += fired
                toll.of[point.call] += fired
                trouble += await _after(toll, server, tale, receiver)
                toll.first += [f"{error} {point} {when}: {it}" for it in trouble]
                shutil.rmtree(here)
                if fired:
                    break
    return toll


async def _live(server: Server, tale: Tale, *, for_ever: bool) -> list[str]:
    """What went wrong while the disk failed."""
    try:
        await server.start()
        await tale.tell(within_s=FAILING_S if for_ever else FAILING_S * 3)
    except TimeoutError:
        if not for_ever:
            return ["does not go on after one failure"]
    except (OSError, EOFError, AssertionError) as error:
        return [f"died: {error!r}"]
    try:
        alive = (await server.line().ask("GET", "/healthz")).status == 200
    except (OSError, EOFError):
        alive = False
    return [] if alive else ["does not respond while the disk fails"]


async def _after(toll: Failures, server: Server, tale: Tale, receiver: Receiver) -> list[str]:
    """Restart on a sound disk, and count."""
    await end_it(server)
    server.argv = HONEST
    await server.start()
    await tale.told()
    await asyncio.sleep(0.05)
    assert await server.terminate() == 0
    seen = set(receiver.arrivals)
    toll.runs += 1
    toll.acknowledged += len(tale.acknowledged)
    lost = tale.acknowledged - seen
    toll.lost += len(lost)
    toll.unexpected += len(seen - tale.asked)
    toll.duplicated += sum(len(times) - 1 for times in receiver.arrivals.values())
    toll.corrupt += integrity(server.data) != "ok"
    return [f"{len(lost)} lost"] if lost else []
