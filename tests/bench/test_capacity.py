"""The model of capacity, checked against points that were measured and are not part of it."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load() -> ModuleType:
    """The directory of these tests has the name of the package."""
    path = Path(__file__).resolve().parents[2] / "bench" / "capacity.py"
    spec = importlib.util.spec_from_file_location("bench_capacity", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


capacity = _load()
TEXT = capacity.MEASURED.read_text()
CPU_US = capacity.homing_cpu_us(json.loads(capacity.LATEST.read_text()))
ONE = capacity.Costs(100.0, 50.0, 2_000.0, 2_000.0, 0.01)


@pytest.mark.parametrize("size", capacity.CHECKS)
def test_the_model_meets_a_measured_point_that_it_is_not_made_from(size: int) -> None:
    measured = capacity.measured_points(TEXT, "checks")[size]
    costs = capacity.costs_of(size, capacity.measured_points(TEXT), cpu_us=CPU_US)
    assert costs.wal_bytes == pytest.approx(measured["wal_bytes"], rel=0.1)
    assert costs.rest_bytes == pytest.approx(measured["rest_bytes"], rel=0.15)
    assert costs.postgres_cpu_us == pytest.approx(measured["postgres_cpu_us"], rel=0.35)


def test_one_process_is_enough_for_what_one_process_was_measured_to_do() -> None:
    """Part e: a process delivered so much on two cores that it shared with everything else.

    Its CPU and its rate are medians of different rounds, which differ by a tenth and more.
    """
    latest = json.loads(capacity.LATEST.read_text())
    measured = latest["medians"]["e"]["value"]
    costs = capacity.costs_of(1_024, capacity.measured_points(TEXT), cpu_us=CPU_US)
    assert capacity.plan(costs, per_second=measured, retention_s=1).homing_cores <= 1.15


def test_twice_the_load_needs_twice_the_cores_the_disk_and_the_rows() -> None:
    one = capacity.plan(ONE, per_second=10_000, retention_s=100)
    two = capacity.plan(ONE, per_second=20_000, retention_s=100)
    assert two.homing_cores == 2 * one.homing_cores == 2.0
    assert two.postgres_cores == 2 * one.postgres_cores == 1.0
    assert two.disk_tb == 2 * one.disk_tb == pytest.approx(0.004)
    assert two.rows_a_month == 2 * one.rows_a_month
    assert (one.processes, two.processes) == (2, 4)  # at 60 % of a core each


def test_a_cell_is_full_when_its_cores_or_its_log_are() -> None:
    by_log = capacity.plan(ONE, per_second=40_000, retention_s=1)  # 80 MB/s of 60
    by_cores = capacity.plan(
        capacity.Costs(1, 500.0, 1.0, 1.0, 0.01), per_second=40_000, retention_s=1
    )  # 20 of 9.6
    assert (by_log.cells, by_cores.cells) == (2, 3)


def test_more_data_never_costs_less() -> None:
    points = capacity.measured_points(TEXT)
    small, large = (capacity.costs_of(size, points, cpu_us=CPU_US) for size in capacity.SIZES)
    assert small.wal_bytes < large.wal_bytes
    assert small.rest_bytes < large.rest_bytes


@pytest.mark.parametrize(
    ("text", "size"), [("300", 300), ("1k", 1_024), ("1.5kB", 1_536), ("2M", 2 << 20)]
)
def test_a_size_is_read_with_its_unit(text: str, size: int) -> None:
    assert capacity.read_size(text) == size


def test_what_cannot_be_read_is_refused() -> None:
    assert capacity.read_days("12h") * 2 == capacity.read_days("1d") == 86_400
    for read, text in (
        (capacity.read_size, "1x"),
        (capacity.read_size, ""),
        (capacity.read_days, "30"),
    ):
        with pytest.raises(ValueError, match="must be"):
            read(text)


def test_the_lines_name_everything_that_an_operator_buys() -> None:
    found = capacity.plan(ONE, per_second=50_000, retention_s=30 * 86_400)
    text = "\n".join(
        capacity.lines(found, ONE, per_second=50_000, size=1_024, retention_s=30 * 86_400)
    )
    for word in ("processes", "cores", "WAL", "disk", "cells", "rows a month"):
        assert word in text
