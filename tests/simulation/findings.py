"""The findings of a run: its trace, its counts, and the first invariant that did not hold."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

LAST_LINES = 30


class Trace:
    """What happened, line by line: all of it as a hash, the end of it as text."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.last: deque[str] = deque(maxlen=LAST_LINES)
        self.lines = 0

    def add(self, at: int, text: str) -> None:
        line = f"{at} {text}"
        self._hash.update(line.encode() + b"\n")
        self.last.append(line)
        self.lines += 1

    def digest(self) -> str:
        return self._hash.hexdigest()


@dataclass(frozen=True)
class Violation:
    """An invariant that did not hold."""

    invariant: str
    text: str
    trace: tuple[str, ...]


@dataclass(kw_only=True)
class Findings:
    """What everything that watches a run adds to."""

    clock: Callable[[], int]
    trace: Trace = field(default_factory=Trace)
    violations: list[Violation] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def violated(self, invariant: str, text: str) -> None:
        if not self.violations:
            self.say(f"VIOLATED {invariant}: {text}")
            self.violations.append(Violation(invariant, text, tuple(self.trace.last)))

    def must(self, truth: bool, invariant: str, text: Callable[[], str]) -> bool:
        if not truth:
            self.violated(invariant, text())
        return truth

    def say(self, text: str) -> None:
        self.trace.add(self.clock(), text)
