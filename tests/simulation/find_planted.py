"""Finds every planted bug from scratch: the first seed that does, of at most 200.

``make simulate`` runs it; the seeds it prints are those of ``bugs.py``.
"""

from __future__ import annotations

import multiprocessing
import sys
from dataclasses import dataclass

from homing.net.clock import monotonic
from simulation.bugs import BUGS, DELIVERIES
from simulation.fleet_seed import run_fleet_seed
from simulation.planting import planted
from simulation.run import quiet
from simulation.seed import run_seed

SEEDS_MAX = 200


@dataclass(frozen=True)
class Found:
    """By which seed, and which invariant did not hold; None: by none."""

    name: str
    seed: int | None
    invariant: str = ""


def find(number: int) -> Found:
    bug = BUGS[number]
    with planted(bug.changes):
        for seed in range(SEEDS_MAX):
            violation = bug.run(seed).violation
            if violation is not None:
                return Found(bug.name, seed, violation.invariant)
    return Found(bug.name, None)


def is_green(seed: int) -> bool:
    """Without a bug, alone and in a fleet."""
    alone, fleet = run_seed(seed, DELIVERIES), run_fleet_seed(seed, DELIVERIES)
    return alone.violation is None and fleet.violation is None


def main() -> int:
    began = monotonic()
    with multiprocessing.Pool(initializer=quiet) as pool:
        green = sum(pool.imap_unordered(is_green, range(SEEDS_MAX)))
    found: list[Found] = []
    with multiprocessing.Pool(initializer=quiet, maxtasksperchild=1) as pool:
        for one in pool.imap_unordered(find, range(len(BUGS))):
            found.append(one)
            by = f"seed {one.seed}, {one.invariant}" if one.seed is not None else "NOT FOUND"
            sys.stdout.write(f"    {one.name}: {by}\n")
            sys.stdout.flush()
    seeds = [one.seed for one in found if one.seed is not None]
    sys.stdout.write(
        f"8   planted bugs found {len(seeds)} of {len(BUGS)}, seeds needed at most "
        f"{max(seeds) + 1}, without a bug green {green} of {SEEDS_MAX}, "
        f"{monotonic() - began:.0f} s\n"
    )
    return int(len(seeds) < len(BUGS) or green < SEEDS_MAX)


if __name__ == "__main__":
    sys.exit(main())
