"""The packages contain what users run; the seeded fault harness stays in the tests."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import homing
import homing_client

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "packages" / "homing-client"
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


def project(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((directory / "pyproject.toml").read_text())
    return found


def test_the_two_wheels_are_made_from_src_and_nothing_else() -> None:
    finds = [project(it)["tool"]["setuptools"]["packages"]["find"] for it in (ROOT, CLIENT)]
    assert finds == [
        {"where": ["src"], "include": ["homing", "homing.*"]},
        {"where": ["src"], "include": ["homing_client"]},
    ]
    assert (CLIENT / "src").resolve() == SOURCES
    packages = sorted(it.name for it in SOURCES.iterdir() if (it / "__init__.py").exists())
    assert packages == ["homing", "homing_client"]


def test_the_wheel_has_every_file_that_is_not_python() -> None:
    """``test_wheels`` builds the wheel and compares it, in ``make long``."""
    package = SOURCES / "homing"
    patterns = project(ROOT)["tool"]["setuptools"]["package-data"]["homing"]
    there = {it for it in package.rglob("*") if it.is_file() and it.suffix not in {".py", ".pyc"}}
    named = {it for pattern in patterns for it in _matching(package, pattern)}
    assert sorted(there - named) == [], "add them to package-data in pyproject.toml"


def _matching(package: Path, pattern: str) -> set[Path]:
    """As setuptools reads a pattern: ``**`` at its end stands for files at every depth."""
    pattern = f"{pattern}/*" if pattern.endswith("**") else pattern
    return set(package.glob(pattern))


def test_server_and_client_have_one_version_and_the_server_needs_that_client() -> None:
    assert homing.__version__ == homing_client.__version__
    pin = f"homing-client=={homing.__version__}"
    assert pin in project(ROOT)["project"]["dependencies"]


def test_the_client_needs_only_msgspec_in_the_versions_of_the_server() -> None:
    (need,) = project(CLIENT)["project"]["dependencies"]
    assert need.startswith("msgspec")
    assert need in project(ROOT)["project"]["dependencies"]


@pytest.mark.parametrize("name", ["homing", "homing-client"])
def test_the_page_of_a_package_on_pypi_has_no_link_into_the_repository(name: str) -> None:
    page = (ROOT / "packages" / name / "README.md").read_text()
    links = re.findall(r"\]\(([^)]*)\)", page)
    assert all(it.startswith("https://") for it in links), "a relative link is dead on PyPI"
