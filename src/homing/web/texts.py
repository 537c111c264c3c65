"""Refuses text that a database cannot hold, with the name of its field, before anything is read.

All text of a request passes here once: path parameters, query strings, forms and JSON commands.
The data of events does not: it is kept as bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable
from functools import cache
from typing import Any, NamedTuple, cast

from msgspec import inspect

from homing.errors import FieldProblem, Invalid
from homing.policy.admission import PROBLEMS_MOST
from homing.policy.text import TEXT_RULE, is_storable, storable

NAME_CHARS_MAX = 64
PLACE_PARTS_MAX = 20
# An escape of NUL or of a half of a surrogate pair. Two halves may make a good character, and a
# backslash may stand before this one: what is found here is read, and only then judged.
_SUSPECT = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])").search


def shown_name(name: str) -> str:
    """The name of a field as a response can hold it."""
    return storable(name[:NAME_CHARS_MAX])


def text_problems(fields: Iterable[tuple[str, str]]) -> list[FieldProblem]:
    """A problem for each field whose name or value cannot be stored."""
    return [
        FieldProblem(shown_name(name), TEXT_RULE)
        for name, value in fields
        if not (is_storable(value) and is_storable(name))
    ]


def check_texts(fields: Iterable[tuple[str, str]]) -> None:
    """Raises Invalid with every field that cannot be stored."""
    if problems := text_problems(fields):
        raise Invalid(problems=tuple(problems[:PROBLEMS_MOST]))


def json_problems(body: bytes, kind: type[Any], within: str = "") -> list[FieldProblem]:
    """A problem for each text in the JSON of a ``kind`` that cannot be stored, except in data."""
    if _SUSPECT(body) is None:
        return []
    try:
        content = json.loads(body, parse_int=len, parse_float=len)
    except (ValueError, RecursionError):  # The decoder of ``kind`` tells what is wrong.
        return []
    if isinstance(content, dict):
        for name in _raw_fields(cast("Hashable", kind)):
            content.pop(name, None)
    return _walk(content, within) if _is_open(content) else []


@cache
def _raw_fields(kind: object) -> tuple[str, ...]:
    """The fields of a struct that are kept as bytes."""
    found = inspect.type_info(kind)
    if not isinstance(found, inspect.StructType):
        return ()
    return tuple(it.encode_name for it in found.fields if _is_raw(it.type))


def _is_raw(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.Metadata):
        return _is_raw(kind.type)
    if isinstance(kind, inspect.UnionType):
        return any(map(_is_raw, kind.types))
    return isinstance(kind, inspect.RawType)


class _Place(NamedTuple):
    """Where a value stands: in this value, under this name or number."""

    outer: _Place | None
    at: str | int


def _walk(content: Any, within: str) -> list[FieldProblem]:
    """In the order of the text; without recursion, for JSON may be deep."""
    problems: list[FieldProblem] = []
    waiting: list[tuple[_Place | None, Any]] = [(None, content)]
    while waiting and len(problems) < PROBLEMS_MOST:
        place, value = waiting.pop()
        if isinstance(value, str):
            problems.append(FieldProblem(_name(place, within), TEXT_RULE))
        elif isinstance(value, list):
            inner = [(_Place(place, at), it) for at, it in enumerate(value) if _is_open(it)]
            waiting.extend(reversed(inner))
        else:
            if not all(map(is_storable, value)):
                problems.append(FieldProblem(_name(place, within), TEXT_RULE))
            inner = [(_Place(place, at), it) for at, it in value.items() if _is_open(it)]
            waiting.extend(reversed(inner))
    return problems


def _is_open(value: Any) -> bool:
    """Whether it is to be named, or to be looked into."""
    return not is_storable(value) if isinstance(value, str) else isinstance(value, list | dict)


def _name(place: _Place | None, within: str) -> str:
    """``filters[0].value``, made only for what is refused; a very long one loses its inside."""
    parts: list[str] = []
    while place is not None:
        at = place.at
        parts.append(f"[{at}]" if isinstance(at, int) else "." + shown_name(at))
        place = place.outer
    name = (within + "".join(reversed(parts[-PLACE_PARTS_MAX:]))).removeprefix(".")
    return name or "body"
