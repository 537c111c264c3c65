"""The mutation score: how many small changes to policy, settle and guard make a test fail.

``python -m chaos.mutation [--only policy/health.py] [--seconds 1200]``. Every mutant runs in a fork
of a process that has loaded everything but Homing; nothing is written to the sources. If the time
is up before all were tried, those tried are a fair sample, drawn by the seed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

import hypothesis
import pytest

from chaos.mutants import Mutant, mutants

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "homing"
SUBJECTS = ("policy/*.py", "engine/settle.py", "engine/decide.py", "net/guard.py")
FIRST = {  # the tests that know a module best; all others follow
    "guard": ("tests/net/test_guard.py",),
    "settle": ("tests/engine",),
    "decide": ("tests/engine/test_decide.py", "tests/engine"),
    "tables": ("tests/policy/test_tables.py", "tests/test_config.py"),
}
SIMULATED = ("settle", "decide", "health", "retry")  # also judged by the first seeds …
SEEDS, DELIVERIES = 6, 100  # … of those that every test run simulates
REST = ("tests/policy", "tests/engine")
LOADED = ("msgspec", "apsw", "asyncpg", "structlog", "starlette", "anyio")
ONE_CPU_S = 40  # of the processor, so that a busy machine does not look like an endless loop
ONE_S = 600.0
TARGET = 85.0


class Job(NamedTuple):
    """A mutant of a module."""

    file: Path
    mutant: Mutant | None  # None: the module as it is

    def __str__(self) -> str:
        place = self.file.relative_to(SOURCES)
        if self.mutant is None:
            return f"{place} as it is"
        return f"{place}:{self.mutant.line}: {self.mutant.before}  →  {self.mutant.after}"


class Swap(MetaPathFinder):
    """Gives one module another text."""

    def __init__(self, file: Path, text: str) -> None:
        self._file, self._text = file, text
        self.name = ".".join(file.relative_to(ROOT / "src").with_suffix("").parts)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        swap = self

        class Loader(SourceFileLoader):
            def get_code(self, fullname: str) -> CodeType | None:
                code: CodeType = compile(swap._text, self.path, "exec")
                return code

        loader = Loader(fullname, str(self._file))
        return importlib.util.spec_from_file_location(fullname, self._file, loader=loader)


def _tests(file: Path) -> list[str]:
    best = FIRST.get(file.stem)
    if best is None:
        known = sorted((ROOT / "tests" / "policy").glob(f"test_{file.stem}*.py"))
        best = tuple(str(it.relative_to(ROOT)) for it in known)
    return [*best, *(it for it in REST if it not in best)]


def _in_child(job: Job) -> int:
    """0: every test passed. Anything else: something noticed."""
    resource.setrlimit(resource.RLIMIT_CPU, (ONE_CPU_S, ONE_CPU_S))
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    text = job.file.read_text() if job.mutant is None else job.mutant.text
    swap = Swap(job.file, text)
    sys.meta_path.insert(0, swap)
    # A failure is enough: nothing is made smaller, nothing is kept for the next time.
    found = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutation", phases=found, database=None, max_examples=40)
    hypothesis.settings.load_profile("mutation")
    importlib.import_module(swap.name)  # Before pytest puts a finder of its own in front.
    options = [
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--tb=no",
        "--hypothesis-seed=0",
    ]
    for tests in _tests(job.file):
        code = pytest.main([*options, tests])
        if code not in (0, 5):
            return int(code)
    return _simulated() if job.file.stem in SIMULATED else 0


def _simulated() -> int:
    from homing.sim.seed import run_seed

    return int(any(run_seed(seed, DELIVERIES).violation for seed in range(SEEDS)))


@dataclass
class Score:
    """What became of the mutants."""

    killed: int = 0
    timed_out: int = 0
    survivors: list[Job] = field(default_factory=list)
    running: dict[int, tuple[Job, float]] = field(default_factory=dict)

    @property
    def tried(self) -> int:
        return self.killed + self.timed_out + len(self.survivors)

    @property
    def percent(self) -> float:
        return 100 * (self.killed + self.timed_out) / max(self.tried, 1)

    def start(self, job: Job) -> None:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            code = 98
            try:
                code = _in_child(job)
            finally:
                os._exit(code)
        self.running[pid] = (job, time.monotonic() + ONE_S)

    def wait(self) -> None:
        """Until one has ended; one that takes for ever is ended, and was noticed."""
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in self.running:
                self._ended(self.running.pop(pid)[0], status)
                return
            for late, (_, deadline) in self.running.items():
                if time.monotonic() > deadline:
                    os.kill(late, signal.SIGKILL)
            time.sleep(0.02)

    def _ended(self, job: Job, status: int) -> None:
        if os.WIFSIGNALED(status):
            self.timed_out += 1
        elif os.WEXITSTATUS(status) == 0:
            self.survivors.append(job)
            if job.mutant is not None:
                print(f"  survived  {job}", flush=True)
        else:
            self.killed += 1


def _jobs(only: str) -> list[Job]:
    files = sorted(it for subject in SUBJECTS for it in SOURCES.glob(subject))
    chosen = [it for it in files if not only or str(it).endswith(only)]
    return [Job(file, mutant) for file in chosen for mutant in mutants(file.read_text())]


def _baseline(files: set[Path]) -> bool:
    """The control: without a change all tests pass."""
    plain = Score()
    for file in sorted(files)[:1]:
        plain.start(Job(file, None))
        plain.wait()
    return len(plain.survivors) == 1


def main() -> int:
    asked = argparse.ArgumentParser(prog="make mutation")
    asked.add_argument("--only", default="", help="the end of a file's name")
    asked.add_argument("--seconds", type=float, default=1_800.0)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--workers", type=int, default=2)
    given = asked.parse_args()
    os.chdir(ROOT)
    for name in LOADED:
        importlib.import_module(name)
    began = time.monotonic()
    jobs = _jobs(given.only)
    whole = len(jobs)
    print(f"{whole:,} mutants, seed {given.seed}; first everything as it is")
    if not _baseline({job.file for job in jobs}):
        print("The tests fail without any change.")
        return 1
    random.Random(given.seed).shuffle(jobs)
    score, told = Score(), began
    while (jobs and time.monotonic() - began < given.seconds) or score.running:
        if jobs and len(score.running) < given.workers and time.monotonic() - began < given.seconds:
            score.start(jobs.pop())
            continue
        score.wait()
        if time.monotonic() - told > 10:
            told = time.monotonic()
            print(f"  {score.tried:,} of {whole:,}: {score.percent:.1f} %", flush=True)
    _tell(score, whole, time.monotonic() - began)
    return int(score.percent < TARGET)


def _tell(score: Score, whole: int, took_s: float) -> None:
    print(f"\nsurvivors: {len(score.survivors)}")
    for line in sorted(map(str, score.survivors)):
        print(f"  {line}")
    print(
        f"mutation score {score.percent:.1f} % (target {TARGET:.0f} %):"
        f" {score.tried:,} of {whole:,} tried, {score.killed:,} noticed,"
        f" {score.timed_out:,} never ended, {len(score.survivors):,} survived, {took_s:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
