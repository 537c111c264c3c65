"""Indexes over the data of one event, shared by all filters, with a limit on steps at a time.

A short list or text is searched directly. A longer one is indexed once for all filters, so that a
comparison costs the same however long the list is. A step is one item, name or leaf that is read.
When the steps of a slice are used up, ``OutOfSteps`` is raised; the indexes are kept, and the same
question, asked again, continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from homing.policy.exact import Number
from homing.policy.filters_values import read_moment, read_number

LIST_SHORT = 8  # items that are searched without an index
TEXT_SHORT = 4_096  # characters that are searched without remembering the result
NODES_SHORT = 64  # names and items that are walked without a reading
SLICE_STEPS = 1_000  # about a millisecond
_CHARS_A_STEP = 1_024
_COLLAPSED_DEPTH_MAX = 16

Test = Callable[[Any, "Reading | None"], bool]


class OutOfSteps(Exception):
    """The steps of this slice are used up; the same question continues in the next slice."""


class Reading:
    """The data of one event, with the indexes and results that filters have made of it."""

    __slots__ = ("_lists", "_moments", "_results", "_walks", "data", "kept", "left", "spent")

    def __init__(self, data: Any, left: int = SLICE_STEPS) -> None:
        self.data, self.left, self.spent = data, left, 0
        self.kept: dict[object, object] = {}  # values that the caller needs again in the next slice
        self._lists: dict[int, Items] = {}
        self._moments: dict[str, int | None] = {}
        self._walks: dict[object, _Walk] = {}
        self._results: dict[tuple[int, str], bool] = {}

    def spend(self, steps: int) -> None:
        """Count steps; raises OutOfSteps when the slice is used up."""
        self.left -= steps
        self.spent += steps
        if self.left < 0:
            raise OutOfSteps

    def moment(self, text: str) -> int | None:
        """As ``read_moment``; each text is parsed once."""
        try:
            return self._moments[text]
        except KeyError:
            found = self._moments[text] = read_moment(text)
            return found

    def items(self, found: list[Any]) -> Items:
        """The complete index of a list in the data."""
        items = self._lists.get(id(found))
        if items is None:
            items = self._lists[id(found)] = Items(found)
        while not items.complete:
            self.spend(items.read(max(self.left, 1), self.moment))
        return items

    def any_of(self, found: list[Any], test: Test) -> bool:
        """Whether an item of a list in the data passes the test."""
        return self._walked((id(found), id(test)), lambda: _AnyWalk(found, test))

    def all_of(self, found: list[Any], test: Test) -> bool:
        """Whether every item of a list in the data passes the test."""
        return not self._walked(
            (id(found), id(test), False), lambda: _AnyWalk(found, test, wanted=False)
        )

    def differ(self, before: Any, after: Any) -> bool:
        """Whether two parts of the data differ."""
        return self._walked((id(before), id(after), None), lambda: DifferenceWalk(before, after))

    def holds(self, found: str, text: str) -> bool:
        """Whether a long text in the data contains this one."""
        result = self._results.get((id(found), text))
        if result is None:
            result = self._results[id(found), text] = text in found
            self.spend(len(found) // _CHARS_A_STEP)
        return result

    def collapsed(self, data: dict[str, Any], states: tuple[str, ...]) -> dict[str, Any]:
        """The data as Workfront's version ``v1`` has it."""
        walk = self._walks.get(id(data))
        if walk is None:
            walk = self._walks[id(data)] = CollapseWalk(data, states)
        assert isinstance(walk, CollapseWalk)
        self._finish(walk)
        return walk.made

    def _walked(self, key: object, start: Callable[[], _Walk]) -> bool:
        walk = self._walks.get(key)
        if walk is None:
            walk = self._walks[key] = start()
        return self._finish(walk)

    def _finish(self, walk: _Walk) -> bool:
        while walk.result is None:
            left = self.left
            walk.go_on(max(left, 1), self)
            self.spend(max(left, 1) - walk.unused)
        return walk.result


