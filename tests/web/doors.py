"""Every place where text comes in, taken from the tables of routes: a new route is covered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import Struct, inspect

from homing.web.dashboard.request import Page
from homing.web.dashboard.routes import PAGES
from homing.web.operation import Operation
from homing.web.routes import OPERATIONS
from homing.web.workfront.api import OPERATIONS as WORKFRONT

API: tuple[Operation, ...] = (*OPERATIONS, *WORKFRONT)
# Pages read the names that they know: some of these, and one that no page knows.
QUERY_NAMES = ("q", "tenant", "cursor", "state", "sort", "since", "span", "policy", "unknown")
FORM_NAMES = ("url", "description", "type", "data", "q", "since", "tenant", "id", "unknown")
_PARAMETER = re.compile(r"{(\w+)(?::path)?}")


class Entry(NamedTuple):
    """A place for a text: the request around it, and the field that a refusal must name."""

    method: str
    path: str  # "{}" stands for the text, percent-encoded
    field: str
    body: Any = None  # JSON of the API
    form: str = ""  # "{}" stands for the text, percent-encoded


def path_of(path: str) -> str:
    """The path with a plain value for each of its parameters."""
    return _PARAMETER.sub("x", path)


def paths(path: str) -> Iterator[tuple[str, str]]:
    """The path with the text in place of each parameter in turn, and the parameter's name."""
    for found in _PARAMETER.finditer(path):
        yield path_of(path[: found.start()]) + "{}" + path_of(path[found.end() :]), found[1]


def api_addresses() -> Iterator[Entry]:
    """Every parameter in the paths and the query strings of the API."""
    for it in API:
        body = None if it.request is None else example(_struct(it.request))
        for path, name in paths(it.path):
            yield Entry(it.method, path, name, body)
        for param in it.params:
            yield Entry(it.method, f"{path_of(it.path)}?{param.name}={{}}", param.name, body)


def api_bodies(text: str) -> Iterator[Entry]:
    """Every text field of the schemas of the API, with this text in it."""
    for it in API:
        if it.request is None:
            continue
        within = "events[0]" if it.id == "publishEvents" else ""
        for place, body in placed(_struct(it.request), text):
            yield Entry(it.method, path_of(it.path), _join(within, place), body)


def page_addresses() -> Iterator[Entry]:
    """Every parameter in the paths of the dashboard, and some query parameters of each page."""
    for page in (*PAGES, Page(path="/sign-in", handler=PAGES[0].handler, open=True)):
        for path, name in paths(page.path):
            yield Entry(page.method, path, name)
        for name in QUERY_NAMES:
            yield Entry(page.method, f"{path_of(page.path)}?{name}={{}}", name)


def page_forms() -> Iterator[Entry]:
    """Fields of every form of the dashboard."""
    for page in PAGES:
        if page.method == "POST":
            for name in FORM_NAMES:
                yield Entry("POST", path_of(page.path), name, form=f"{name}=a{{}}b")
    yield Entry("POST", "/sign-in", "key", form="key=a{}b")


def _struct(kind: type[Struct]) -> inspect.Type:
    return inspect.type_info(kind)


def _join(before: str, after: str) -> str:
    return f"{before}.{after}" if before and after and not after.startswith("[") else before + after


def placed(kind: inspect.Type, text: str) -> Iterator[tuple[str, Any]]:
    """Values of this type with the text in each place in turn, and where it is."""
    match kind:
        case inspect.Metadata():
            yield from placed(kind.type, text)
        case inspect.StrType() | inspect.EnumType() | inspect.AnyType():
            yield "", text
        case inspect.UnionType():
            for one in kind.types:
                yield from placed(one, text)
        case inspect.ListType() | inspect.VarTupleType():
            for place, value in placed(kind.item_type, text):
                yield _join("[0]", place), [value]
        case inspect.DictType():
            yield "", {text: example(kind.value_type)}
            yield from _named({}, "a", kind.value_type, text)
        case inspect.StructType():
            for field in kind.fields:
                yield from _named(example(kind), field.encode_name, field.type, text)
        case _:
            pass


def _named(
    whole: dict[str, Any], name: str, kind: inspect.Type, text: str
) -> Iterator[tuple[str, Any]]:
    for place, value in placed(kind, text):
        yield _join(name, place), {**whole, name: value}


def example(kind: inspect.Type) -> Any:
    """The smallest value of this type."""
    match kind:
        case inspect.Metadata():
            return example(kind.type)
        case inspect.StructType():
            return {it.encode_name: example(it.type) for it in kind.fields if it.required}
        case inspect.UnionType():
            return example(kind.types[0])
        case inspect.EnumType():
            return next(iter(kind.cls)).value
        case inspect.ListType() | inspect.VarTupleType():
            return []
        case inspect.DictType():
            return {}
        case inspect.StrType():
            return "a"
        case inspect.BoolType():
            return True
        case _:
            return 1
