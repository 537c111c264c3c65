"""The parts of long tests: each has a name, a run, and a broken build that must fail.

Parts about neighbours compare latencies of turns with an attack (loud) and without one (quiet).
Other programs and the host of a virtual machine disturb some turns of both kinds, and a disturbance
only adds to a latency; an attack that harms others does so in all its turns. So the calmest quarter
of the turns of each kind is compared: a p99 is the third largest of 250 latencies, and without any
attack it differs by a factor of four from turn to turn where the disk is shared.
"""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Awaitable, Callable, Iterator, Sequence
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
    """One line of the table, with the broken build that must fail it."""

    name: str
    run: Run
    control: Run | None = None
    why_none: str = ""


RATIO_MAX = 1.25  # of the latencies beside an attack to those without


class Latencies:
    """The latencies of a tenant in milliseconds, turn by turn, beside an attack and without."""

    def __init__(self) -> None:
        self.quiet: list[list[float]] = []
        self.loud: list[list[float]] = []

    def judge(self, toll: Toll) -> None:
        """Put the percentiles and their ratios into the figures, and blame ratios too high."""
        for name, of in (("p50", p50), ("p99", p99)):
            quiet, loud = (calm(list(map(of, turns))) for turns in (self.quiet, self.loud))
            ratio = loud / quiet
            toll.figures |= {
                f"quiet_{name}_ms": round(quiet, 1),
                f"loud_{name}_ms": round(loud, 1),
                f"{name}_ratio": round(ratio, 3),
            }
            if ratio > RATIO_MAX:
                toll.blame(f"the other tenant had {ratio:.2f} times its {name}")
        toll.figures["turns"] = len(self.loud)
        for name, turns in (("quiet", self.quiet), ("loud", self.loud)):
            toll.figures[f"{name}_p99s_ms"] = "/".join(f"{p99(it):.0f}" for it in turns)


def calm(turns: Sequence[float]) -> float:
    """The median of the lowest quarter of the figures of some turns."""
    return statistics.median(sorted(turns)[: (len(turns) + 3) // 4])


def p50(lags: Sequence[float]) -> float:
    return statistics.median(lags)


def p99(lags: Sequence[float]) -> float:
    return sorted(lags)[int(len(lags) * 0.99)]


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
