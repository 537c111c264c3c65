"""``homing simulate`` as people and machines call it, and the scenarios that come with it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from homing.cli.main import app
from homing.sim.play import Played, play
from homing.sim.read import read_scenario
from homing.sim.summary import Figures, summarize
from simulation.scenes import ONE, SENDER_OUTAGE, states

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LOOK = "import sys; from homing.cli.main import main; sys.argv = ['homing', *sys.argv[1:]]\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"  # noqa: E501


@cache
def example(name: str) -> Played:
    path = EXAMPLES / f"{name}.toml"
    return play(read_scenario(path.read_text(), source=str(path)))


def figures(name: str) -> Figures:
    return summarize(example(name)).total


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "one.toml"
    path.write_text(ONE)
    return path


def test_json_prints_the_trace_and_its_summary_and_nothing_else(scenario: Path) -> None:
    done = CliRunner().invoke(app, ["simulate", str(scenario), "--json"])
    assert done.exit_code == 0
    *lines, last = done.stdout.splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["attempt"] * 12 + ["finish"]
    summary = json.loads(last)
    assert (summary["kind"], summary["delivered"]) == ("summary", 0)
    trace = "".join(f"{line}\n" for line in lines).encode()
    assert hashlib.sha256(trace).hexdigest() == summary["trace_sha256"]


def test_people_get_a_timeline_and_files(scenario: Path, tmp_path: Path) -> None:
    svg, html = tmp_path / "x.svg", tmp_path / "x.html"
    more = ["--compare", "workfront-chained", "--svg", str(svg), "--html", str(html)]
    done = CliRunner().invoke(app, ["simulate", str(scenario), *more])
    assert done.exit_code == 0
    assert "workfront-chained" in done.stdout
    assert svg.read_text().startswith("<svg")
    assert html.read_text().startswith("<!doctype html>")


def test_a_comparison_in_json_is_two_traces_and_every_line_says_whose(scenario: Path) -> None:
    both = ("workfront", "workfront-chained")
    done = CliRunner().invoke(app, ["simulate", str(scenario), "--json", "--compare", both[1]])
    alone = CliRunner().invoke(app, ["simulate", str(scenario), "--json"]).stdout.splitlines()
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["policy"] for line in lines if line["kind"] == "summary"] == list(both)
    assert [line["policy"] for line in lines] == sorted(line["policy"] for line in lines)
    first = done.stdout.splitlines()[: len(alone)]
    marked = [line.replace(',"policy":"workfront"}', "}") for line in first]
    assert (marked, "policy" in alone[0]) == (alone, False)


def test_a_wrong_scenario_exits_with_2_and_names_line_and_field(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(ONE.replace("responds = 503", "responds = 5030"))
    done = _homing("simulate", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    first = done.stderr.splitlines()[0]
    assert first.startswith(f"homing: The scenario is wrong. {path}, line 6: endpoints[0].responds")


def test_nothing_is_imported_that_serving_needs(scenario: Path) -> None:
    done = _homing("simulate", str(scenario), "--json")
    assert done.returncode == 0
    imported = set(done.stderr.split())
    assert "homing.sim.play" in imported
    assert imported.isdisjoint(
        {"uvicorn", "starlette", "asyncpg", "homing.server.wiring", "homing.web"}
    )


def _homing(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LOOK, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


# --- examples -------------------------------------------------------------------------------


@pytest.mark.long
def test_an_outage_of_seven_hours_loses_nothing() -> None:
    counted = figures("seven-hour-outage")
    assert counted.delivered == counted.accepted == 2_760
    assert [line.after for line in states(example("seven-hour-outage"))] == ["disabled", "enabled"]


@pytest.mark.long
def test_a_slow_receiver_leaves_its_neighbour_alone() -> None:
    each = summarize(example("slow-receiver")).endpoints
    assert each["slow"].disabled_ms > 0
    assert each["slow"].late.count > 0
    assert (each["quick"].late.count, each["quick"].pending) == (0, 0)


@pytest.mark.long
def test_a_flapping_receiver_stays_enabled() -> None:
    counted = figures("flapping-receiver")
    assert states(example("flapping-receiver")) == []
    assert counted.delivered == counted.accepted


@pytest.mark.long
def test_a_dead_url_is_disabled_and_then_frozen() -> None:
    assert [(line.after, line.rule) for line in states(example("dead-url"))] == [
        ("disabled", "consecutive_failures"),
        ("frozen", "no_success"),
    ]
    assert figures("dead-url").dropped["expired"] > 0


@pytest.mark.long
def test_a_herd_is_let_in_slowly() -> None:
    counted = figures("herd-after-recovery")
    assert counted.delivered == counted.accepted
    assert counted.peak_per_second_after_recovery <= 2 * 16 * 1_000 // 120 + 32


@pytest.mark.long
def test_who_enables_too_early_is_disabled_again() -> None:
    words = [line.after for line in states(example("enabled-too-early"))]
    assert words == ["disabled", "enabled"] * 2 + ["disabled", "frozen", "enabled"]
    assert figures("enabled-too-early").pending == 0


def test_every_example_is_told_of_here() -> None:
    told = Path(__file__).read_text()
    assert sorted(path.stem for path in EXAMPLES.glob("*.toml")) == [
        "dead-url",
        "enabled-too-early",
        "flapping-receiver",
        "herd-after-recovery",
        "seven-hour-outage",
        "slow-receiver",
    ]
    assert all(f'"{path.stem}"' in told for path in EXAMPLES.glob("*.toml"))


def test_what_the_engine_logs_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "sender_outage.toml"
    file.write_text(SENDER_OUTAGE)
    command = [sys.executable, "-m", "homing.cli.main", "simulate", str(file), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert '"outcome":"sender_error"' in done.stdout
