"""The parts of every long test: a scoreboard line, a run, and a broken build that must fail."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Toll:
    """The counts of a run; it has failed if anything is bad, or if nothing was tried."""

    fired: int = 0
    bad: int = 0
    figures: dict[str, object] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)  # of what was bad

    def blame(self, said: str) -> None:
        self.bad += 1
        if len(self.first) < 5:
            self.first.append(said)

    @property
    def line(self) -> str:
        counts = {"fired": self.fired, "bad": self.bad, **self.figures}
        return " ".join(f"{name}={value}" for name, value in counts.items())


Run = Callable[[Path], Awaitable[Toll]]


@dataclass
class Part:
    """One line of the scoreboard, with the broken build that must fail it."""

    line: str
    name: str
    run: Run
    control: Run | None = None
    why_none: str = ""


@contextlib.contextmanager
def undisturbed(toll: Toll) -> Iterator[None]:
    """Ahead of all else on this machine, where we may: it is not what is to be measured."""
    ordinary = os.sched_getscheduler(0), os.sched_getparam(0)
    toll.figures["priority"] = "real-time"
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))  # Inherited by what we start.
    except PermissionError:
        toll.figures["priority"] = "ordinary"
    try:
        yield
    finally:
        os.sched_setscheduler(0, *ordinary)
