"""The mutation score: how many small changes to policy, settle and guard make a test fail.

``python -m chaos.mutation [--only policy/health.py] [--sample 400]``. Every mutant runs in a fork;
nothing is written to the sources. A change inside a function meets the tests that call it
(``judging``). A change of a module itself meets the tests that know the module, in a fork of a
process that has loaded everything but Homing. A sample is drawn by the seed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pickle
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType
from typing import NamedTuple

import hypothesis
import pytest

from chaos.judging import Bench, limit_cpu, silence
from chaos.mutants import Mutant, mutants
from chaos.swapping import Swap, changed_function, functions

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "homing"
SUBJECTS = ("policy/*.py", "engine/settle.py", "engine/decide.py", "net/guard.py")
ELSEWHERE = {  # tests that know a module, outside tests/policy; those there bear its name
    "filters_compare": ("tests/policy/test_filters.py", "tests/policy/test_filters_agree.py"),
    "filters_run": ("tests/policy/test_filters.py", "tests/policy/test_filters_agree.py"),
    "outage": ("tests/engine/test_outage.py",),
    "guard": ("tests/net/test_guard.py",),
    "keys": ("tests/web/test_keys.py",),
    "networks": ("tests/policy/test_reach.py",),
    "pace": ("tests/engine/test_pace.py",),
    "quota": ("tests/web/test_quotas.py",),
    "rotation": ("tests/web/test_rotation.py",),
    "encryption": ("tests/store/test_encryption.py",),
    "encryption_keys": ("tests/store/test_encryption.py", "tests/server/test_encryption_key.py"),
    "settle": ("tests/engine",),
    "decide": ("tests/engine",),
    "tables": ("tests/server/test_settings.py",),
    "wants": ("tests/engine/test_filters.py",),
}
TESTS = sorted(
    {"tests/policy", "tests/engine"}
    | {
        it
        for tests in ELSEWHERE.values()
        for it in tests
        if not it.startswith(("tests/policy", "tests/engine"))
    }
)
SIMULATED = ("settle", "decide", "health", "retry")  # also judged by the first seeds …
SEEDS, DELIVERIES = 6, 100  # … of those that every test run simulates
SIMULATED_CPU_S = 60
LOADED = ("msgspec", "apsw", "asyncpg", "structlog", "starlette", "anyio")
MODULE_CPU_S = 120
ONE_S = 600.0
TARGET = 85.0
OPTIONS = (
    "-q",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "--tb=no",
    "--hypothesis-seed=0",
    "-k",
    "not postgres",
    "--disable-warnings",
)


class Job(NamedTuple):
    """A mutant of a module; ``code``: of the one function that it changes."""

    file: Path
    mutant: Mutant
    code: CodeType | None

    def __str__(self) -> str:
        place = self.file.relative_to(SOURCES)
        return f"{place}:{self.mutant.line}: {self.mutant.before}  →  {self.mutant.after}"


def _quick_hypothesis() -> None:
    """A failure is enough: nothing is made smaller, nothing is kept for the next time."""
    found = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile(
        "mutation", phases=found, database=None, max_examples=40, deadline=None
    )
    hypothesis.settings.load_profile("mutation")


def _simulated(job: Job) -> int:
    if job.file.stem not in SIMULATED:
        return 0
    from simulation.seed import run_seed

    limit_cpu(SIMULATED_CPU_S)
    return int(any(run_seed(seed, DELIVERIES).violation for seed in range(SEEDS)))


@cache
def _own_tests(stem: str) -> tuple[str, ...]:
    known = sorted((ROOT / "tests" / "policy").glob(f"test_{stem}*.py"))
    return (*(str(it.relative_to(ROOT)) for it in known), *ELSEWHERE.get(stem, ()))


def _module_judged(job: Job) -> int:
    """In a fork that has not loaded Homing: 0 if the module's own tests pass with the change."""
    limit_cpu(MODULE_CPU_S)
    swap = Swap(job.file, job.mutant.text)
    sys.meta_path.insert(0, swap)
    importlib.import_module(swap.name)  # Before pytest puts a finder of its own in front.
    code = pytest.main(["-x", *OPTIONS, *_own_tests(job.file.stem)])
    return int(code) if code not in (0, 5) else _simulated(job)


@dataclass
class Score:
    """What became of the mutants."""

    killed: int = 0
    timed_out: int = 0
    survivors: list[Job] = field(default_factory=list)
    running: dict[int, tuple[Job, float]] = field(default_factory=dict)
    quiet: bool = False

    @property
    def tried(self) -> int:
        return self.killed + self.timed_out + len(self.survivors)

    @property
    def percent(self) -> float:
        return 100 * (self.killed + self.timed_out) / max(self.tried, 1)

    def start(self, job: Job, judge: Callable[[Job], int]) -> None:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            code = 98
            try:
                silence()
                code = judge(job)
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
            if not self.quiet:
                print(f"  survived  {job}", flush=True)
        else:
            self.killed += 1


