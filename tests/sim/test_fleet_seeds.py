"""Some seeds of fleets: processes are killed, stopped and ended; one holds a bucket at a time."""

from __future__ import annotations

from homing.sim.fleet_seed import FLEET_KINDS, run_fleet_seed
from homing.sim.run import FLEET_DELIVERIES, Totals, fleet_figures

SEEDS = 8
REGRESSIONS = {
    30: "a settle refused for an old epoch lost the bucket that had been taken again: nobody's",
}


def test_some_fleets_hold_and_every_kind_of_fault_has_happened() -> None:
    totals = Totals(FLEET_KINDS)
    for seed in {*range(SEEDS), *REGRESSIONS}:
        totals.add(run_fleet_seed(seed, FLEET_DELIVERIES))

    assert not totals.bad, totals.bad[0].report()
    assert totals.never_fired == []
    assert totals.counts["deliveries"] > 50 * SEEDS
    assert "violations 0" in fleet_figures(totals)


def test_the_same_fleet_gives_the_same_trace() -> None:
    first, second = run_fleet_seed(1, 30), run_fleet_seed(1, 30)

    assert first.trace_lines > 100
    assert first == second
    assert "--fleet" in first.replay_command
