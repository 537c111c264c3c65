"""A second evaluator of filters, slow and plain, from Adobe's published rules and our table.

It shares nothing with ``homing.policy``: no compiling, no precomputing, another way to read dates
and numbers. The table of docs/explanation/event-filters.md is what both must follow.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

_DIGITS = set("0123456789")


def matches(filters: list[dict[str, Any]], connector: str, data: Any) -> bool:
    """Delivered only if the filter set is true; no filters: everything matches."""
    if not filters:
        return True
    results = [_holds(one, data) for one in filters]
    return all(results) if connector == "AND" else any(results)


def _holds(part: dict[str, Any], data: Any) -> bool:
    if part.get("type") == "group":
        results = [_holds(one, data) for one in part["filters"]]
        return all(results) if part.get("connector", "AND") == "AND" else any(results)
    if "fieldName" in part:
        name, op = part["fieldName"], part.get("comparison", "eq")
        value, state = part.get("fieldValue"), part.get("state", "newState")
    else:
        name, op = part["field"], part.get("op", "eq")
        value, state = part.get("value"), part.get("state")
    if op == "changed":
        return not _identical(_field(data, "oldState", name), _field(data, "newState", name))
    return _compare(op, _field(data, state, name), value)


def _field(data: Any, state: str | None, name: str) -> Any:
    """The field; None when it, or anything on the way, is not there."""
    if state is None:
        return data if name == "data" else _dig(data, name[len("data.") :])
    return _dig(data.get(state), name) if isinstance(data, dict) else None


def _dig(place: Any, name: str) -> Any:
    if not isinstance(place, dict):
        return None
    if name in place:
        return place[name]
    if "." in name:
        first, rest = name.split(".", 1)
        return _dig(place.get(first), rest)
    return None


def _compare(op: str, found: Any, value: Any) -> bool:
    if op == "exists":
        return found is not None
    if op == "notExists":
        return found is None
    if op == "ne":
        return not _compare("eq", found, value)
    if op == "notContains":
        return not _compare("contains", found, value)
    if isinstance(value, dict):
        return _compare_object(op, found, value)
    if op == "eq":
        return _eq(found, value)
    if op in {"gt", "gte", "lt", "lte"}:
        return _order(op, found, value)
    if op == "contains":
        if isinstance(found, str):
            return (value if isinstance(value, str) else json.dumps(value)) in found
        return any(_eq(one, value) for one in (found if isinstance(found, list) else [found]))
    assert op == "containsOnly"
    wanted = value if isinstance(value, list) else [value]
    there = [] if found is None else found if isinstance(found, list) else [found]
    return all(any(_eq(one, want) for one in there) for want in wanted) and all(
        any(_eq(one, want) for want in wanted) for one in there
    )


def _compare_object(op: str, found: Any, value: dict[str, Any]) -> bool:
    """An object is a path: all of its leaves must hold. In a list of objects it is an element."""
    if isinstance(found, list):
        if op == "contains":
            return any(_compare("eq", one, value) for one in found)
        if op == "containsOnly":
            return len(found) > 0 and all(_compare("eq", one, value) for one in found)
        return False
    if not isinstance(found, dict):
        return False
    return all(_compare(op, found.get(name), inner) for name, inner in value.items())


def _eq(found: Any, value: Any) -> bool:
    if isinstance(value, dict):
        return _compare("eq", found, value)
    if isinstance(value, list):
        if not isinstance(found, list) or len(found) != len(value):
            return False
        return all(_eq(one, other) for one, other in zip(found, value, strict=True))
    if found is None or value is None:
        return found is None and value is None
    if isinstance(found, dict | list):
        return False
    if isinstance(found, str) and isinstance(value, str):
        moments = _moment(found), _moment(value)
        return found == value or (None not in moments and moments[0] == moments[1])
    if isinstance(found, bool) or isinstance(value, bool):
        return _word(found) == _word(value) and {type(found), type(value)} <= {bool, str}
    one, other = _number(found), _number(value)
    return one is not None and other is not None and one == other


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _order(op: str, found: Any, value: Any) -> bool:
    one: Any
    other: Any
    if isinstance(value, str) and _moment(value) is not None:
        other = _moment(value)
        one = _moment(found) if isinstance(found, str) else None
    elif _number(value) is not None:
        one, other = _number(found), _number(value)
    else:
        one, other = found if isinstance(found, str) else None, value
    if one is None:
        return False
    return bool(
        {"gt": one > other, "gte": one >= other, "lt": one < other, "lte": one <= other}[op]
    )


def _number(value: Any) -> Fraction | None:
    """A number, or a text that is written like one in JSON, exactly."""
    if isinstance(value, bool) or value is None or isinstance(value, dict | list):
        return None
    if isinstance(value, int):
        return Fraction(value)
    if isinstance(value, float):
        return Fraction(repr(value))
    if len(value) > 40 or not value or not set(value) <= _DIGITS | set("-+.eE"):
        return None
    if value[0] not in _DIGITS | {"-"} or value[-1] not in _DIGITS:
        return None
    mantissa, _, exponent = value.replace("E", "e").partition("e")
    whole, dot, fraction = mantissa.removeprefix("-").partition(".")
    if not whole or set(whole) - _DIGITS or (dot and not fraction) or set(fraction) - _DIGITS:
        return None
    if "e" in value.lower():
        digits = exponent[1:] if exponent[:1] in {"+", "-"} else exponent
        if not digits or set(digits) - _DIGITS or len(digits) > 3:
            return None
    elif not dot:
        return Fraction(int(value))
    return Fraction(value)


def _moment(text: str) -> tuple[datetime, int] | None:
    """A date, or a date with a time, with or without an offset, as an instant and nanoseconds."""
    for shape in ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"):
        for zone in ("", "%z"):
            if zone and shape == "%Y-%m-%d":
                continue
            head, nanos, tail = _cut_fraction(text)
            if nanos is not None and not shape.endswith("S"):
                continue
            plain = head + tail
            if not _well_formed(plain, shape, zone):
                continue
            try:
                at = datetime.strptime(plain, shape + zone)
            except ValueError:
                continue
            if at.tzinfo is None:
                at = at.replace(tzinfo=UTC)
            return at.astimezone(UTC), nanos or 0
    return None


def _cut_fraction(text: str) -> tuple[str, int | None, str]:
    """``…:07.776-0600`` is ``…:07``, 776,000,000 and ``-0600``."""
    head, rest = text[:19], text[19:]
    if rest[:1] in {".", ":", ","}:
        digits = ""
        while rest[1 + len(digits) : 2 + len(digits)] in _DIGITS:
            digits += rest[1 + len(digits)]
        if 1 <= len(digits) <= 9:
            return head, int(digits.ljust(9, "0")), rest[1 + len(digits) :]
    return text, None, ""


def _well_formed(plain: str, shape: str, zone: str) -> bool:
    """strptime is lenient about missing zeros; a date is not."""
    long = {"%Y-%m-%d": 10, "%Y-%m-%dT%H:%M": 16, "%Y-%m-%dT%H:%M:%S": 19}[shape]
    rest = plain[long:]
    if not zone:
        return len(plain) == long
    return rest == "Z" or (rest[:1] in {"+", "-"} and len(rest) in {5, 6})


def _identical(one: Any, other: Any) -> bool:
    return json.dumps(_plain(one), sort_keys=True) == json.dumps(_plain(other), sort_keys=True)


def _plain(value: Any) -> Any:
    """1.0 and 1 are the same number."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value
