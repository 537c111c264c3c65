"""Some seeds of fleets: processes are killed, stopped and ended; one holds a bucket at a time."""

from __future__ import annotations

from simulation.fleet_seed import FLEET_KINDS, run_fleet_seed
from simulation.run import FLEET_DELIVERIES, Totals, fleet_figures

SEEDS = 8
REGRESSIONS = {
    30: "a settle refused for an old epoch lost the bucket that had been taken again: nobody's",
    53: "a delivery to a subscription that its holder had not read yet was cancelled as deleted",
    109: "the watch took the attempt of a delivery that had gone to another endpoint for a probe",
}


def test_some_fleets_hold_and_every_kind_of_fault_has_happened() -> None:
    totals = Totals(FLEET_KINDS)
    for seed in {*range(SEEDS), *REGRESSIONS}:
        totals.add(run_fleet_seed(seed, FLEET_DELIVERIES))

    assert not totals.bad, totals.bad[0].report()
    assert totals.never_fired == []
    assert totals.counts["deliveries"] > 50 * SEEDS
    assert not totals.failed
    again = Totals(FLEET_KINDS)
    again.add(run_fleet_seed(0, FLEET_DELIVERIES))
    told = fleet_figures(totals, again)
    assert "violations 0" in told
    assert "same trace again 1 of 1" in told


def test_a_run_has_failed_where_a_trace_differs_or_something_is_due_too_late() -> None:
    totals, again = Totals(frozenset()), Totals(frozenset())
    totals.traces, again.traces = {1: "a", 2: "b"}, {2: "c"}
    assert totals.differing(again) == [2]
    assert not totals.failed
    totals.counts["past_window"] += 1
    assert totals.failed


def test_the_same_fleet_gives_the_same_trace() -> None:
    first, second = run_fleet_seed(1, 30), run_fleet_seed(1, 30)

    assert first.trace_lines > 100
    assert first == second
    assert "--fleet" in first.replay_command
