"""Both wheels, built as ``make release`` builds them, on this Python; ``make pythons`` has all."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import sysconfig
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

import homing
from pythons.environments import ROOT, build_release, ran, round_trip

SOURCE = ("LICENSE", "MANIFEST.in", "README.md", "packages", "pyproject.toml", "requirements.lock")


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files of a release from the source as it is now; it is built twice and compared."""
    place = tmp_path_factory.mktemp("release")
    source = place / "source"
    source.mkdir()
    for name in (*SOURCE, "src"):
        if (ROOT / name).is_file():
            shutil.copy2(ROOT / name, source)
        else:
            junk = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=junk)
    return build_release(place / "dist", "--from", source, "--time", "1800000000")


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (it for it in archive.namelist() if it.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def files_in_wheel(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {it for it in archive.namelist() if ".dist-info/" not in it}


def files_in_source(package: str) -> set[str]:
    root = ROOT / "src"
    found = (it for it in (root / package).rglob("*") if it.is_file())
    return {str(it.relative_to(root)) for it in found if it.parent.name != "__pycache__"}


@pytest.mark.long
def test_a_release_has_every_file_of_the_source_with_metadata_checksums_and_an_sbom(
    release: dict[str, Path],
) -> None:
    assert release.keys() == {
        *("client.whl", "client.tar.gz", "server.whl", "server.tar.gz"),
        *("server.cdx.json", "sums"),
    }
    for kind, package in (("client", "homing_client"), ("server", "homing")):
        wheel = release[f"{kind}.whl"]
        assert files_in_wheel(wheel) == files_in_source(package)
        about = metadata(wheel)
        assert about["Name"] == package.replace("_", "-")
        assert (about["Version"], about["License-Expression"]) == (homing.__version__, "Apache-2.0")
        assert str(about.get_payload()).startswith("# ")
        with tarfile.open(release[f"{kind}.tar.gz"]) as sdist:
            assert all(it.isfile() or it.isdir() for it in sdist.getmembers())
    needs = metadata(release["client.whl"]).get_all("Requires-Dist")
    assert needs == ["msgspec>=0.19", 'cryptography>=44; extra == "ed25519"']
    assert f"homing-client=={homing.__version__}" in (
        metadata(release["server.whl"]).get_all("Requires-Dist") or ()
    )
    for line in release["sums"].read_text().splitlines():
        digest, name = line.split()
        content = (release["sums"].parent / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest

    bom = json.loads(release["server.cdx.json"].read_text())
    parts = {it["name"]: it for it in (bom["metadata"]["component"], *bom["components"])}
    locked = {
        line.partition("==")[0]
        for line in (ROOT / "requirements.lock").read_text().splitlines()
        if "==" in line
    }
    assert parts.keys() == (locked - {"setuptools"}) | {"homing", "homing-client"}
    (hashed,) = parts["homing-client"]["hashes"]
    assert hashed["content"] == hashlib.sha256(release["client.whl"].read_bytes()).hexdigest()
    refs = {it["bom-ref"] for it in parts.values()}
    needed = {it["ref"]: set(it["dependsOn"]) for it in bom["dependencies"]}
    assert needed.keys() == refs
    assert set().union(*needed.values()) == refs - {parts["homing"]["bom-ref"]}
    assert needed[parts["homing-client"]["bom-ref"]] == {parts["msgspec"]["bom-ref"]}


def install(environment: Path, *wheels: Path) -> Path:
    """An environment with these wheels and nothing else, not even pip."""
    ran(sys.executable, "-m", "venv", "--without-pip", environment)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    python = environment / "bin" / "python"
    options = ("--quiet", "--no-index", "--no-deps", "--no-compile")
    ran(*pip, "--python", python, "install", *options, *wheels)
    (packages,) = environment.glob("lib/python*/site-packages")
    return packages


@pytest.mark.long
def test_a_program_with_the_clients_wheel_publishes_to_and_verifies_from_the_servers_wheel(
    release: dict[str, Path], tmp_path: Path
) -> None:
    """No network: msgspec is copied, and the server's dependencies are those of this Python."""
    here = Path(sysconfig.get_path("platlib"))
    packages = install(tmp_path / "client", release["client.whl"])
    for part in here.glob("msgspec*"):
        shutil.copytree(part, packages / part.name)
    packages = install(tmp_path / "server", release["client.whl"], release["server.whl"])
    (packages / "dependencies.pth").write_text(f"{here}\n")

    result = round_trip(tmp_path / "client", tmp_path / "server", tmp_path / "run")

    assert result == {
        "version": homing.__version__,
        "server": homing.__version__,
        "packages": ["homing-client", "msgspec"],
        "has the server": False,
    }
    code = "import homing, homing_client; print(homing.__file__, homing_client.__file__)"
    files = ran(tmp_path / "server" / "bin" / "python", "-I", "-c", code).split()
    assert all(Path(it).is_relative_to(packages) for it in files)
