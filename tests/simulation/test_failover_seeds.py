"""Seeds of failovers with and without lost commits, and the planted bugs that they find."""

from __future__ import annotations

from collections import Counter

import pytest

from simulation.failover_seed import run_failover_seed
from simulation.failovers import BUGS, KINDS, find
from simulation.planting import some_in_every_run

SEEDS = 4


def test_every_failover_is_survived_and_every_loss_is_said() -> None:
    fired: Counter[str] = Counter()
    for seed in range(SEEDS):
        wrong, happened = run_failover_seed(seed)
        assert wrong == [], seed
        fired += happened
    assert fired.keys() >= KINDS


def test_the_same_seed_is_the_same_story() -> None:
    assert run_failover_seed(2) == run_failover_seed(2)


@pytest.mark.parametrize("name", some_in_every_run(BUGS))
def test_a_planted_bug_is_found(name: str) -> None:
    assert find(name) is not None, name
