"""Runs everything of the chaos tests in its long form: ``python -m chaos.run [--quick]``.

The parts show what-homing-promises.md#nothing-is-lost. Each prints what it counted and how long it
took; each has a control, a build that is broken on purpose and must raise the count that is named.
A part whose faults did not fire has failed too. At the end stands a table.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from acceptance.killing import kill_again_and_again
from acceptance.notice_killing import kill_with_notices
from chaos.broken import build
from chaos.errors import sweep
from chaos.failing import fail_at_calls
from chaos.filling import fill_again_and_again
from chaos.integrity import integrity
from chaos.orphaning import kill_the_writer
from chaos.power import cut_everywhere
from chaos.repeating import publish_the_same
from chaos.stopping import stop_again_and_again
from chaos.syscalls import kill_at_every_call
from chaos.upgrading import upgrade_over_kills
from homing.store.tx import Dialect

ACKS_EARLY = (str(Path(__file__).parents[1] / "acceptance" / "acks_early.py"),)
CHUNK = 50
CONTROL_RUNS = 3
Progress = Callable[[int, int], None]


@dataclass
class Result:
    """One row of the last table."""

    name: str
    passed: bool
    control: str
    took_s: float
    counts: str


@dataclass
class Control:
    """The run of a broken build, and the count that it must raise."""

    raises: str
    run: Callable[[Path], Coroutine[Any, Any, Any]]


@dataclass
class Part:
    """One kind of fault: the run, and the runs of broken builds that must be found."""

    name: str
    run: Callable[[Path, Progress], Coroutine[Any, Any, Any]]
    controls: list[Control]


@dataclass
class Kills:
    """Many runs of the kill test, summed."""

    kills: int = 0
    acknowledged: int = 0
    lost: int = 0
    unexpected: int = 0
    duplicated: int = 0
    unsettled: int = 0  # as many may be duplicated
    unexplained: int = 0
    longest_ms: int = 0
    corrupt: int = 0

    @property
    def fired_enough(self) -> bool:
        return self.duplicated > 0  # Kills that leave nothing to repeat have hit nothing.

    @property
    def bad(self) -> int:
        wrong = not self.acknowledged or self.duplicated > self.unsettled
        return self.lost + self.unexpected + self.unexplained + self.corrupt + wrong


async def _kills(
    folder: Path, *, kills: int, progress: Progress = lambda _done, _all: None, **options: Any
) -> Kills:
    toll = Kills()
    while toll.kills < kills:
        progress(toll.kills, kills)
        here = folder / str(toll.kills)
        here.mkdir()
        count = min(CHUNK, kills - toll.kills)
        one = await kill_again_and_again(here, kills=count, **options)
        for name, value in asdict(one).items():
            before = getattr(toll, name)
            setattr(toll, name, max(before, value) if name == "longest_ms" else before + value)
        toll.corrupt += integrity(here / "data") != "ok"
    return toll


def parts(*, quick: bool, seed: int, every_call: bool) -> list[Part]:
    """All of them, in the order of their worth for the time they take."""
    steps = 30 if quick else 70
    calls = 12 if quick else 150
    found = [
        Part(
            "power loss",
            lambda _, told: cut_everywhere(
                steps=steps, seed=seed, every=5 if quick else 1, again=0.1, progress=told
            ),
            [
                Control(
                    "lost",
                    lambda _: cut_everywhere(steps=20, seed=seed, every=5, synchronous="normal"),
                )
            ],
        ),
        Part(
            "EIO and ENOSPC",
            lambda _, told: sweep(
                steps=10 if quick else 20, seed=seed, every=9 if quick else 1, progress=told
            ),
            [Control("lost", lambda _: sweep(steps=6, seed=seed, every=20, careless=True))],
        ),
        Part(
            "random kill -9",
            lambda at, told: _kills(at, kills=20 if quick else 1_000, progress=told),
            [
                Control("lost", lambda at: _kills(at, kills=5, argv=ACKS_EARLY)),
                Control(
                    "unexplained",
                    lambda at: _kills(at, kills=5, argv=build("settles_late"), long_every=1),
                ),
            ],
        ),
        Part(
            "the writer killed alone",
            lambda at, told: kill_the_writer(
                at, kills=10 if quick else 200, seed=seed, progress=told
            ),
            [
                Control(
                    "lost",
                    lambda at: kill_the_writer(at, kills=5, seed=seed, argv=build("acks_anyway")),
                ),
                Control(
                    "outcomes_lost",
                    lambda at: kill_the_writer(
                        at, kills=5, seed=seed, argv=build("gives_outcomes_up")
                    ),
                ),
            ],
        ),
        Part(
            "notices over kills",
            lambda at, told: kill_with_notices(
                at, kills=10 if quick else 200, seed=seed, progress=told
            ),
            [
                Control(
                    "missing",
                    lambda at: kill_with_notices(at, kills=5, argv=build("reports_later")),
                ),
                Control(
                    "renamed",
                    lambda at: kill_with_notices(at, kills=10, argv=build("renames_messages")),
                ),
            ],
        ),
        Part(
            "one id at once over kills",
            lambda at, _: publish_the_same(
                at,
                ids=3 if quick else 10,
                copies=200 if quick else 1_000,
                kills=3 if quick else 30,
                seed=seed,
            ),
            [
                Control(
                    "doubled",
                    lambda at: publish_the_same(
                        at, ids=2, copies=100, kills=1, seed=seed, argv=build("forgets_ids")
                    ),
                )
            ],
        ),
        Part(
            "SIGTERM under load",
            lambda at, told: stop_again_and_again(at, stops=8 if quick else 200, progress=told),
            [
                Control(
                    "duplicated",
                    lambda at: stop_again_and_again(at, stops=3, argv=build("stops_at_once")),
                )
            ],
        ),
        Part(
            "full disk and back",
            lambda at, told: fill_again_and_again(at, rounds=3 if quick else 20, progress=told),
            [
                Control(
                    "lost",
                    lambda at: fill_again_and_again(at, rounds=1, argv=build("acks_anyway")),
                )
            ],
        ),
    ]
    found += [_upgrade("sqlite", quick=quick), _upgrade("postgres", quick=quick)]
    if shutil.which("strace"):
        found += [
            Part(
                "a server's disk fails",
                lambda at, told: fail_at_calls(
                    at, events=20, seed=seed, most=6 if quick else 60, progress=told
                ),
                [
                    Control(
                        "lost",
                        lambda at: fail_at_calls(
                            at,
                            events=20,
                            seed=seed,
                            most=1,
                            at_first=True,
                            argv=build("acks_anyway"),
                        ),
                    )
                ],
            ),
            Part(
                "kill at every call",
                lambda at, told: kill_at_every_call(
                    at,
                    events=20 if quick else 50,
                    seed=seed,
                    most=None if every_call else calls,
                    progress=told,
                ),
                [
                    Control(
                        "lost",
                        lambda at: kill_at_every_call(
                            at, events=50, seed=seed, most=2, at_responses=True, argv=ACKS_EARLY
                        ),
                    )
                ],
            ),
        ]
    else:
        print("STRACE IS NOT INSTALLED: no kill at every call, no failing server")
    return found


def _upgrade(dialect: Dialect, *, quick: bool) -> Part:
    rows = 20_000 if quick else 1_000_000
    return Part(
        f"upgrade over kills, {dialect}",
        lambda at, _: upgrade_over_kills(dialect, at, rows=rows),
        [Control("stuck", lambda at: upgrade_over_kills(dialect, at, rows=1_000, torn=True))],
    )


def _shown(toll: Any) -> str:
    """Counts in one line; the first failures in full."""
    whole = asdict(toll)
    first = whole.pop("first", [])
    counts = " ".join(f"{name}={value}" for name, value in whole.items())
    return counts + "".join(f"\n    {line}" for line in first[:5])


def _meter(name: str) -> Progress:
    last = [time.monotonic()]

    def tell(done: int, whole: int) -> None:
        if time.monotonic() - last[0] > 15:
            last[0] = time.monotonic()
            print(f"  {name}: {done:,} of {whole:,}", flush=True)

    return tell


def _do(part: Part) -> Result:
    began = time.monotonic()
    print(part.name, flush=True)
    with tempfile.TemporaryDirectory() as name:
        toll = asyncio.run(part.run(Path(name), _meter(part.name)))
    passed = not toll.bad and toll.fired_enough
    counts = _shown(toll)
    few = "" if toll.fired_enough else " (too few faults fired)"
    print(f"  {'ok' if passed else 'FAILED'}{few}: {counts}", flush=True)
    controls = [_found(it) for it in part.controls]
    passed &= not any(it.startswith("NOT") for it in controls)
    took_s = time.monotonic() - began
    return Result(part.name, passed, ", ".join(controls), took_s, counts)


def _found(control: Control) -> str:
    """Whether the count that must rise has risen; on a busy machine a run may meet no fault."""
    for _ in range(CONTROL_RUNS):
        with tempfile.TemporaryDirectory() as name:
            broken = asyncio.run(control.run(Path(name)))
        if getattr(broken, control.raises):
            break
    found = "found" if getattr(broken, control.raises) else "NOT FOUND"
    said = f"{found} by {control.raises}"
    print(f"  the broken build is {said}: {_shown(broken).splitlines()[0]}", flush=True)
    return said


def _commit() -> str:
    asked = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def main() -> int:
    asked = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    asked.add_argument("--quick", action="store_true", help="a few minutes in all")
    asked.add_argument("--every-call", action="store_true", help="kill at all calls: hours")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--only", default="", help="words of names of parts, like power,SIGTERM")
    given = asked.parse_args()
    only = set(filter(None, given.only.split(",")))
    every = parts(quick=given.quick, seed=given.seed, every_call=given.every_call)
    chosen = [it for it in every if not only or any(word in it.name for word in only)]
    if not chosen:
        asked.error(f"--only takes words of: {', '.join(it.name for it in every)}")
    print(f"commit {_commit()}, seed {given.seed}")
    log = Path(tempfile.gettempdir()) / f"homing-chaos-{os.getpid()}.log"
    with log.open("wb") as out:  # What the servers complain of is not for this screen.
        os.dup2(out.fileno(), 2)
    results = [_do(it) for it in chosen]
    print(f"\n{'run':29}{'result':9}{'control':38}{'took':>8}")
    for it in results:
        verdict = "ok" if it.passed else "FAILED"
        print(f"{it.name:29}{verdict:9}{it.control:38}{it.took_s:7.0f}s")
    print(f"The servers' log: {log}")
    return int(not all(it.passed for it in results))


if __name__ == "__main__":
    sys.exit(main())
