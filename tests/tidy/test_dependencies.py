"""The lock files, the versions that are installed, and the Python that `make` chooses."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
SERVE, DEVELOP = ROOT / "requirements.lock", ROOT / "requirements-dev.lock"
PYTHONS = ("3.11", "3.12", "3.13")


class Pin(NamedTuple):
    """One package of a lock file."""

    requirement: Requirement
    hashes: list[str]

    @property
    def version(self) -> str:
        return str(next(iter(self.requirement.specifier)).version)


def pins(path: Path) -> Iterator[Pin]:
    lines = [it for it in path.read_text().splitlines() if it and not it.lstrip().startswith("#")]
    for entry in "\n".join(lines).replace("\\\n", " ").splitlines():
        text, *hashes = entry.split("--hash=")
        yield Pin(Requirement(text), [it.strip() for it in hashes])


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def wanted(*extras: str) -> list[Requirement]:
    """What is installed from PyPI; the client comes from this repository."""
    table = project()
    texts = [*table["project"]["dependencies"], *table["dependency-groups"]["build"]]
    for extra in extras:
        texts += table["project"]["optional-dependencies"][extra]
    return [Requirement(text) for text in texts if not text.startswith("homing-client")]


def test_uvicorn_is_a_version_that_the_tests_have_seen() -> None:
    installed = metadata.version("uvicorn")
    (cap,) = (it for it in wanted() if it.name == "uvicorn")
    assert installed in cap.specifier, (
        f"uvicorn {installed} is installed, but Homing is tested with uvicorn{cap.specifier} only:"
        " homing/web uses internals of uvicorn (HttpToolsProtocol, RequestResponseCycle,"
        " Server.shutdown) that change between versions. Run `make setup` to install the locked"
        " version. To move to another one, change its range in pyproject.toml, run `make lock`,"
        " then `make test` and `make security`."
    )


@pytest.mark.parametrize("path", [SERVE, DEVELOP], ids=lambda it: it.name)
def test_a_lock_file_pins_and_hashes_everything_and_names_no_host(path: Path) -> None:
    assert "://" not in path.read_text(), "no registry, no links: any mirror may serve the files"
    found = list(pins(path))
    assert found
    for pin in found:
        assert re.fullmatch(r"==[^,*]+", str(pin.requirement.specifier)), pin
        assert pin.requirement.url is None
        assert pin.hashes, pin
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", it) for it in pin.hashes), pin


@pytest.mark.parametrize(
    ("path", "extras"), [(SERVE, ()), (DEVELOP, ("dev", "bench"))], ids=["serve", "develop"]
)
@pytest.mark.parametrize("python", PYTHONS)
def test_a_lock_file_fits_pyproject_on_every_python(
    path: Path, extras: tuple[str, ...], python: str
) -> None:
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    locked = {
        canonicalize_name(pin.requirement.name): pin.version
        for pin in pins(path)
        if pin.requirement.marker is None or pin.requirement.marker.evaluate(environment)
    }
    for requirement in wanted(*extras):
        version = locked.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement} is not in {path.name}: run `make lock`"
        assert version in requirement.specifier, f"{requirement} is {version}: run `make lock`"


def test_development_has_the_versions_of_serving() -> None:
    """On which Pythons a package is needed may differ: tools need some of them on more."""
    develop = {(pin.requirement.name, pin.version): pin.hashes for pin in pins(DEVELOP)}
    for pin in pins(SERVE):
        assert develop.get((pin.requirement.name, pin.version)) == pin.hashes


def test_the_build_group_is_what_the_build_system_requires() -> None:
    table = project()
    assert table["dependency-groups"]["build"] == table["build-system"]["requires"]


# --- the Python that is chosen ----------------------------------------------------------------


def fake(place: Path, name: str, version: str, *, able: bool = True) -> None:
    """A program that behaves like a Python of this version."""
    word = "able" if able else "unable"
    script = place / name
    script.write_text(f"#!/bin/sh\necho {version} {word} {script}\n")
    script.chmod(0o755)


def chosen(place: Path, *version: str, **more: str) -> tuple[int, str, str]:
    ran = subprocess.run(
        ["/bin/sh", str(ROOT / "tools" / "find_python.sh"), *version],
        env={"PATH": str(place), **more},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, Path(ran.stdout.strip()).name, ran.stderr


def test_the_newest_tested_python_is_chosen_by_whatever_name(tmp_path: Path) -> None:
    fake(tmp_path, "python3.11", "3.11")
    fake(tmp_path, "python3.12", "3.12")
    assert chosen(tmp_path) == (0, "python3.12", "")
    fake(tmp_path, "python3", "3.13")
    fake(tmp_path, "python3.14", "3.14")
    assert chosen(tmp_path) == (0, "python3", "")
    assert chosen(tmp_path, PYTHON=str(tmp_path / "python3.11")) == (0, "python3.11", "")


def test_a_name_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "python3.13").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "python3.13").chmod(0o755)
    fake(tmp_path, "python3.12", "3.12", able=False)
    fake(tmp_path, "python3.11", "3.11")
    assert chosen(tmp_path) == (0, "python3.11", "")


def test_a_newer_python_is_chosen_only_if_there_is_no_other_and_it_says_so(tmp_path: Path) -> None:
    fake(tmp_path, "python3.15", "3.15")
    fake(tmp_path, "python3.14", "3.14")
    code, name, said = chosen(tmp_path)
    assert (code, name) == (0, "python3.14")
    assert "Homing is tested with Python 3.11 3.12 3.13. Python 3.14 is newer" in said


@pytest.mark.parametrize(
    ("version", "able", "said"),
    [
        ("3.9", True, "Found only: python3 (3.9)."),
        ("3.12", False, "apt-get install python3.12-venv"),
        (None, True, "Found none."),
    ],
)
def test_without_a_python_it_says_how_to_get_one(
    tmp_path: Path, version: str | None, able: bool, said: str
) -> None:
    if version is not None:
        fake(tmp_path, "python3", version, able=able)
    code, name, told = chosen(tmp_path)
    assert (code, name) == (1, "")
    assert "Homing needs Python 3.11, 3.12 or 3.13" in told
    assert said in told


def test_a_python_of_a_version_is_found_on_the_path_or_in_pyenv(tmp_path: Path) -> None:
    fake(tmp_path, "python3", "3.13")
    fake(tmp_path, "python3.12", "3.12", able=False)
    pyenv = tmp_path / "versions" / "3.12.4" / "bin"
    pyenv.mkdir(parents=True)
    fake(pyenv, "python", "3.12")
    assert chosen(tmp_path, "3.13", HOME=str(tmp_path)) == (0, "python3", "")
    assert chosen(tmp_path, "3.12", PYENV_ROOT=str(tmp_path)) == (0, "python", "")
    assert chosen(tmp_path, "3.12", HOME=str(tmp_path)) == (1, "", "")
    assert chosen(tmp_path, "3.14", PYTHON=str(tmp_path / "python3")) == (1, "", "")


def test_the_real_probe_finds_this_python() -> None:
    here = Path(sys.executable)
    code, name, _ = chosen(here.parent, PYTHON=str(here))
    assert (code, name) == (0, here.name)
