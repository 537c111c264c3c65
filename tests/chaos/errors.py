"""EIO and ENOSPC at every operation of a story, once or for ever after, and then the disk heals.

A step that is told StoreUnavailable is done again as it is, as the engine does it. In the end all
must be as if nothing had happened, on the same open store and after opening the file anew.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from chaos.disk import Disk, Fault, mounted
from chaos.power import MEMORY, Progress
from chaos.story import Step, Story, look, small_log, state_of
from homing.errors import StoreUnavailable
from homing.store.sqlite import Session, SqliteDb
from stores import new_file

KINDS: tuple[type[apsw.Error], ...] = (apsw.IOError, apsw.FullError)
REFUSALS_BEFORE_IT_HEALS = 3
REFUSALS_AFTER = 2


@dataclass
class Sweep:
    """What the faults came to."""

    seed: int
    operations: int = 0
    runs: int = 0
    fired: int = 0
    refused: int = 0  # steps told StoreUnavailable
    acknowledged: int = 0  # steps told that they were done
    lost: int = 0  # acknowledged and not there: in the same process, anew, or after a crash
    dead: int = 0  # does not go on after healing
    wrong: int = 0  # ends in another state than without a fault
    first: list[str] = field(default_factory=list)

    @property
    def fired_enough(self) -> bool:
        return self.fired == self.runs > 0

    @property
    def bad(self) -> int:
        return self.lost + self.dead + self.wrong


@dataclass
class Lived:
    """One life of the story on a disk that failed."""

    state: str = ""
    operations: int = 0  # that could fail
    acknowledged: int = 0
    refused: int = 0
    dead: bool = False
    crashed: list[tuple[int, Path]] = field(default_factory=list)  # copies of refused moments


async def sweep(
    *,
    steps: int,
    seed: int,
    every: int = 1,
    careless: bool = False,
    progress: Progress = lambda _done, _all: None,
) -> Sweep:
    """``careless`` is a build that is broken: it takes a failed commit for a commit."""
    toll = Sweep(seed)
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        folder = Path(name)
        plain = Disk()
        states: list[str] = []
        lived = await _live(folder / "plain", plain, None, steps=steps, seed=seed, states=states)
        toll.operations = lived.operations
        for at in range(1, lived.operations + 1, every):
            progress(at, lived.operations)
            for error in KINDS:
                for for_ever in (False, True):
                    fault = Fault(at, error, for_ever)
                    here = folder / "here"
                    try:
                        await _judge(toll, here, fault, states, steps=steps, careless=careless)
                    finally:
                        shutil.rmtree(here, ignore_errors=True)
    return toll


async def _judge(
    toll: Sweep, folder: Path, fault: Fault, states: list[str], *, steps: int, careless: bool
) -> None:
    disk = Disk()
    honest = Session._between
    if careless:
        Session._between = _careless  # type: ignore[assignment,method-assign]
    try:
        lived = await _live(folder, disk, fault, steps=steps, seed=toll.seed, states=None)
    finally:
        Session._between = honest  # type: ignore[method-assign]
    toll.runs += 1
    toll.fired += bool(disk.fired)
    toll.refused += lived.refused
    toll.acknowledged += lived.acknowledged
    name = f"{fault.error.__name__} at {fault.at}{' for ever' if fault.for_ever else ''}"
    if lived.dead:
        toll.dead += 1
        toll.first.append(f"{name}: refuses after it healed")
        return
    if lived.state != states[-1]:
        toll.wrong += 1
        toll.first.append(f"{name}: the same process ends in another state")
    for acknowledged, copy in [*lived.crashed, (len(states) - 1, folder)]:
        integrity, state = await look(copy)
        if integrity != "ok" or state not in states[acknowledged : acknowledged + 2]:
            toll.lost += 1
            toll.first.append(f"{name}: opened anew after {acknowledged}: {integrity}")


async def _live(
    folder: Path,
    disk: Disk,
    fault: Fault | None,
    *,
    steps: int,
    seed: int,
    states: list[str] | None,
) -> Lived:
    folder.mkdir()
    lived = Lived()
    file = await new_file(folder / "homing.db")
    with small_log(), mounted(disk):
        db = await SqliteDb.open(file)
        story = Story(db, seed=seed)
        await story.begin()
        if states is not None:
            states.append(await state_of(db))
        disk.arm(fault)
        for _ in range(steps):
            await _insist(story.step(), disk, lived, folder)
            if lived.dead:
                break
            if states is not None:
                counted = disk.counted
                states.append(await state_of(db))
                disk.counted = counted
        disk.heal()
        lived.operations = disk.counted
        lived.state = await state_of(db)
        await db.close()
    return lived


async def _insist(step: Step, disk: Disk, lived: Lived, folder: Path) -> None:
    """Do a step until it is done; the disk heals after a few refusals."""
    for tried in range(REFUSALS_BEFORE_IT_HEALS + REFUSALS_AFTER):
        if tried == REFUSALS_BEFORE_IT_HEALS:
            disk.heal()
        try:
            await step()
        except StoreUnavailable:
            lived.refused += 1
            if not tried:  # What would be found if the process died right here?
                copy = folder / f"crash-{len(lived.crashed)}"
                copy.mkdir()
                for file in folder.glob("homing.db*"):
                    if not file.name.endswith(("-shm", ".lock")):
                        shutil.copy(file, copy)
                lived.crashed.append((lived.acknowledged, copy))
        else:
            lived.acknowledged += 1
            return
    lived.dead = True


_honest = Session._between


def _careless(self: Session, begin: str, work: object) -> object:
    try:
        return _honest(self, begin, work)  # type: ignore[arg-type]
    except StoreUnavailable:
        return frozenset()
