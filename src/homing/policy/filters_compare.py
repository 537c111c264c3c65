"""How one field is compared with one value: each value becomes a test, made once and run often.

A field that is missing is null. Text and numbers meet as numbers where the text is one (``"100"``),
and two texts that are dates meet as moments, whatever their offsets. An object is a path: each of
its leaves is compared with what stands at the same place, and all must hold.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any, assert_never

from homing.policy.filters import Op

Test = Callable[[Any], bool]

NUMBER_CHARS_MOST = 40
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?").fullmatch
_DATE = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]|60)(?:[.:,]([0-9]{1,9}))?)?"
    r"(?:[Zz]|([+-])([01][0-9]|2[0-3])(?::?([0-5][0-9]))?)?)?"
).fullmatch
_DATE_CHARS_LEAST = 10
_USUAL_CHARS = len("2026-03-01T17:00:00.000-0600")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FLAGS = {"true": True, "false": False}
_ORDER: dict[Op, Callable[[Any, Any], bool]] = {
    Op.GT: operator.gt,
    Op.GTE: operator.ge,
    Op.LT: operator.lt,
    Op.LTE: operator.le,
}


def read_number(text: str) -> int | float | None:
    """The number that a text is, or None."""
    if len(text) > NUMBER_CHARS_MOST:
        return None
    found = _NUMBER(text)
    if found is None:
        return None
    return int(text) if found[1] is None and found[2] is None else float(text)


def read_moment(text: str) -> int | None:
    """Nanoseconds since 1970 of a date with or without a time; without an offset it is UTC."""
    if len(text) < _DATE_CHARS_LEAST or text[4] != "-":
        return None
    if len(text) == _USUAL_CHARS and (moment := _usual_moment(text)) is not None:
        return moment
    found = _DATE(text)
    if found is None:
        return None
    day, hour, minute, second, fraction, sign, off_hour, off_minute = found.groups()
    try:
        days = date.fromisoformat(day).toordinal() - 719_163
    except ValueError:
        return None
    minutes = days * 1440 + int(hour or 0) * 60 + int(minute or 0)
    if sign:
        offset = int(off_hour) * 60 + int(off_minute or 0)
        minutes += offset if sign == "-" else -offset
    return (minutes * 60 + int(second or 0)) * 10**9 + int((fraction or "").ljust(9, "0"))


def _usual_moment(text: str) -> int | None:
    """The form that Workfront writes, read ten times faster; None if it is another."""
    if text[10] != "T" or text[19] != "." or text[23] not in "+-" or text[13] != ":":
        return None
    if not text.isascii() or not text[24:].isdigit() or text[26] > "5":
        return None
    try:
        since = datetime.fromisoformat(text) - _EPOCH
    except (ValueError, OverflowError):
        return None
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1_000


def test_of(op: Op, value: Any) -> Test:
    """The test that a field must pass; ``changed`` looks at two and is not made here."""
    match op:
        case Op.EQ:
            return _equals(value)
        case Op.NE:
            return _not(_equals(value))
        case Op.GT | Op.GTE | Op.LT | Op.LTE:
            return _ordered(_ORDER[op], value)
        case Op.CONTAINS:
            return _contains(value)
        case Op.NOT_CONTAINS:
            return _not(_contains(value))
        case Op.CONTAINS_ONLY:
            return _contains_only(value)
        case Op.EXISTS:
            return _exists
        case Op.NOT_EXISTS:
            return _not(_exists)
        case Op.CHANGED:
            raise AssertionError("changed compares two states")
        case _ as never:
            assert_never(never)


def _not(test: Test) -> Test:
    return lambda found: not test(found)


def _exists(found: Any) -> bool:
    return found is not None


# --- equal ----------------------------------------------------------------------------------


def _equals(value: Any) -> Test:
    if value is None:
        return lambda found: found is None
    if isinstance(value, dict):
        return _at_leaves(value, _equals)
    if isinstance(value, list):
        return _equals_list([_equals(item) for item in value])
    if isinstance(value, str):
        return _equals_text(value)
    if isinstance(value, bool):
        text = "true" if value else "false"
        return lambda found: found is value or (found.__class__ is str and found == text)
    return _equals_number(value)


def _equals_text(text: str) -> Test:
    number, moment, flag = read_number(text), read_moment(text), _FLAGS.get(text)

    def test(found: Any) -> bool:
        kind = found.__class__
        if kind is str:
            return found == text or (moment is not None and read_moment(found) == moment)
        if kind is int or kind is float:
            return number is not None and bool(found == number)
        return flag is not None and found is flag

    return test


def _equals_number(number: float) -> Test:
    def test(found: Any) -> bool:
        kind = found.__class__
        if kind is int or kind is float:
            return bool(found == number)
        return kind is str and read_number(found) == number

    return test


def _equals_list(tests: list[Test]) -> Test:
    def test(found: Any) -> bool:
        if found.__class__ is not list or len(found) != len(tests):
            return False
        return all(one(item) for one, item in zip(tests, found, strict=True))

    return test


def _at_leaves(value: dict[str, Any], make: Callable[[Any], Test]) -> Test:
    """Every name of an object, with what stands there."""
    tests = [(name, make(inner)) for name, inner in value.items()]

    def test(found: Any) -> bool:
        if found.__class__ is not dict:
            return False
        return all(one(found.get(name)) for name, one in tests)

    return test


# --- in order -------------------------------------------------------------------------------


def _ordered(holds: Callable[[Any, Any], bool], value: Any) -> Test:
    if isinstance(value, dict):
        return _at_leaves(value, lambda inner: _ordered(holds, inner))
    if not isinstance(value, str):
        return _ordered_number(holds, value)
    moment, number = read_moment(value), read_number(value)
    if moment is not None:
        return _ordered_moment(holds, moment)
    if number is not None:
        return _ordered_number(holds, number)
    return lambda found: found.__class__ is str and holds(found, value)


def _ordered_moment(holds: Callable[[Any, Any], bool], moment: int) -> Test:
    def test(found: Any) -> bool:
        if found.__class__ is not str:
            return False
        other = read_moment(found)
        return other is not None and holds(other, moment)

    return test


def _ordered_number(holds: Callable[[Any, Any], bool], number: float) -> Test:
    def test(found: Any) -> bool:
        kind = found.__class__
        if kind is int or kind is float:
            return holds(found, number)
        other = read_number(found) if kind is str else None
        return other is not None and holds(other, number)

    return test


# --- contained ------------------------------------------------------------------------------


def _contains(value: Any) -> Test:
    equal = _equals(value)
    if isinstance(value, dict):
        leaves = _at_leaves(value, _contains)
        return lambda found: any(map(equal, found)) if found.__class__ is list else leaves(found)
    text = value if isinstance(value, str) else _text(value)

    def test(found: Any) -> bool:
        kind = found.__class__
        if kind is str:
            return text in found
        if kind is list:
            return any(map(equal, found))
        return equal(found)  # a number, true or false: as a list of one

    return test


def _text(value: float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def _contains_only(value: Any) -> Test:
    if isinstance(value, dict):
        leaves, equal = _at_leaves(value, _contains_only), _equals(value)
        return lambda found: (
            bool(found) and all(map(equal, found)) if found.__class__ is list else leaves(found)
        )
    tests = [_equals(item) for item in (value if isinstance(value, list) else [value])]

    def test(found: Any) -> bool:
        if found is None:
            return not tests
        return _is_set(found if found.__class__ is list else [found], tests)

    return test


def _is_set(found: list[Any], tests: list[Test]) -> bool:
    """Every item passes one of the tests, and every test is passed by one of the items."""
    missing = set(range(len(tests)))
    known: set[tuple[type, Any]] = set()  # A long list of the same is looked at once.
    for item in found:
        if item.__class__ in (str, int, float, bool):
            if (item.__class__, item) in known:
                continue
            known.add((item.__class__, item))
        passed = {index for index, test in enumerate(tests) if test(item)}
        if not passed:
            return False
        missing -= passed
    return not missing


# --- changed --------------------------------------------------------------------------------


def differs(before: Any, after: Any) -> bool:
    """Whether two JSON values are not the same; true and 1 are not. Walks any depth."""
    pairs = [(before, after)]
    while pairs:
        one, other = pairs.pop()
        if one.__class__ is not other.__class__:
            numbers = isinstance(one, int | float) and isinstance(other, int | float)
            if not numbers or isinstance(one, bool) or isinstance(other, bool) or one != other:
                return True
        elif one.__class__ is dict:
            if one.keys() != other.keys():
                return True
            pairs.extend((inner, other[name]) for name, inner in one.items())
        elif one.__class__ is list:
            if len(one) != len(other):
                return True
            pairs.extend(zip(one, other, strict=True))
        elif one != other:
            return True
    return False
