"""How one field is compared with one value: each value becomes a test, made once and run often.

A missing field is null. A text and a number are compared as numbers if the text is one (``"100"``),
and two texts that are dates as moments, whatever their offsets. An object is a path: each of its
leaves is compared with the value at the same place, and all must hold.

Without a reading, a test handles short lists and texts only, and raises OutOfSteps for long ones.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any, assert_never

from homing.policy.exact import Number
from homing.policy.filters import Op
from homing.policy.filters_reading import (
    LIST_SHORT,
    NODES_SHORT,
    TEXT_SHORT,
    DifferenceWalk,
    Items,
    OutOfSteps,
    Reading,
    Test,
    unlike,
)
from homing.policy.filters_values import read_moment, read_number

_FLAGS = {"true": True, "false": False}
_NUMBERS = frozenset((int, Decimal, float))
_ORDER: dict[Op, Callable[[Any, Any], bool]] = {
    Op.GT: operator.gt,
    Op.GTE: operator.ge,
    Op.LT: operator.lt,
    Op.LTE: operator.le,
}


def test_of(op: Op, value: Any) -> Test:
    """The test of a condition; not for ``changed``, which compares two fields."""
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
    return lambda found, reading: not test(found, reading)


def _exists(found: Any, _reading: Reading | None) -> bool:
    return found is not None


# --- equal ----------------------------------------------------------------------------------


def _equals(value: Any) -> Test:
    if value is None:
        return lambda found, _reading: found is None
    if isinstance(value, dict):
        return _at_leaves(value, _equals)
    if isinstance(value, list):
        return _equals_list([_equals(item) for item in value])
    if isinstance(value, str):
        return _equals_text(value)
    if isinstance(value, bool):
        text = "true" if value else "false"
        return lambda found, _reading: found is value or (found.__class__ is str and found == text)
    return _equals_number(value)


def _equals_text(text: str) -> Test:
    number, moment, flag = read_number(text), read_moment(text), _FLAGS.get(text)

    def test(found: Any, reading: Reading | None) -> bool:
        kind = found.__class__
        if kind is str:
            if found == text or moment is None:
                return bool(found == text)
            return (read_moment(found) if reading is None else reading.moment(found)) == moment
        if kind in _NUMBERS:
            return number is not None and bool(found == number)
        return flag is not None and found is flag

    return test


def _equals_number(number: Number) -> Test:
    def test(found: Any, _reading: Reading | None) -> bool:
        kind = found.__class__
        if kind in _NUMBERS:
            return bool(found == number)
        return kind is str and read_number(found) == number

    return test


def _equals_list(tests: list[Test]) -> Test:
    def test(found: Any, reading: Reading | None) -> bool:
        if found.__class__ is not list or len(found) != len(tests):
            return False
        return all(one(item, reading) for one, item in zip(tests, found, strict=True))

    return test


def _at_leaves(value: dict[str, Any], make: Callable[[Any], Test]) -> Test:
    """Every name of an object, with its value."""
    tests = [(name, make(inner)) for name, inner in value.items()]

    def test(found: Any, reading: Reading | None) -> bool:
        if found.__class__ is not dict:
            return False
        if reading is None:
            return all(one(found.get(name), None) for name, one in tests)
        for name, one in tests:
            reading.left -= 1
            reading.spent += 1
            if not one(found.get(name), reading):
                return False
        return True

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
    return lambda found, _reading: found.__class__ is str and holds(found, value)


def _ordered_moment(holds: Callable[[Any, Any], bool], moment: int) -> Test:
    def test(found: Any, reading: Reading | None) -> bool:
        if found.__class__ is not str:
            return False
        other = read_moment(found) if reading is None else reading.moment(found)
        return other is not None and holds(other, moment)

    return test


def _ordered_number(holds: Callable[[Any, Any], bool], number: Number) -> Test:
    def test(found: Any, _reading: Reading | None) -> bool:
        kind = found.__class__
        if kind in _NUMBERS:
            return holds(found, number)
        other = read_number(found) if kind is str else None
        return other is not None and holds(other, number)

    return test


# --- contained ------------------------------------------------------------------------------


def _contains(value: Any) -> Test:
    if isinstance(value, dict):
        return _contains_object(value)
    equal, among = _equals(value), _among(value)
    text = value if isinstance(value, str) else _text(value)

    def test(found: Any, reading: Reading | None) -> bool:
        kind = found.__class__
        if kind is str:
            if len(found) <= TEXT_SHORT:
                return text in found
            return _long(reading).holds(found, text)
        if kind is list:
            if len(found) > LIST_SHORT:
                return among(_long(reading).items(found))
            for item in found:  # noqa: SIM110 (any() is slower)
                if equal(item, reading):
                    return True
            return False
        return equal(found, reading)  # a number, true or false: as a list of one

    return test


def _contains_object(value: dict[str, Any]) -> Test:
    equal, leaves = _equals(value), _at_leaves(value, _contains)

    def test(found: Any, reading: Reading | None) -> bool:
        if found.__class__ is not list:
            return leaves(found, reading)
        if len(found) > LIST_SHORT:
            return _long(reading).any_of(found, equal)
        return any(equal(item, reading) for item in found)

    return test


def _long(reading: Reading | None) -> Reading:
    if reading is None:
        raise OutOfSteps
    return reading


def _text(value: Number) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal) and Decimal(repr(float(value))) == value:
        value = float(value)  # 1.50 is searched as 1.5.
    return str(value)


def _among(value: Any) -> Callable[[Items], bool]:
    """A test whether an item of a list equals this value, which is neither list nor object."""
    if isinstance(value, str):
        number, moment, flag = read_number(value), read_moment(value), _FLAGS.get(value)
        return lambda items: (
            value in items.texts
            or (moment is not None and moment in items.moments)
            or (number is not None and number in items.numbers)
            or (flag is not None and flag in items.flags)
        )
    if isinstance(value, bool):
        text = "true" if value else "false"
        return lambda items: value in items.flags or text in items.texts
    return lambda items: value in items.numbers or value in items.numbered


def _contains_only(value: Any) -> Test:
    if isinstance(value, dict):
        leaves, equal = _at_leaves(value, _contains_only), _equals(value)

        def test_object(found: Any, reading: Reading | None) -> bool:
            if found.__class__ is not list:
                return leaves(found, reading)
            if len(found) > LIST_SHORT:
                return _long(reading).all_of(found, equal)
            return bool(found) and all(equal(item, reading) for item in found)

        return test_object
    values = value if isinstance(value, list) else [value]
    is_set = _is_set(values)

    def test(found: Any, reading: Reading | None) -> bool:
        if found is None:
            return not values
        if found.__class__ is list and len(found) > LIST_SHORT:
            return is_set(_long(reading).items(found))
        items = Items(found if found.__class__ is list else [found])
        items.read(LIST_SHORT + 1)
        return is_set(items)

    return test


def _is_set(values: list[Any]) -> Callable[[Items], bool]:
    """Whether every item equals one of the values, and every value one of the items.

    Two texts that are the same moment are one item here, and so are two that are the same number
    where that number is among the values: the cost is that of the values, not of the list.
    """
    among = [_among(value) for value in values]
    flags = {value for value in values if isinstance(value, bool)}
    numbers = {it for it in values if isinstance(it, Number) and not isinstance(it, bool)}
    given = {value for value in values if isinstance(value, str)}
    moments = {moment for text in given if (moment := read_moment(text)) is not None}
    as_numbers = numbers | {number for text in given if (number := read_number(text)) is not None}
    as_flags = flags | {_FLAGS[text] for text in given if text in _FLAGS}
    as_texts = given | {"true" if flag else "false" for flag in flags}

    def test(items: Items) -> bool:
        return (
            not items.odd
            and items.flags <= as_flags
            and items.numbers <= as_numbers
            and items.moments <= moments
            and all(text in as_texts for text in items.plain)
            and all(
                number in numbers or all(text in as_texts for text in texts)
                for number, texts in items.numbered.items()
            )
            and all(one(items) for one in among)
        )

    return test


# --- changed --------------------------------------------------------------------------------


def differs(before: Any, after: Any, reading: Reading | None = None) -> bool:
    """Whether two JSON values differ; true and 1 do."""
    kind = before.__class__
    if kind is not after.__class__ or (kind is not dict and kind is not list):
        return unlike(before, after)
    if reading is not None:
        return reading.differ(before, after)
    walk = DifferenceWalk(before, after)
    walk.go_on(NODES_SHORT, None)
    if walk.result is None:
        raise OutOfSteps
    return walk.result
