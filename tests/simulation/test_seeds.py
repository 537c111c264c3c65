"""Some seeds of single processes and fleets: the invariants hold, and every fault has happened."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.regressions import DELIVERIES, FIRST, FLEET_FIRST, FLEET_REGRESSIONS, REGRESSIONS
from simulation.run import FLEET_KINDS, KINDS, Totals, fleet_figures
from simulation.seed import run_seed

SEEDS_MAX = 60
ALONE_OR_FLEET = pytest.mark.parametrize("fleet", [False, True], ids=["alone", "fleet"])


@ALONE_OR_FLEET
def test_the_invariants_hold_until_every_kind_of_fault_has_happened(*, fleet: bool) -> None:
    first, totals = FLEET_FIRST if fleet else FIRST, Totals(FLEET_KINDS if fleet else KINDS)
    others = (it for it in range(SEEDS_MAX) if it not in first)
    for seed in (*first, *others):
        if seed in first or totals.never_fired:  # Others only if a change took a fault from these.
            totals.add(run_seed(seed, DELIVERIES, fleet=fleet))

    assert not totals.bad, totals.bad[0].report()
    assert totals.never_fired == []
    assert totals.counts["deliveries"] > 50 * totals.seeds
    assert not totals.failed


ONCE_FAILED = [(it, False, why) for it, why in REGRESSIONS.items() if it not in FIRST]
ONCE_FAILED += [(it, True, why) for it, why in FLEET_REGRESSIONS.items() if it not in FLEET_FIRST]


@pytest.mark.long
@pytest.mark.parametrize(("seed", "fleet", "why"), ONCE_FAILED)
def test_a_seed_that_once_failed_holds(seed: int, fleet: bool, why: str) -> None:
    verdict = run_seed(seed, DELIVERIES, fleet=fleet)

    assert verdict.violation is None, f"{why}\n{verdict.report()}"


@pytest.mark.parametrize("fleet", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_same_seed_gives_the_same_trace_in_another_process(*, fleet: bool) -> None:
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(root / "src"), str(root / "tests")])
    here = run_seed(3, 30, fleet=fleet)
    told = subprocess.run(
        [sys.executable, *here.replay_command.split()[2:]],
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert here.trace_lines > 100
    assert told == here.report() + "\n"
    assert run_seed(4, 30, fleet=fleet).trace_sha256 != here.trace_sha256


def test_a_run_has_failed_where_a_trace_differs_or_something_is_due_too_late() -> None:
    totals, again = Totals(frozenset()), Totals(frozenset())
    totals.traces, again.traces = {1: "a", 2: "b"}, {2: "c"}
    again.seeds = 1
    assert totals.differing(again) == [2]
    assert "same trace again 0 of 1" in fleet_figures(totals, again)
    assert not totals.failed
    totals.counts["past_window"] += 1
    assert totals.failed
