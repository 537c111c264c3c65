"""Runs filters: compiled once into one function of an event's data, or step by step with reasons.

A missing state or field is null. A dotted name is first looked up as a whole, then by its parts, at
every depth: ``a.b.c`` is the key ``a.b.c``, or in ``a`` the key ``b.c``, or in ``a``, in ``b`` the
key ``c``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, assert_never, cast

import msgspec
from msgspec import Struct

from homing.languages.sentences import Sentence, say
from homing.model import Connector
from homing.policy import exact
from homing.policy.filters import Condition, Filters, Group, Op, Side
from homing.policy.filters_compare import differs, test_of
from homing.policy.filters_reading import Reading

Matches = Callable[..., bool]  # of an event's data, and of its reading if there is one

_MISSING = object()
_SHOWN_CHARS = 120
_STEPS_A_SENTENCE = 50
_DATA = "data"


def read_data(data: bytes) -> Any:
    """An event's data with exact numbers; data that is not JSON is null."""
    try:
        return exact.decode(data)
    except ValueError:
        return None


def compiled(filters: Filters) -> Matches:
    """A function that returns whether an event's data matches.

    Without a reading it raises OutOfSteps if a part of the data is long.
    """
    return _joined(filters.connector, [_part_test(part) for part in filters.parts])


def _part_test(part: Condition | Group) -> Matches:
    if isinstance(part, Condition):
        return _condition_test(part)
    return _joined(part.connector, [_condition_test(one) for one in part.conditions])


def _joined(connector: Connector, tests: list[Matches]) -> Matches:
    if len(tests) == 1:
        return tests[0]
    if connector is Connector.OR and tests:
        return lambda data, reading=None: any(test(data, reading) for test in tests)
    return lambda data, reading=None: all(test(data, reading) for test in tests)


def _condition_test(condition: Condition) -> Matches:
    if condition.op is Op.CHANGED:
        before, after = getter(condition.field, Side.OLD), getter(condition.field, Side.NEW)
        return lambda data, reading=None: differs(before(data), after(data), reading)
    test, side, name = test_of(condition.op, condition.value), condition.side, condition.field
    if side is None or "." in name:
        get = getter(name, side)
        return lambda data, reading=None: test(get(data), reading)

    def plain(data: Any, reading: Reading | None = None) -> bool:
        state = data.get(side) if data.__class__ is dict else None
        return test(state.get(name) if state.__class__ is dict else None, reading)

    return plain


def getter(name: str, side: Side | None) -> Callable[[Any], Any]:
    """A function that returns a condition's field of an event's data."""
    if side is not None:
        field = _reach(name)
        return lambda data: field(data.get(side)) if data.__class__ is dict else None
    if name == _DATA:
        return lambda data: data
    return _reach(name.removeprefix(_DATA + "."))


def _reach(name: str) -> Callable[[Any], Any]:
    head, dot, rest = name.partition(".")
    if not dot:
        return lambda found: found.get(name) if found.__class__ is dict else None
    deeper = _reach(rest)

    def get(found: Any) -> Any:
        if found.__class__ is not dict:
            return None
        whole = found.get(name, _MISSING)
        return deeper(found.get(head)) if whole is _MISSING else whole

    return get


# --- step by step, with reasons -------------------------------------------------------------


class Step(Struct, frozen=True):
    """A condition and its result."""

    condition: Condition
    holds: bool
    decided: bool  # it decided the result
    sentence: Sentence


class Verdict(Struct, frozen=True):
    """Whether an event's data matches, and the conditions that decided."""

    matches: bool
    steps: tuple[Step, ...]
    sentence: Sentence


def run(filters: Filters, data: Any, reading: Reading) -> Verdict:
    """As ``compiled``, but every condition is tested and the result is explained.

    Raises OutOfSteps when the slice is used up; called again, it continues.
    """
    if not filters.parts:
        return Verdict(True, (), say("There are no filters: every event of its types matches."))
    parts = [_part_steps(part, data, reading) for part in filters.parts]
    matches = _joins(filters.connector, (holds for holds, _ in parts))
    rests = _resting(filters.connector, [holds for holds, _ in parts], matches)
    steps: list[Step] = []
    for index, (_, found) in enumerate(parts):
        steps += [step if index in rests else _undecided(step) for step in found]
    decisive = [step for step in steps if step.decided]
    return Verdict(matches, tuple(steps), _verdict(matches, decisive, len(steps)))


def _part_steps(part: Condition | Group, data: Any, reading: Reading) -> tuple[bool, list[Step]]:
    if isinstance(part, Condition):
        step = _step(part, data, reading)
        return step.holds, [step]
    steps = [_step(one, data, reading) for one in part.conditions]
    holds = _joins(part.connector, (step.holds for step in steps))
    rests = _resting(part.connector, [step.holds for step in steps], holds)
    return holds, [step if index in rests else _undecided(step) for index, step in enumerate(steps)]


def _joins(connector: Connector, holding: Iterable[bool]) -> bool:
    return all(holding) if connector is Connector.AND else any(holding)


