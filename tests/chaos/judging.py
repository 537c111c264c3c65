"""Judges many mutants with tests that were collected once: each in a fork of the collected run.

A first fork runs every test as it is, and notes which functions of the subjects each test calls
and how long it takes. A mutant then meets the tests that call its function, the quickest first.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import pytest

from chaos.swapping import put_in

FAILED = 3


class Called(NamedTuple):
    """A function of a subject."""

    file: str
    name: str


@dataclass
class Known:
    """Of each test which functions it calls, and how long it takes; and how many failed."""

    tests: dict[Called, list[int]] = field(default_factory=dict)
    took_s: list[float] = field(default_factory=list)
    failed: int = 0


def silence() -> None:
    """Nothing of what a test says is of use here."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def limit_cpu(seconds: float) -> None:
    """From now on, of the processor: a busy machine does not look like an endless loop."""
    upto = int(time.process_time() + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (upto, resource.RLIM_INFINITY))


class Bench:
    """A pytest plugin: instead of running the tests, it calls ``judge`` with itself."""

    def __init__(self, subjects: Sequence[Path], judge: Callable[[Bench], None]) -> None:
        self._subjects = {str(it) for it in subjects}
        self._judge = judge
        self._session: pytest.Session
        self.known = Known()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._session = session
        self._judge(self)
        return True

    def _run(self, numbers: Sequence[int]) -> Iterator[int]:
        """Run these tests; yields how many have failed after each."""
        items = [self._session.items[it] for it in numbers]
        for number, item, following in zip(numbers, items, [*items, None][1:], strict=True):
            if self.known.took_s:
                limit_cpu(3 + 8 * self.known.took_s[number])
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            yield self._session.testsfailed

    # --- as it is ----------------------------------------------------------------------------

    def look(self) -> Known:
        """Run all tests without a change, in a fork: here everything stays as it is."""
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(ours)
                silence()
                with os.fdopen(theirs, "wb") as out:
                    pickle.dump(self._looked(), out)
            finally:
                os._exit(0)
        os.close(theirs)
        with os.fdopen(ours, "rb") as told:
            self.known = pickle.load(told)
        os.waitpid(pid, 0)
        return self.known

    def _looked(self) -> Known:
        known, seen = Known(), set[Called]()

        def trace(frame: FrameType, event: str, argument: object) -> None:
            code = frame.f_code
            if code.co_filename in self._subjects:
                seen.add(Called(code.co_filename, code.co_qualname.partition(".<locals>")[0]))

        sys.settrace(trace)
        began = time.process_time()
        for number, failed in enumerate(self._run(range(len(self._session.items)))):
            for called in seen:
                known.tests.setdefault(called, []).append(number)
            seen.clear()
            known.took_s.append(time.process_time() - began)
            known.failed = failed
            began = time.process_time()
        sys.settrace(None)
        return known

    # --- with a change -----------------------------------------------------------------------

    def _tests(self, file: Path, code: CodeType) -> list[int]:
        """Those that call this function, the quickest first."""
        called = Called(str(file), code.co_qualname)
        return sorted(self.known.tests.get(called, []), key=self.known.took_s.__getitem__)

    def cost_s(self, file: Path, code: CodeType) -> float:
        """How long all tests of this function take."""
        return sum(self.known.took_s[it] for it in self._tests(file, code))

    def judged(self, file: Path, code: CodeType) -> int:
        """In a fork: 0 if every test that calls the function passes with this code."""
        tests = self._tests(file, code)
        if not put_in(file, code):
            return 0  # Nobody has imported it.
        return FAILED if any(self._run(tests)) else 0
