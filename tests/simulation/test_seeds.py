"""Fifty seeds with faults of every kind: the invariants hold, and every kind has happened."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.regressions import (
    DELIVERIES,
    REGRESSIONS,
    SEEDS,
)
from simulation.run import Totals
from simulation.seed import run_seed


def test_more_than_fifty_seeds_hold_and_every_kind_of_fault_has_happened() -> None:
    totals = Totals()
    for seed in range(SEEDS):
        totals.add(run_seed(seed, DELIVERIES))

    assert not totals.bad, totals.bad[0].report()
    assert totals.never_fired == []
    assert totals.counts["deliveries"] > 50 * SEEDS
    assert totals.counts["past_window"] == 0


ONCE_FAILED = [(seed, why) for seed, why in REGRESSIONS.items() if seed >= SEEDS]


@pytest.mark.parametrize(("seed", "why"), ONCE_FAILED)
def test_a_seed_that_once_failed_holds(seed: int, why: str) -> None:
    verdict = run_seed(seed, DELIVERIES)

    assert verdict.violation is None, f"{why}\n{verdict.report()}"


def test_the_same_seed_gives_the_same_trace() -> None:
    first, second = run_seed(3, 60), run_seed(3, 60)

    assert first.trace_lines > 100
    assert first == second


def test_the_same_seed_gives_the_same_trace_in_another_process() -> None:
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(root / "src"), str(root / "tests")])
    command = [sys.executable, "-m", "simulation.run", "--seed", "3", "--deliveries", "60"]
    told = [
        subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]

    assert told[0] == told[1] == run_seed(3, 60).report() + "\n"


def test_another_seed_gives_another_trace() -> None:
    assert run_seed(3, 60).trace_sha256 != run_seed(4, 60).trace_sha256
