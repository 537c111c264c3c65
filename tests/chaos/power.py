"""Power cuts at every point of a story: nothing acknowledged is lost, nothing is half there."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from chaos.cut import STYLES, Machine, Style, lay_out
from chaos.disk import Did, Disk, mounted
from chaos.story import Story, look, small_log, state_of
from homing.errors import StoreUnavailable
from homing.store.sqlite import SqliteDb

Progress = Callable[[int, int], None]
MEMORY = Path("/dev/shm")
UNSYNCED_MIN = 0.9  # of the cuts: right after a sync there is nothing to lose


@dataclass
class Cuts:
    """What the cuts came to."""

    seed: int
    points: int = 0  # of the journal
    cuts: int = 0
    unsynced: int = 0  # cuts that took or tore something
    twice: int = 0  # cuts again during the recovery
    acknowledged: int = 0  # commits, over all cuts
    lost: int = 0  # of them
    half: int = 0  # states that no commit ever left
    corrupt: int = 0  # integrity check or open failed
    kept: int = 0  # unacknowledged commits that were there whole
    first: list[str] = field(default_factory=list)  # the first failures, to look at

    @property
    def fired_enough(self) -> bool:
        return 0 < UNSYNCED_MIN * self.cuts <= self.unsynced

    @property
    def bad(self) -> int:
        return self.lost + self.half + self.corrupt


@dataclass
class Recording:
    """The journal of a story, and the state after each of its marks."""

    journal: list[Did]
    states: list[str]


async def tell(folder: Path, *, steps: int, seed: int, synchronous: str = "full") -> Recording:
    """Live the story once and write it down, the closing of the file included."""
    disk = Disk()
    states: list[str] = []
    with small_log(synchronous), mounted(disk):
        db = await SqliteDb.open(folder / "homing.db")

        async def mark() -> None:
            disk.did("mark", at=len(states))
            states.append(await state_of(db))

        story = Story(db, seed=seed)
        await mark()
        await story.begin()
        await mark()
        for _ in range(steps):
            await story.step()()
            await mark()
        await db.close()
    return Recording(disk.journal, states)


async def cut_everywhere(
    *,
    steps: int,
    seed: int,
    every: int = 1,
    again: float = 0.0,
    synchronous: str = "full",
    until_lost: bool = False,
    progress: Progress = lambda _done, _all: None,
) -> Cuts:
    """Cut at every ``every``-th point in each style; ``again`` is the share cut a second time.

    ``until_lost``: no further than the first loss, which is all that a broken build has to show.
    """
    toll = Cuts(seed)
    rng = random.Random(seed)
    where = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=where) as name:
        folder = Path(name)
        told = await tell(folder, steps=steps, seed=seed, synchronous=synchronous)
        toll.points = len(told.journal)
        machine, acknowledged = Machine({}), -1
        for point, did in enumerate(told.journal):
            machine.follow(did)
            if did.what == "mark":
                acknowledged = did.at
            if point % every or (until_lost and acknowledged < 0):
                continue
            if until_lost and toll.lost:
                break
            progress(point, len(told.journal))
            for style in STYLES:
                unsynced = any(it.since or it.deleted for it in machine.files.values())
                if style != "dropped" and not unsynced:
                    continue  # All styles come to the same.
                toll.unsynced += unsynced
                found = machine.cut(style, rng)
                if rng.random() < again:
                    found = await _cut_recovery(found, folder / "again", style, rng)
                    toll.twice += 1
                await _judge(toll, told, found, acknowledged, folder / "cut", f"{point} {style}")
    return toll


async def _cut_recovery(
    found: dict[str, bytes], folder: Path, style: Style, rng: random.Random
) -> dict[str, bytes]:
    """Start on what was found and cut again somewhere between opening and closing."""
    lay_out(found, folder)
    disk = Disk()
    with mounted(disk):
        try:
            db = await SqliteDb.open(folder / "homing.db")
        except StoreUnavailable:
            return found
        await db.close()
    machine = Machine(found)
    for did in disk.journal[: rng.randrange(len(disk.journal) + 1)]:
        machine.follow(did)
    return machine.cut(style, rng)


async def _judge(
    toll: Cuts,
    told: Recording,
    found: dict[str, bytes],
    acknowledged: int,
    folder: Path,
    name: str,
) -> None:
    lay_out(found, folder)
    toll.cuts += 1
    toll.acknowledged += max(acknowledged, 0)
    try:
        integrity, state = await look(folder)
    except StoreUnavailable as error:
        toll.corrupt += 1
        toll.first.append(f"{name}: {error}")
        return
    if integrity != "ok":
        toll.corrupt += 1
        toll.first.append(f"{name}: {integrity}")
    elif state not in told.states:
        toll.half += 1
        toll.first.append(f"{name}: a state that no commit left")
    else:
        reached = told.states.index(state)
        toll.kept += reached > acknowledged >= 0
        toll.lost += max(0, acknowledged - reached)
        if reached < acknowledged:
            toll.first.append(f"{name}: {acknowledged} acknowledged, {reached} there")
        if reached > max(acknowledged, 0) + 1:
            toll.half += 1
            toll.first.append(f"{name}: {reached} from the future of {acknowledged}")


def run(**options: object) -> Cuts:
    """``cut_everywhere`` for callers without a loop."""
    return asyncio.run(cut_everywhere(**options))  # type: ignore[arg-type]
