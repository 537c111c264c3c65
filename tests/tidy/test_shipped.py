"""The package contains what users run; the seeded fault harness stays in the tests."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src"
ENTRIES = ("homing.cli.simulate", "homing.server.simulator")  # the command and the page


def imported(module: str) -> set[str]:
    """Modules of ``homing.sim`` that a module imports, wherever in its text."""
    file = SOURCES.joinpath(*module.split(".")).with_suffix(".py")
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("homing.sim."):
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {it.name for it in node.names if it.name.startswith("homing.sim.")}
    return found


def test_sim_holds_only_what_the_command_and_the_simulator_page_need() -> None:
    needed: set[str] = set()
    left = list(ENTRIES)
    while left:
        new = imported(left.pop()) - needed
        needed |= new
        left += new
    there = {f"homing.sim.{it.stem}" for it in (SOURCES / "homing" / "sim").glob("[!_]*.py")}
    assert there == needed


def test_the_wheel_is_made_from_src_and_nothing_else() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert tools["setuptools"]["packages"] == {"find": {"where": ["src"]}}
    assert [it.name for it in SOURCES.iterdir() if (it / "__init__.py").exists()] == ["homing"]
