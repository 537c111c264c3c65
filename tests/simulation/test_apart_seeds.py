"""Seeds of fleets whose clocks are apart, and the planted bugs that they find."""

from __future__ import annotations

import pytest

from simulation.apart_seed import run_apart_seed
from simulation.planting import Change, planted, replace, replace_sql, some_in_every_run

SEEDS = 6
WRITES = "homing.store.writes"

BUGS: dict[str, Change] = {
    "ids are the order of acceptance": replace(
        WRITES, "append_events", "await acceptance.take(tx)", "events[0].event.id"
    ),
    "a backfill goes by ids": replace_sql(
        "past_events", "ORDER BY position, id LIMIT", "ORDER BY id LIMIT"
    ),
    "what was held back goes by the times of its publishers": replace(
        "homing.store.fair", "held", "sorted(rows)", "sorted(rows, key=lambda row: row[1])"
    ),
}


@pytest.mark.parametrize("seed", some_in_every_run(range(SEEDS)))
def test_everything_goes_in_the_order_of_acceptance_whatever_the_clocks_say(seed: int) -> None:
    assert run_apart_seed(seed) == []


@pytest.mark.parametrize("name", some_in_every_run(BUGS))
def test_a_planted_bug_is_found(name: str) -> None:
    with planted((BUGS[name],)):
        assert any(_found(seed) for seed in range(SEEDS)), name


def _found(seed: int) -> bool:
    try:
        return bool(run_apart_seed(seed))
    except Exception:  # noqa: BLE001 - a bug may also break the store
        return True
