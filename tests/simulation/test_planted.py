"""A simulation that finds nothing proves nothing: each planted bug is found by its seed."""

from __future__ import annotations

from functools import cache

import pytest

from simulation.bugs import BUGS, DELIVERIES, Bug
from simulation.find_planted import SEEDS_MAX
from simulation.fleet_seed import run_fleet_seed
from simulation.planting import planted
from simulation.regressions import SEEDS
from simulation.seed import Verdict, run_seed

LINES_MAX = 5


@cache
def without_a_bug(seed: int, fleet: bool) -> Verdict:
    return (run_fleet_seed if fleet else run_seed)(seed, DELIVERIES)


KNOWN = [bug for bug in BUGS if bug.seed >= 0]  # the others are for ``make simulate`` to find
SOME = KNOWN[::3]  # in every test run; ``make simulate`` finds all of them


@pytest.mark.parametrize("bug", SOME, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_and_the_build_without_it_is_green(bug: Bug) -> None:
    assert bug.lines <= LINES_MAX
    assert 0 <= bug.seed < SEEDS_MAX
    with planted(bug.changes):
        verdict = bug.run(bug.seed)

    assert verdict.violation is not None
    assert verdict.violation.invariant != "books", verdict.report()
    if bug.fleet or bug.seed >= SEEDS:  # The others are run without it in any case.
        without = without_a_bug(bug.seed, bug.fleet)
        assert without.violation is None, without.report()


def test_a_violation_is_told_with_its_seed_its_last_lines_and_the_command_that_replays_it() -> None:
    bug = next(it for it in BUGS if it.name == "publishers are answered before the commit")
    with planted(bug.changes):
        report = run_seed(bug.seed, DELIVERIES).report()

    assert f"seed {bug.seed}: S4 does not hold" in report
    assert f"python -m simulation.run --seed {bug.seed} --deliveries {DELIVERIES}" in report
    assert len(report.splitlines()) > 5


def test_there_are_at_least_twenty_five() -> None:
    assert len(KNOWN) >= 25
    assert len({bug.name for bug in BUGS}) == len(BUGS)
