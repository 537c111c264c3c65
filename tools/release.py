"""Builds a release: ``make release`` runs it, with the locked setuptools of .venv.

    python tools/release.py dist                          the latest commit
    python tools/release.py dist --from DIR --time 1.8e9  the source in DIR, as of this Unix time

It writes a wheel and an sdist of homing-client and of homing, a CycloneDX SBOM and SHA256SUMS.
Everything is built twice, in directories of different names, with different umasks and time zones.
Nothing is written if the two results differ by a byte.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROJECTS = ("packages/homing-client", ".")
BUILD = (
    "import sys; from setuptools import build_meta as backend\n"
    "print(getattr(backend, sys.argv[1])(sys.argv[2]))"
)


def main() -> None:
    """Build twice, compare, and put the files into the directory."""
    options = _read_options()
    with tempfile.TemporaryDirectory(prefix="release-") as place:
        first, second = Path(place, "first"), Path(place, "second-time")
        time = options.time
        if options.source is None:
            time = int(_git("log", "-1", "--format=%ct"))
            if _git("status", "--porcelain"):
                print("Note: the release has the latest commit, without your uncommitted changes.")
        for directory, umask, zone in ((first, 0o022, "UTC"), (second, 0o077, "Asia/Tokyo")):
            source = directory / "source"
            _copy_source(options.source, source)
            build(source, directory / "out", time=time, umask=umask, zone=zone)
        digests = _digests(first / "out")
        if digests != _digests(second / "out"):
            different = sorted(
                name for name in digests if digests[name] != _digests(second / "out").get(name)
            )
            sys.exit(f"Two builds differ, nothing is written: {', '.join(different)}")
        options.directory.mkdir(parents=True, exist_ok=True)
        for old in options.directory.glob("homing*-*"):  # of another version
            old.unlink()
        for name in digests:
            shutil.copyfile(first / "out" / name, options.directory / name)
    for name, digest in digests.items():
        print(f"{digest}  {(options.directory / name).stat().st_size:>9,} bytes  {name}")
    print(f"Built twice with the same bytes: {options.directory}")


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("directory", type=Path, help="where the files are written")
    parser.add_argument("--from", dest="source", type=Path, help="a source tree, not the commit")
    parser.add_argument("--time", type=lambda it: int(float(it)), default=0, help="Unix time")
    return parser.parse_args()


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _copy_source(source: Path | None, target: Path) -> None:
    """Copy a source tree, or the files of the latest commit."""
    if source is not None:
        shutil.copytree(source, target, symlinks=True)
        return
    packed = subprocess.run(
        ["git", "archive", "--format=tar", "HEAD"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(target, filter="data")


# --- packages ---------------------------------------------------------------------------------


def build(source: Path, out: Path, *, time: int, umask: int, zone: str) -> None:
    """Build both packages of a source tree, each wheel from its sdist; then SBOM and checksums."""
    out.mkdir(parents=True)
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(time), "TZ": zone}
    environ.pop("PYTHONPATH", None)
    for project in PROJECTS:
        with tempfile.TemporaryDirectory() as place:
            made = Path(place) / _call("build_sdist", source / project, place, environ, umask)
            sdist = out / made.name
            _repack(made, sdist, time=time)
            with tarfile.open(sdist) as archive:
                archive.extractall(place, filter="data")
            _call(
                "build_wheel",
                Path(place, sdist.name.removesuffix(".tar.gz")),
                str(out),
                environ,
                0o022,  # The files that the backend writes are in the wheel with their modes.
            )
    bom = make_bom(source, _digests(out), time=time)
    version = bom["metadata"]["component"]["version"]
    (out / f"homing-{version}.cdx.json").write_text(json.dumps(bom, indent=2) + "\n")
    sums = "".join(f"{digest}  {name}\n" for name, digest in _digests(out).items())
    (out / "SHA256SUMS").write_text(sums)


def _call(hook: str, project: Path, out: str, environ: Mapping[str, str], umask: int) -> str:
    """Call a hook of the build backend; returns the name of the file that it made."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", BUILD, hook, out],
        cwd=project,
        env=environ,
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{hook} of {project} failed:\n{done.stdout}{done.stderr}")
    return done.stdout.splitlines()[-1]