def _jobs(only: str) -> list[Job]:
    files = sorted(it for subject in SUBJECTS for it in SOURCES.glob(subject))
    chosen = [it for it in files if not only or str(it).endswith(only)]
    return [
        Job(file, mutant, changed_function(file.read_text(), mutant.text))
        for file in chosen
        for mutant in mutants(file.read_text())
    ]


class Run:
    """All jobs, those inside functions first."""

    def __init__(self, jobs: Sequence[Job], *, workers: int) -> None:
        self._jobs, self._workers = jobs, workers
        self.score = Score()
        self.broken = ""  # why the tests can judge nothing
        self._told = time.monotonic()

    def all(self) -> None:
        inside = [it for it in self._jobs if it.code is not None]
        if inside:
            self._in_a_fork_of_its_own(inside)
        modules = [it for it in self._jobs if it.code is None]
        for stem in sorted({it.file.stem for it in modules}):
            if not self.broken and not _own_tests(stem):
                self.broken = f"No test is known for {stem}."
        if not self.broken:
            self._judge(modules, _module_judged)

    def _in_a_fork_of_its_own(self, jobs: Sequence[Job]) -> None:
        """It loads Homing, which this process must not: it tells of its score by a pipe."""
        ours, theirs = os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(ours)
                self._inside(jobs)
                with os.fdopen(theirs, "wb") as out:
                    survivors = [self._jobs.index(it) for it in self.score.survivors]
                    counts = (self.score.killed, self.score.timed_out)
                    pickle.dump((self.broken, *counts, survivors), out)
            finally:
                sys.stdout.flush()
                os._exit(0)
        os.close(theirs)
        with os.fdopen(ours, "rb") as told:
            self.broken, killed, timed_out, survivors = pickle.load(told)
        os.waitpid(pid, 0)
        self.score = Score(killed, timed_out, [self._jobs[it] for it in survivors])

    def _inside(self, jobs: Sequence[Job]) -> None:
        """Collect the tests once; then every job is judged in a fork."""

        def judge(bench: Bench) -> None:
            known = bench.look()
            if known.failed or not known.took_s:
                self.broken = f"{known.failed} tests fail without any change."
                return

            def judged(job: Job) -> int:
                assert job.code is not None
                return bench.judged(job.file, job.code) or _simulated(job)

            def cost_s(job: Job) -> float:
                assert job.code is not None
                return bench.cost_s(job.file, job.code)

            dear_first = sorted(jobs, key=cost_s, reverse=True)
            if self._same_again({it.file: it for it in dear_first}.values(), judged):
                self._judge(jobs, judged)

        out = os.dup(1)
        bench = Bench(sorted({it.file for it in jobs}), judge)
        pytest.main(["-s", *OPTIONS, *TESTS], plugins=[bench])
        os.dup2(out, 1)

    def _same_again(self, jobs: Iterable[Job], judged: Callable[[Job], int]) -> bool:
        """The control: one function of each file, a quick one, with the code that it has anyway."""
        control = Score(quiet=True)
        for job in jobs:
            text = job.file.read_text()
            old = compile(text, str(job.file), "exec")
            assert job.code is not None
            name = job.code.co_qualname
            same = next(it for it in functions(old) if it.co_qualname == name)
            control.start(job._replace(code=same), judged)
            control.wait()
            if control.tried > len(control.survivors):
                self.broken = f"A change that changes nothing was noticed: {name} of {job.file}."
                break
        return not self.broken

    def _judge(self, jobs: Sequence[Job], judged: Callable[[Job], int]) -> None:
        waiting = list(jobs)
        while waiting or self.score.running:
            if waiting and len(self.score.running) < self._workers:
                self.score.start(waiting.pop(), judged)
                continue
            self.score.wait()
            if time.monotonic() - self._told > 10:
                self._told = time.monotonic()
                done, whole = self.score.tried, len(self._jobs)
                print(f"  {done:,} of {whole:,}: {self.score.percent:.1f} %", flush=True)


def main() -> int:
    asked = argparse.ArgumentParser(prog="make mutation")
    asked.add_argument("--only", default="", help="the end of a file's name")
    asked.add_argument("--sample", type=int, default=0, help="so many, drawn by the seed (all)")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--workers", type=int, default=2)
    given = asked.parse_args()
    os.chdir(ROOT)
    for name in LOADED:
        importlib.import_module(name)
    _quick_hypothesis()
    began = time.monotonic()
    jobs = _jobs(given.only)
    whole = len(jobs)
    random.Random(given.seed).shuffle(jobs)
    jobs = jobs[: given.sample or whole]
    print(f"{whole:,} mutants, {len(jobs):,} of them tried (seed {given.seed})", flush=True)
    run = Run(jobs, workers=given.workers)
    run.all()
    if run.broken:
        print(run.broken)
        return 1
    _tell(run.score, whole, time.monotonic() - began)
    return int(run.score.percent < TARGET)


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
