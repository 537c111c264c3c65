"""Reads ``sql/*.sql``: named statements, one text for both engines or one for each.

    -- name: due_rows [sqlite]
    -- Why the statement exists, in a line.
    SELECT {pending:p} FROM pending p WHERE p.id > :after_id LIMIT :limit;

``:param`` becomes ``?N`` or ``$N``; N follows the order in which the SQLite text first names the
parameters, so that one tuple of values fits both texts. ``{pending:p}`` becomes the columns of a
table in the schema's order, each with the prefix ``p.``; ``{pending}`` is the same without one;
``{pending=}`` sets every column but the id to the parameter of its name.
``{selected:d}`` becomes the text of ``sql/parts/selected.sql``, with ``d`` for its ``{it}``.

Arrays of integers (``:ids::bigint[]``) are sent to PostgreSQL as text, ``{1,2}``: asyncpg checks of
every element of an array whether it is an array itself, which takes ten times as long.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from homing.store.rows import COLUMNS
from homing.store.tx import Dialect

_HEAD = re.compile(r"^-- name: (\w+)(?: \[(sqlite|postgres)\])?\s*$")
_COMMENT = re.compile(r"--[^\n]*")
_COLUMNS = re.compile(r"\{(\w+)(?::(\w+)|(=))?\}")
_TOKEN = re.compile(r"'(?:[^']|'')*'|::|:([a-z_][a-z0-9_]*)")
_INTEGERS = re.compile(r"(\$(\d+))::(bigint|integer|smallint)\[\]")
_NUMBER = re.compile(r"\$(\d+)")
_SIGN: dict[Dialect, str] = {"sqlite": "?", "postgres": "$"}


class Statement(NamedTuple):
    """A statement in one dialect, and the names of its parameters in order."""

    text: str
    params: tuple[str, ...]
    integers: frozenset[int] = frozenset()  # which of them are arrays of integers, as text

    def given(self, values: Iterable[Any]) -> Iterable[Any]:
        """The values as the driver takes them."""
        if not self.integers:
            return values
        return [_text_of(it) if n in self.integers else it for n, it in enumerate(values)]


def _text_of(integers: Iterable[int | None]) -> str:
    """An array of integers as PostgreSQL reads it."""
    return "{" + str(list(integers))[1:-1].replace("None", "NULL") + "}"


@cache
def _part(name: str) -> str:
    """A text that several statements share: ``sql/parts``."""
    file = files("homing.store") / "sql" / "parts" / f"{name}.sql"
    return _COMMENT.sub("", file.read_text(encoding="utf-8")).strip()


def _expand(match: re.Match[str]) -> str:
    name, alias = match[1], match[2] or ""
    if name not in COLUMNS:
        return _COLUMNS.sub(_expand, _part(name).replace("{it}", alias))
    if match[3]:
        return ", ".join(f"{column} = :{column}" for column in COLUMNS[name] if column != "id")
    prefix = f"{alias}." if alias else ""
    return ", ".join(prefix + column for column in COLUMNS[name])


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(match[1] for match in _TOKEN.finditer(text) if match[1]))


def _compile(text: str, params: tuple[str, ...], dialect: Dialect) -> Statement:
    numbers = {name: f"{_SIGN[dialect]}{number}" for number, name in enumerate(params, 1)}
    text = _TOKEN.sub(lambda token: numbers[token[1]] if token[1] else token[0], text)
    return with_integers(text, params) if dialect == "postgres" else Statement(text, params)


def with_integers(text: str, params: tuple[str, ...] = ()) -> Statement:
    """A statement of PostgreSQL whose arrays of integers are given as text."""
    places = frozenset(int(match[2]) - 1 for match in _INTEGERS.finditer(text))
    return Statement(_INTEGERS.sub(r"\1::text::\3[]", text), params, places)


def joined(parts: Sequence[Statement]) -> Statement:
    """Several writes of PostgreSQL as one statement; they do not see each other's rows."""
    texts: list[str] = []
    params: list[str] = []
    integers: list[int] = []
    for part in parts:
        texts.append(_renumbered(part.text, len(params)))
        integers += [it + len(params) for it in part.integers]
        params += part.params
    *first, last = texts
    named = ", ".join(f"w{number} AS ({text})" for number, text in enumerate(first))
    return Statement(f"WITH {named} {last}" if first else last, tuple(params), frozenset(integers))


def _renumbered(text: str, after: int) -> str:
    return _NUMBER.sub(lambda it: f"${int(it[1]) + after}", text)


def parse(source: str, dialect: Dialect) -> dict[str, Statement]:
    """The statements of one file's text, for one engine."""
    texts: dict[str, dict[str, str]] = {}
    for block in re.split(r"(?m)^(?=-- name:)", source):
        head, _, body = block.partition("\n")
        match = _HEAD.match(head)
        if match is None:
            assert not _COMMENT.sub("", block).strip(), f"a statement without a name: {head}"
            continue
        name, only = match.groups()
        body = _COLUMNS.sub(_expand, _COMMENT.sub("", body)).strip().removesuffix(";")
        forms = texts.setdefault(name, {})
        for form in (only,) if only else ("sqlite", "postgres"):
            assert form not in forms, f"two statements are named {name}"
            forms[form] = body
    found: dict[str, Statement] = {}
    for name, forms in texts.items():
        if dialect not in forms:
            continue
        params = _names(forms.get("sqlite", forms[dialect]))
        assert set(_names(forms[dialect])) == set(params), f"{name}: the texts' parameters differ"
        found[name] = _compile(forms[dialect], params, dialect)
    return found


@cache
def statements(dialect: Dialect) -> dict[str, Statement]:
    """All statements of ``sql/*.sql`` for one engine."""
    found: dict[str, Statement] = {}
    folder = files("homing.store") / "sql"
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".sql"):
            more = parse(file.read_text(encoding="utf-8"), dialect)
            assert not found.keys() & more.keys(), f"{file.name} repeats a name"
            found.update(more)
    return found
