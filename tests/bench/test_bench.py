"""The bench runs and leaves figures of the promised shape; nothing here is about how fast."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run with tiny sizes."""
    path = tmp_path_factory.mktemp("bench") / "figures.json"
    argv = ["-m", "bench.run", "--quick", "--only", "a,b,c", "--scale", "0.05", "--json", str(path)]
    done = subprocess.run(
        [sys.executable, *argv], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "c/a" in done.stdout
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def test_every_part_stands_between_two_measurements_of_its_yardstick(
    figures: dict[str, Any],
) -> None:
    assert [[one["part"] for one in each] for each in figures["rounds"]] == [list("abaca")]


def test_ratios_are_medians_of_rounds_and_know_their_targets(figures: dict[str, Any]) -> None:
    ratios = figures["ratios"]
    assert {name: one["target"] for name, one in ratios.items()} == {"b/a": 8.0, "c/a": 4.0}
    before, b, after = (one["value"] for one in figures["rounds"][0][:3])
    assert ratios["b/a"]["value"] == pytest.approx(b / ((before + after) / 2), rel=1e-3)
    assert ratios["b/a"]["met"] is (ratios["b/a"]["value"] >= 8)


def test_c_counts_every_event_once_and_ends_settled(figures: dict[str, Any]) -> None:
    (c,) = [one for one in figures["rounds"][0] if one["part"] == "c"]
    assert c["details"]["requests"] == figures["sizes"]["c"]
    assert c["details"]["seconds"] >= c["details"]["published_s"] > 0
    assert c["details"]["commits"].keys() == {"publish", "settle"}


def test_it_says_what_was_measured_and_not_where(figures: dict[str, Any]) -> None:
    assert figures["quick"] is True
    assert {"commit", "time", "sizes", "medians", "limits"} <= figures.keys()
    assert {"processors", "memory_gb", "python", "sqlite"} <= figures["machine"].keys()
    assert "node" not in figures["machine"]
    assert set(figures["medians"]) == {"ceiling", "a", "b", "c"}


def _measure() -> ModuleType:
    """``bench.measure``, which is not on the path of the tests."""
    spec = importlib.util.spec_from_file_location("bench_measure", ROOT / "bench" / "measure.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_e_and_k_change_places_from_round_to_round() -> None:
    order = _measure().round_order
    assert ["".join(order("ek", turn)) for turn in range(3)] == ["aeaka", "akaea", "aeaka"]


def test_the_gain_of_the_writer_process_is_compared_round_by_round() -> None:
    measure = _measure()
    rounds = [
        [measure.Measured(part, value, "/s") for part, value in zip("aeaka", values, strict=True)]
        for values in ((10, 30, 10, 20, 10), (20, 44, 20, 40, 20))
    ]
    (gain,) = [goal for goal in measure.goals(rounds, None) if goal.name == "e/k"]
    assert gain.each == pytest.approx((1.5, 1.1))
    assert gain.met


def test_parts_with_other_yardsticks_stand_between_them() -> None:
    assert "".join(_measure().round_order("ghmnq")) == "cgchcncqcdmd"


def test_a_part_is_named_by_its_letter_or_by_its_name() -> None:
    measure = _measure()
    assert set(measure.NAMES) == set(measure.PARTS + measure.ON_REQUEST)
    assert len(set(measure.NAMES.values())) == len(measure.NAMES)
    assert measure.parts_named("pull, fan-out,c") == "cnv"
    assert measure.parts_named("d,c,singles") == "cd"
    assert measure.parts_named("c,nope") == ""


def test_the_cost_of_payload_fields_is_also_a_ratio_to_a() -> None:
    measure = _measure()
    rates = zip("acacqc", (10, 40, 10, 20, 10, 20), strict=True)
    rounds = [[measure.Measured(part, value, "/s") for part, value in rates]]
    found = measure.ratios(rounds)
    assert found == {"c/a": [4.0], "q/c": [0.5], "q/a": [2.0]}


def test_the_databases_of_parts_g_h_j_and_l_can_be_written(tmp_path: Path) -> None:
    """Parts g, h and j failed since a statement that only bench/backlog.py used had a parameter."""
    program = """
import asyncio, sys
from pathlib import Path
from bench import backlog
async def all_of_them(folder):
    await backlog.write_waiting(folder / "g", count=20, urls=4)
    await backlog.write_due(folder / "h", urls=4, port=9)
    await backlog.write_history(folder / "j", count=20, urls=4)
    await backlog.write_attempts(folder / "l", count=40, urls=4)
asyncio.run(all_of_them(Path(sys.argv[1])))
"""
    argv = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_payload_fields_are_indexed_and_searched(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    argv = ["-m", "bench.run", "--quick", "--only", "c,q", "--scale", "0.05", "--json", str(path)]
    done = subprocess.run(
        [sys.executable, *argv], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "q  ms per search by a value" in done.stdout
    figures = json.loads(path.read_text())
    assert {"c/a", "q/c", "q/a"} == figures["ratios"].keys()
    (q,) = [one for one in figures["rounds"][0] if one["part"] == "q"]
    assert q["details"]["requests"] == figures["sizes"]["c"]
    assert q["details"]["searches"].keys() == {
        "of one event",
        "of one event in 1,000",
        "of no event",
    }
    for times in q["details"]["searches"].values():
        assert 0 < times["p50_ms"] <= times["p99_ms"] <= q["details"]["search_p99_ms"]
    assert figures["limits"]["q search p99"]["value"] == q["details"]["search_p99_ms"]


@pytest.mark.long
def test_a_saturated_server_and_a_fan_out_leave_their_figures(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    argv = ["-m", "bench.run", "--quick", "--only", "n,o,s", "--scale", "0.02", "--json", str(path)]
    done = subprocess.run(
        [sys.executable, *argv], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(path.read_text())
    (n,) = [one for one in figures["rounds"][0] if one["part"] == "n"]
    assert n["details"]["requests"] == figures["sizes"]["n"] * 100
    o, s = figures["after"]
    assert o["value"] == pytest.approx(o["details"]["server_ms"] + o["details"]["writer_ms"], 1e-3)
    for publisher in (s["details"]["pressed"], s["details"]["other"]):
        ends = ("accepted", "refused", "broken", "unsent")
        assert publisher["requests"] == sum(publisher[end] for end in ends) > 0
    assert {"s p99", "s Retry-After", "s RSS above", "n RSS above"} <= figures["limits"].keys()
    assert {"n/c", "s/c"} <= figures["ratios"].keys()


def test_every_target_that_is_no_ratio_is_found_in_its_part() -> None:
    measure = _measure()
    details = {limit.detail: 1.0 for limit in measure.LIMITS}
    once = [measure.Measured(limit.part, 1.0, "", details) for limit in measure.LIMITS]
    found = {goal.name for goal in measure.goals([], None, once)}
    assert found == {limit.name for limit in measure.LIMITS}


def test_a_part_of_an_older_run_without_a_figure_has_no_goal() -> None:
    measure = _measure()
    once = [measure.Measured("c", 1.0, "/s")]
    assert measure.goals([], None, once) == []
