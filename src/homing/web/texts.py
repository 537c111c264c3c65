"""Refuses text that a database cannot store, and names its field.

All text of a request is checked here once, before it is used: path parameters, query strings, forms
and JSON commands. The data of events is not checked, because it is stored as bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Iterator
from functools import cache
from typing import Any, cast

from msgspec import inspect

from homing.errors import FieldProblem, Invalid
from homing.policy.admission import PROBLEMS_MAX
from homing.policy.text import TEXT_RULE, is_storable, storable

NAME_CHARS_MAX = 64
PARTS_MAX = 20
VALUES_MAX = 10_000  # of one body that are searched for the name of the field
# The escape of NUL, or of one half of a surrogate pair without the other.
_UNSTORABLE = re.compile(
    rb"\\u(?:0000|[dD][89abAB]..(?!\\u[dD][c-fC-F]))|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]"
).search


def shown_name(name: str) -> str:
    """The name of a field, shortened and made storable for a response."""
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
        raise Invalid(problems=tuple(problems[:PROBLEMS_MAX]))


def json_problems(body: bytes, kind: type[Any], within: str = "") -> list[FieldProblem]:
    """A problem for each text in the JSON of a ``kind`` that cannot be stored, except in data."""
    # A backslash that is itself escaped does not begin an escape.
    if b"\\u" not in body or _UNSTORABLE(body.replace(b"\\\\", b"__")) is None:
        return []
    try:
        content = json.loads(body, parse_int=len, parse_float=len)
    except (ValueError, RecursionError):  # The decoder of ``kind`` reports the error.
        return []
    if isinstance(content, dict):
        for name in raw_fields(cast("Hashable", kind)):
            content.pop(name, None)
    return _walk(content, within) if isinstance(content, dict | list | str) else []


@cache
def raw_fields(kind: object) -> tuple[str, ...]:
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


def _walk(content: dict[str, Any] | list[Any] | str, within: str) -> list[FieldProblem]:
    """The problems in the order of the text; without recursion, because JSON may be deep."""
    named: dict[str, None] = {}
    path: list[str | int] = []  # the names and numbers of the values that are open
    opened: list[Iterator[tuple[str | int, Any]]] = [_items(content)]
    for _ in range(VALUES_MAX):
        found = next(opened[-1], None)
        if found is None:
            opened.pop()
            if not path:
                return _refused(named)
            path.pop()
            continue
        at, value = found
        if isinstance(at, str) and not is_storable(at):
            named[_name(path, within)] = None
        if isinstance(value, list | dict):
            path.append(at)
            opened.append(_items(value))
        elif isinstance(value, str) and not is_storable(value):
            named[_name([*path, at], within)] = None
        if len(named) == PROBLEMS_MAX:
            break
    return _refused(named or {within or "body": None})


def _items(value: dict[str, Any] | list[Any] | str) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return iter(value.items())
    return iter(enumerate([value] if isinstance(value, str) else value))


def _refused(named: Iterable[str]) -> list[FieldProblem]:
    return [FieldProblem(name, TEXT_RULE) for name in named]


def _name(path: list[str | int], within: str) -> str:
    """A path like ``filters[0].value``; only the beginning of a very long path."""
    parts = (f"[{at}]" if isinstance(at, int) else "." + shown_name(at) for at in path[:PARTS_MAX])
    return (within + "".join(parts)).removeprefix(".") or "body"
