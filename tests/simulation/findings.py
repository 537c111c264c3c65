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


RULES = {  # what each rule that has a number says, and the heading that promises it
    "S1": "a delivery ends only by a settled outcome (#nothing-is-lost)",
    "S2": "a request has the bytes, headers and secrets that it should (#attempts)",
    "S3": "no delivery is in flight twice by one owner (#nothing-is-lost)",
    "S4": "what was answered with 202 is stored, with all its deliveries (#publishing)",
    "S5": "one id is one event (#publishing)",
    "S6": "only the owner of a bucket sends and writes (#nothing-is-lost)",
    "S7": "every attempt is settled once, under its number (#attempts)",
    "S8": "no attempt and no expiry is early, no due time after the window (#retry-schedule)",
    "S9": "a change that was answered holds; one probe at a time (#matching, #endpoint-health)",
    "S10": "failures of our own side count for no receiver (#failures-on-the-senders-side)",
    "S11": "every change of state is recorded as it was (#endpoint-health)",
    "S12": "nothing leaves its tenant (#hostile-input)",
    "S13": "slots and memory keep to their limits (#lanes-and-fairness)",
    "S14": "nothing expires in the hour after our own downtime; nothing spins (#retry-schedule)",
    "S15": "a URL that must be proved gets nothing before; the store is whole (#nothing-is-lost)",
    "S16": "a 410 ends what its policy says, and nothing else (#attempts)",
    "S17": "a paused subscription gets nothing, and no window runs (#pauses)",
    "L1": "in the end nothing waits for ever (#nothing-is-lost)",
    "L2": "in the end no row is left behind (#nothing-is-lost)",
    "L3": "a URL that heals is enabled (#endpoint-health)",
    "L4": "when all is well, every command works (#nothing-is-lost)",
    "L5": "what is due and free to go is sent soon (#lanes-and-fairness)",
    "L6": "nobody waits for an answer for ever (#nothing-is-lost)",
    "L7": "a URL that works waits no longer than a minute (#failures-on-the-senders-side)",
}


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
