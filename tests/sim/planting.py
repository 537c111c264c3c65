"""Plants a bug in memory: the code of a function, or the text of a statement, with a few changes.

A function keeps its identity and only gets another code object, so every module that has imported
it has the bug, and everything is as before when the bug is dug out again.
"""

from __future__ import annotations
import __future__

import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FunctionType

from homing.sim.fleet_seed import run_fleet_seed
from homing.sim.seed import Verdict, run_seed
from homing.store.statements import statements
from sim.found import FOUND

LINES_MOST = 5
DELIVERIES = 100
_FLAGS = __future__.annotations.compiler_flag


@dataclass(frozen=True)
class Patch:
    """In this place (``module:qualified.name`` or ``sql:name``), this text becomes that."""

    place: str
    old: str
    new: str

    @property
    def lines(self) -> int:
        return max(len(self.old.strip("\n").split("\n")), len(self.new.strip("\n").split("\n")))


@dataclass(frozen=True)
class Bug:
    """A planted bug, and the seed that is known to find it."""

    name: str
    patches: tuple[Patch, ...]
    seed: int = 0
    fleet: bool = False  # it is found by a fleet's seed

    def run(self, seed: int) -> Verdict:
        """A seed of the kind that finds it, with the bug or without."""
        return (run_fleet_seed if self.fleet else run_seed)(seed, DELIVERIES)

    @property
    def lines(self) -> int:
        return sum(patch.lines for patch in self.patches)


def bug(name: str, *patches: tuple[str, str, str], fleet: bool = False) -> Bug:
    """A bug with the seed that ``found`` has for it; -1: none yet."""
    changes = tuple(Patch(*patch) for patch in patches)
    return Bug(name, changes, FOUND.get(name, -1), fleet)


def _function(place: str) -> FunctionType:
    module, _, path = place.partition(":")
    found: object = importlib.import_module(module)
    for part in path.split("."):
        found = inspect.getattr_static(found, part)
    assert isinstance(found, FunctionType), place
    return found


@contextmanager
def _in_code(patch: Patch) -> Iterator[None]:
    function = _function(patch.place)
    source = textwrap.dedent(inspect.getsource(function))
    old, new = textwrap.dedent(patch.old), textwrap.dedent(patch.new)
    lines = [line.strip() for line in source.split("\n")]
    found = "\n".join(lines).count("\n".join(it.strip() for it in old.split("\n")))
    assert found == 1, f"{patch.place} has this {found} times: {patch.old!r}"
    changed = _replaced(source, old, new)
    namespace: dict[str, object] = {}
    exec(compile(changed, patch.place, "exec", _FLAGS), function.__globals__, namespace)
    planted = namespace[function.__name__]
    assert isinstance(planted, FunctionType)
    before, function.__code__ = function.__code__, planted.__code__
    try:
        yield
    finally:
        function.__code__ = before


def _replaced(source: str, old: str, new: str) -> str:
    """The old lines for the new ones, at whatever depth they stand."""
    if "\n" not in old and "\n" not in new:
        return source.replace(old, new)
    lines, wanted = source.split("\n"), [it.strip() for it in old.split("\n")]
    for at in range(len(lines)):
        if [it.strip() for it in lines[at : at + len(wanted)]] == wanted:
            depth = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
            put = [depth + line for line in new.split("\n")]
            return "\n".join([*lines[:at], *put, *lines[at + len(wanted) :]])
    raise AssertionError(f"whole lines only: {old!r}")


@contextmanager
def _in_sql(patch: Patch) -> Iterator[None]:
    known, name = statements("sqlite"), patch.place.removeprefix("sql:")
    before = known[name]
    assert before.text.count(patch.old) == 1, before.text
    known[name] = before._replace(text=before.text.replace(patch.old, patch.new))
    try:
        yield
    finally:
        known[name] = before


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """While this is open, the build has the bug."""
    with ExitStack() as stack:
        for patch in bug.patches:
            door = _in_sql if patch.place.startswith("sql:") else _in_code
            stack.enter_context(door(patch))
        yield
