"""Finds every planted bug: by the seed that is recorded in ``found``, else by one of many others.

A recorded seed only saves time: when the engine asks the store for something more, the same seed
has its faults elsewhere. ``make simulate`` runs this; with an argument, only the bugs with that
text in their name are found.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from homing.net.clock import monotonic
from simulation.bugs import BUGS, DELIVERIES, Bug
from simulation.planting import planted
from simulation.regressions import FIRST, FLEET_FIRST
from simulation.run import quiet
from simulation.seed import run_seed

SEEDS_MAX = 200


@dataclass(frozen=True)
class Found:
    """By which seed, and which invariant did not hold; None: by none."""

    name: str
    seed: int | None
    invariant: str = ""


def find(bug: Bug, others: Iterable[int]) -> Found:
    """By the recorded seed, by one that every test run has, or by one of the others."""
    first = FLEET_FIRST if bug.fleet else FIRST
    seeds = (seed for seed in (bug.seed, *first, *others) if seed >= 0)
    with planted(bug.changes):
        for seed in dict.fromkeys(seeds):
            violation = bug.run(seed).violation
            if violation is not None and violation.invariant != "checker":  # Not a crash of ours.
                return Found(bug.name, seed, violation.invariant)
    return Found(bug.name, None)


def _find(number: int) -> Found:
    return find(BUGS[number], BUGS[number].among)


def is_green(seed: int) -> bool:
    """Without a bug, alone and in a fleet."""
    verdicts = (run_seed(seed, DELIVERIES, fleet=fleet) for fleet in (False, True))
    return all(it.violation is None for it in verdicts)


def main(text: str = "") -> int:
    began = monotonic()
    wanted = [number for number, bug in enumerate(BUGS) if text in bug.name]
    green_seeds = range(0 if text else SEEDS_MAX)
    with multiprocessing.Pool(initializer=quiet) as pool:
        green = sum(pool.imap_unordered(is_green, green_seeds))
    found: list[Found] = []
    with multiprocessing.Pool(initializer=quiet, maxtasksperchild=1) as pool:
        for one in pool.imap_unordered(_find, wanted):
            found.append(one)
            by = f"seed {one.seed}, {one.invariant}" if one.seed is not None else "NOT FOUND"
            sys.stdout.write(f"    {one.name}: {by}\n")
            sys.stdout.flush()
    seeds = [one.seed for one in found if one.seed is not None]
    sys.stdout.write(
        f"8   planted bugs found {len(seeds)} of {len(wanted)}, seeds needed at most "
        f"{max(seeds, default=0) + 1}, without a bug green {green} of {len(green_seeds)}, "
        f"{monotonic() - began:.0f} s\n"
    )
    return int(len(seeds) < len(wanted) or green < len(green_seeds))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