class Items:
    """The index of a list: its items by the values that they can equal."""

    __slots__ = (
        "_iterator",
        "_known",
        "complete",
        "flags",
        "moments",
        "numbered",
        "numbers",
        "odd",
        "plain",
        "texts",
    )

    def __init__(self, found: list[Any]) -> None:
        self._iterator = iter(found)
        self.complete = False
        self.odd = False  # an item that is equal to no scalar: null, a list or an object
        self.flags: set[bool] = set()
        self.numbers: set[Number] = set()
        self.texts: set[str] = set()
        self.moments: set[int] = set()  # of texts that are dates
        self.numbered: dict[Number, list[str]] = {}  # texts that are numbers
        self.plain: list[str] = []  # texts that are neither

    def read(self, count: int, moment_of: Callable[[str], int | None] = read_moment) -> int:
        """Index up to ``count`` more items; returns how many."""
        texts = self.texts
        for done in range(count):
            try:
                item = next(self._iterator)
            except StopIteration:
                self.complete = True
                return done
            kind = item.__class__
            if kind is str:
                if item in texts:
                    continue
                texts.add(item)
                if (moment := moment_of(item)) is not None:
                    self.moments.add(moment)
                elif (number := read_number(item)) is not None:
                    self.numbered.setdefault(number, []).append(item)
                else:
                    self.plain.append(item)
            elif kind is bool:
                self.flags.add(item)
            elif item is None or kind is list or kind is dict:
                self.odd = True
            else:
                self.numbers.add(item)
        return count


class _Walk:
    """A computation in many steps; ``result`` is None until it is known."""

    __slots__ = ("result", "unused")

    def __init__(self) -> None:
        self.result: bool | None = None
        self.unused = 0  # steps of the last call that were not needed

    def go_on(self, steps: int, _reading: Reading | None) -> None:
        """Take up to ``steps`` steps; sets ``result`` when it is known, and ``unused``."""
        raise NotImplementedError


class _AnyWalk(_Walk):
    """Whether the test returns ``wanted`` for any item."""

    __slots__ = ("_iterator", "_test", "_wanted")

    def __init__(self, found: list[Any], test: Test, *, wanted: bool = True) -> None:
        super().__init__()
        self._iterator, self._test, self._wanted = iter(found), test, wanted

    def go_on(self, steps: int, _reading: Reading | None) -> None:
        reading = _reading
        assert reading is not None
        until = reading.left - steps  # The leaves of objects count themselves.
        for item in self._iterator:
            reading.left -= 1
            reading.spent += 1
            if self._test(item, reading) is self._wanted:
                self.result = True
                break
            if reading.left <= until:
                break
        else:
            self.result = False
        self.unused = steps  # They are counted already.


class DifferenceWalk(_Walk):
    """Whether two JSON values of any depth differ; true and 1 do."""

    __slots__ = ("_stack",)

    def __init__(self, before: Any, after: Any) -> None:
        super().__init__()
        self._stack: list[Iterator[tuple[Any, Any]]] = [iter(((before, after),))]

    def go_on(self, steps: int, _reading: Reading | None) -> None:
        stack = self._stack
        for done in range(steps):
            pair = next(stack[-1], None)
            if pair is None:
                stack.pop()
                if not stack:
                    self.result, self.unused = False, steps - done
                    return
                continue
            one, other = pair
            if one.__class__ is other.__class__ and one.__class__ in (dict, list):
                if len(one) != len(other):
                    self.result, self.unused = True, steps - done
                    return
                stack.append(
                    _names(one, other) if one.__class__ is dict else zip(one, other, strict=True)
                )
            elif unlike(one, other):
                self.result, self.unused = True, steps - done
                return
        self.unused = 0


_MISSING = object()


def _names(one: dict[str, Any], other: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    return ((inner, other.get(name, _MISSING)) for name, inner in one.items())


def unlike(one: Any, other: Any) -> bool:
    """Whether two values, not both objects and not both lists, differ."""
    if one.__class__ is other.__class__:
        return bool(one != other)
    if other is _MISSING or isinstance(one, bool) or isinstance(other, bool):
        return True
    return not (isinstance(one, Number) and isinstance(other, Number) and one == other)


class CollapseWalk(_Walk):
    """A copy of the data in which every list of one text in the states is that text."""

    __slots__ = ("_stack", "made")

    def __init__(self, data: dict[str, Any], states: tuple[str, ...]) -> None:
        super().__init__()
        self.made: dict[str, Any] = dict(data)
        chosen = [(name, data[name]) for name in states if name in data]
        self._stack: list[tuple[Iterator[tuple[str, Any]], dict[str, Any]]] = [
            (iter(chosen), self.made)
        ]

    def go_on(self, steps: int, _reading: Reading | None) -> None:
        stack = self._stack
        for done in range(steps):
            source, target = stack[-1]
            pair = next(source, None)
            if pair is None:
                stack.pop()
                if not stack:
                    self.result, self.unused = True, steps - done
                    return
                continue
            name, value = pair
            if value.__class__ is dict and len(stack) <= _COLLAPSED_DEPTH_MAX:
                made: dict[str, Any] = {}
                target[name] = made
                stack.append((iter(value.items()), made))
            elif value.__class__ is list and len(value) == 1 and value[0].__class__ is str:
                target[name] = value[0]
            else:
                target[name] = value
        self.unused = 0
