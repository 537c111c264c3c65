"""What differs between two texts: by line, and between two blocks of headers by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import islice

from msgspec import Struct

from homing.languages.sentences import many

COMPARED_MAX = 200  # changed lines that are compared with each other,
PAIRS_MAX = 10_000  # and equal pairs of them: the work grows with their product
CONTEXT = 3  # equal lines that are shown around a change
LINES_MAX = 2_000  # that are shown as changed


class Line(Struct, frozen=True):
    """A line: same, removed or added; a gap stands for equal lines that are left out."""

    kind: str
    text: str


class HeaderChange(Struct, frozen=True):
    """The values of a header in both blocks; None where it is absent."""

    name: str
    before: str | None
    after: str | None

    @property
    def changed(self) -> bool:
        return self.before != self.after


def header_changes(before: str, after: str) -> list[HeaderChange]:
    """Every header of two blocks, in the order of the first; repeated ones are joined."""
    old, new = _values(before), _values(after)
    return [HeaderChange(name, old.get(name), new.get(name)) for name in {**old, **new}]


def _values(block: str) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for line in block.split("\n"):
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.lower(), []).append(value.strip())
    return {name: "\n".join(values) for name, values in found.items()}


def line_changes(before: str, after: str) -> list[Line]:
    """The lines of both texts with what changed; empty if they are equal."""
    if before == after:
        return []
    old, new = before.split("\n"), after.split("\n")
    same = 0  # lines at the beginning
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    tail = 0  # equal lines at the end
    while tail < min(len(old), len(new)) - same and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    changed = islice(_middle(old[same : len(old) - tail], new[same : len(new) - tail]), LINES_MAX)
    first = old[max(same - CONTEXT, 0) : same]
    last = old[len(old) - tail :][:CONTEXT]
    return [
        *_gap(same - len(first)),
        *(Line("same", it) for it in first),
        *_shortened(list(changed)),
        *(Line("same", it) for it in last),
        *_gap(tail - len(last)),
    ]


def _middle(old: list[str], new: list[str]) -> Iterator[Line]:
    if max(len(old), len(new)) > COMPARED_MAX or _pairs(old, new) > PAIRS_MAX:
        yield from (Line("removed", it) for it in old)
        yield from (Line("added", it) for it in new)
        return
    for kind, first, last, begin, end in SequenceMatcher(None, old, new, False).get_opcodes():
        if kind == "equal":
            yield from (Line("same", it) for it in old[first:last])
            continue
        yield from (Line("removed", it) for it in old[first:last])
        yield from (Line("added", it) for it in new[begin:end])


def _pairs(old: list[str], new: list[str]) -> int:
    """How many lines of the one are equal to how many of the other."""
    counts = Counter(new)
    return sum(counts[it] for it in old)


def _gap(count: int) -> Iterator[Line]:
    if count:
        yield Line("gap", many("{count} equal line", "{count} equal lines", count))


def _shortened(lines: list[Line]) -> Iterator[Line]:
    """Lines between two changes, with a gap in place of equal ones that are far from a change."""
    changed = [at for at, it in enumerate(lines) if it.kind != "same"]
    near = {at for it in changed for at in range(it - CONTEXT, it + CONTEXT + 1)}
    left_out = 0
    for at, line in enumerate([*lines, None]):
        if line is not None and at not in near:
            left_out += 1
            continue
        yield from _gap(left_out)
        left_out = 0
        if line is not None:
            yield line