def _resting(connector: Connector, holding: list[bool], result: bool) -> set[int]:
    """The first condition that decides the result, or all of them if none does."""
    settles = connector is Connector.OR
    return {holding.index(settles)} if result is settles else set(range(len(holding)))


def _undecided(step: Step) -> Step:
    return msgspec.structs.replace(step, decided=False)


def _step(condition: Condition, data: Any, reading: Reading) -> Step:
    """Test each condition once, however many slices that takes."""
    kept = reading.kept
    step = kept.get(("step", id(condition)))
    if not isinstance(step, Step):
        test = kept.get(("test", id(condition)))
        if test is None:  # The reading knows a test by its identity.
            test = kept["test", id(condition)] = _condition_test(condition)
        holds = cast("Matches", test)(data, reading)
        step = Step(condition, holds, True, _sentence(condition, data, holds))
        kept["step", id(condition)] = step
        reading.spend(_STEPS_A_SENTENCE)
    return step


def _verdict(matches: bool, decisive: list[Step], count: int) -> Sentence:
    if len(decisive) == count > 1:
        if matches:
            return say("It matches: all {number} conditions hold.", number=count)
        return say("It does not match: none of {number} conditions holds.", number=count)
    reason = _together([step.sentence for step in decisive])
    if matches:
        return say("It matches: {reason}", reason=reason)
    return say("It does not match: {reason}", reason=reason)


def _together(sentences: list[Sentence]) -> Sentence:
    """The sentences one after the other."""
    if len(sentences) == 1:
        return sentences[0]
    half = len(sentences) // 2
    first, second = _together(sentences[:half]), _together(sentences[half:])
    return say("{first} {second}", first=first, second=second)


def _sentence(condition: Condition, data: Any, holds: bool) -> Sentence:
    """``filters[0]: newState.status equals "CUR": no, it is "PLN".``"""
    at, asked, found = condition.at, _asked(condition), _found(condition, data)
    if holds:
        return say("{at}: {condition}: yes, {found}.", at=at, condition=asked, found=found)
    return say("{at}: {condition}: no, {found}.", at=at, condition=asked, found=found)


def _asked(condition: Condition) -> Sentence:  # noqa: C901, PLR0912 - a case for each operator
    """``newState.status equals "CUR"``."""
    op, side, field = condition.op, condition.side, condition.field
    if side is not None and op is not Op.CHANGED:
        field = f"{side}.{field}"
    value = show_value(condition.value)
    match op:
        case Op.EQ:
            return say("{field} equals {value}", field=field, value=value)
        case Op.NE:
            return say("{field} differs from {value}", field=field, value=value)
        case Op.GT:
            return say("{field} is greater than {value}", field=field, value=value)
        case Op.GTE:
            return say("{field} is at least {value}", field=field, value=value)
        case Op.LT:
            return say("{field} is less than {value}", field=field, value=value)
        case Op.LTE:
            return say("{field} is at most {value}", field=field, value=value)
        case Op.CONTAINS:
            return say("{field} contains {value}", field=field, value=value)
        case Op.NOT_CONTAINS:
            return say("{field} does not contain {value}", field=field, value=value)
        case Op.CONTAINS_ONLY:
            return say("{field} contains only {value}", field=field, value=value)
        case Op.CHANGED:
            return say("{field} has changed", field=field)
        case Op.EXISTS:
            return say("{field} exists", field=field)
        case Op.NOT_EXISTS:
            return say("{field} does not exist", field=field)
        case _ as never:
            assert_never(never)


def _found(condition: Condition, data: Any) -> Sentence:
    """``it is "PLN"``."""
    if condition.op is Op.CHANGED:
        before = show_value(getter(condition.field, Side.OLD)(data))
        after = show_value(getter(condition.field, Side.NEW)(data))
        return say("it was {before} and is {after}", before=before, after=after)
    found = getter(condition.field, condition.side)(data)
    if found is None:
        return say("it is missing or null")
    return say("it is {value}", value=show_value(found))


def show_value(value: Any) -> str:
    """A JSON value for people, cut if it is long; only the shown part costs time."""
    shown = ""
    for part in _written(value):
        shown += part
        if len(shown) > _SHOWN_CHARS:
            return shown[:_SHOWN_CHARS] + "…"
    return shown


def _written(value: Any) -> Iterator[str]:
    """Its JSON in short pieces."""
    if isinstance(value, dict):
        yield "{"
        for number, (name, inner) in enumerate(value.items()):
            yield f"{', ' if number else ''}{_text(name)}: "
            yield from _written(inner)
        yield "}"
    elif isinstance(value, list):
        yield "["
        for number, inner in enumerate(value):
            yield ", " if number else ""
            yield from _written(inner)
        yield "]"
    elif isinstance(value, str):
        yield _text(value)
    else:
        yield exact.encode(value).decode()


def _text(text: str) -> str:
    return json.dumps(text[: _SHOWN_CHARS + 1], ensure_ascii=False)