def _repack(made: Path, target: Path, *, time: int) -> None:
    """Write the sdist again without what differs between builds: order, owners, modes, times."""
    with (
        tarfile.open(made) as old,
        target.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=time) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda it: it.name):
            plain = tarfile.TarInfo(member.name)
            plain.type, plain.size, plain.mtime = member.type, member.size, time
            plain.mode = 0o755 if member.isdir() else 0o644
            new.addfile(plain, old.extractfile(member))


def _digests(directory: Path) -> dict[str, str]:
    """The SHA-256 of every file, by name."""
    return {
        it.name: hashlib.sha256(it.read_bytes()).hexdigest() for it in sorted(directory.iterdir())
    }


# --- SBOM -------------------------------------------------------------------------------------


def make_bom(source: Path, digests: Mapping[str, str], *, time: int) -> dict[str, Any]:
    """The CycloneDX SBOM: both packages, and the locked packages that they need."""
    known = {it.name: it for it in _read_lock((source / "requirements.lock").read_text())}
    for project in PROJECTS:
        own = _read_project(source / project / "pyproject.toml", digests)
        known[own.name] = own
    server = known["homing"]
    needed: dict[str, Package] = {}
    left = [server]
    while left:
        package = left.pop()
        needed[package.name] = package
        left += [known[it] for it in package.needs if it not in needed]
    identity = server.purl + json.dumps(dict(digests), sort_keys=True)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, identity)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lifecycles": [{"phase": "build"}],
            "component": server.component("application"),
        },
        "components": [
            needed[name].component("library") for name in sorted(needed) if name != server.name
        ],
        "dependencies": [
            {"ref": it.purl, "dependsOn": sorted(known[name].purl for name in it.needs)}
            for _, it in sorted(needed.items())
        ],
    }


@dataclass
class Package:
    """A package of the SBOM; ``more`` has what only our own packages say of themselves."""

    name: str
    version: str
    needs: list[str]
    everywhere: bool = True  # whether it is installed on every platform
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"

    def component(self, kind: str) -> dict[str, Any]:
        """The package as CycloneDX writes it."""
        return {
            "type": kind,
            "bom-ref": self.purl,
            "name": self.name,
            "version": self.version,
            "scope": "required" if self.everywhere else "optional",
            "purl": self.purl,
            **self.more,
        }


def _read_project(path: Path, digests: Mapping[str, str]) -> Package:
    """A package of this repository, with the digest of its wheel."""
    project = tomllib.loads(path.read_text())["project"]
    name = project["name"]
    (wheel,) = (it for it in digests if it.startswith(f"{name.replace('-', '_')}-") and "whl" in it)
    return Package(
        name,
        wheel.split("-")[1],
        [_name(it) for it in project["dependencies"]],
        more={
            "description": project["description"],
            "supplier": {"name": project["authors"][0]["name"]},
            "licenses": [{"license": {"id": project["license"]}}],
            "hashes": [{"alg": "SHA-256", "content": digests[wheel]}],
        },
    )


def _read_lock(text: str) -> list[Package]:
    """The packages of a lock file; the comment of each says which packages need it."""
    packages: dict[str, Package] = {}
    needed_by: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if pin := re.match(r"([^\s=]+)==([^\s;]+)(\s*;)?", line):
            name = pin[1]
            packages[name] = Package(name, pin[2], [], everywhere=pin[3] is None)
        elif by := re.match(r"    #(?: via|  ) ([\w.-]+)", line):
            needed_by.setdefault(by[1], []).append(name)
    for by_name, names in needed_by.items():
        if by_name in packages:
            packages[by_name].needs += names
    return list(packages.values())


def _name(requirement: str) -> str:
    """The normalized name of a requirement such as ``msgspec>=0.19``."""
    (name,) = re.findall(r"^[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
