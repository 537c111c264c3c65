"""How fast scenarios are played: ``python -m bench.simulate``, with ``--spread`` at its hardest.

10,000 deliveries over 1,250 endpoints that always fail, 12 attempts each, 60 virtual hours. As a
rule the endpoints get their events at the same moments; with ``--spread`` no two do, so that
every attempt is settled in a commit of its own. What counts is the time of the processor, from the
start of the program to its end: a busy machine makes it late, not slow.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ENDPOINTS = 1_250
EACH = 8
SECONDS_MAX = {"life": 60.0, "one": 1.0}


def scenario(*, endpoints: int, each: int, spread: bool) -> str:
    """Endpoints that always respond with 503, with so many events for each."""
    lines = ["seed = 1", 'run_for = "60h"']
    for number in range(endpoints):
        begin_ms, step_ms = (number * 7, 360_000) if spread else (0, 1_000)
        lines += [
            f'[[endpoints]]\nname = "e{number}"\nresponds = 503',
            f'[[traffic]]\nto = "e{number}"\nfrom = "{begin_ms}ms"',
            f'every = "{step_ms}ms"\nuntil = "{begin_ms + each * step_ms}ms"',
        ]
    return "\n".join(lines)


class Took(NamedTuple):
    """How long a run of ``homing simulate`` took, and its last line."""

    processor_s: float
    wall_s: float
    last: str


def take(text: str) -> Took:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "scenario.toml"
        path.write_text(text)
        homing = Path(sys.executable).with_name("homing")
        command: list[Path | str] = [homing, "simulate", path, "--json"]
        wall, before = time.perf_counter(), os.times()
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        wall, after = time.perf_counter() - wall, os.times()
    user_s = after.children_user - before.children_user
    system_s = after.children_system - before.children_system
    return Took(user_s + system_s, wall, done.stdout.decode().splitlines()[-1])


def main() -> int:
    spread, late = "--spread" in sys.argv[1:], 0
    for name, endpoints, each in (("one", 1, 1), ("life", ENDPOINTS, EACH)):
        took = take(scenario(endpoints=endpoints, each=each, spread=spread))
        attempts = took.last.partition('"attempts":')[2].partition(",")[0]
        print(
            f"{endpoints * each:,} deliveries, {int(attempts):,} attempts: "
            f"{took.processor_s:.2f} s of the processor (at most {SECONDS_MAX[name]:g} s), "
            f"{took.wall_s:.2f} s in all",
            flush=True,
        )
        late += took.processor_s > SECONDS_MAX[name]
    return int(late > 0)


if __name__ == "__main__":
    sys.exit(main())
