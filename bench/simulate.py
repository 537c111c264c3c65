"""How fast scenarios are played: ``python -m bench.simulate``, with ``--spread`` at its hardest.

10,000 deliveries over 1,250 endpoints that always fail, 12 attempts each, 60 virtual hours. As a
rule the endpoints get their events at the same moments; with ``--spread`` no two do, so that
every attempt is settled in a commit of its own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

ENDPOINTS = 1_250
EACH = 8
SECONDS_MOST = {"life": 60.0, "one": 1.0}


def scenario(*, endpoints: int, each: int, spread: bool) -> str:
    """Endpoints that always answer 503, with so many events for each."""
    lines = ["seed = 1", 'run_for = "60h"']
    for number in range(endpoints):
        begin_ms, step_ms = (number * 7, 360_000) if spread else (0, 1_000)
        lines += [
            f'[[endpoints]]\nname = "e{number}"\nanswers = 503',
            f'[[traffic]]\nto = "e{number}"\nfrom = "{begin_ms}ms"',
            f'every = "{step_ms}ms"\nuntil = "{begin_ms + each * step_ms}ms"',
        ]
    return "\n".join(lines)


def seconds(text: str) -> tuple[float, str]:
    """How long ``homing simulate`` takes, and its last line."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "scenario.toml"
        path.write_text(text)
        begin = time.perf_counter()
        homing = Path(sys.executable).with_name("homing")
        command: list[Path | str] = [homing, "simulate", path, "--json"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        return time.perf_counter() - begin, done.stdout.decode().splitlines()[-1]


def main() -> None:
    spread = "--spread" in sys.argv[1:]
    for name, endpoints, each in (("one", 1, 1), ("life", ENDPOINTS, EACH)):
        took, last = seconds(scenario(endpoints=endpoints, each=each, spread=spread))
        attempts = last.partition('"attempts":')[2].partition(",")[0]
        print(
            f"{endpoints * each:,} deliveries, {int(attempts):,} attempts: {took:.2f} s "
            f"(at most {SECONDS_MOST[name]:g} s)"
        )


if __name__ == "__main__":
    main()
