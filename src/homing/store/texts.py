"""Names the text that a database refused to hold, so that its sender can mend it.

Requests are checked before they come here. This is the last border: text that comes another way is
an error of the tree too, and never an unexpected one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from homing.errors import FieldProblem, UnstorableText
from homing.policy.text import TEXT_RULE, is_storable


def check_storable(names: Iterable[str], values: Iterable[Any]) -> None:
    """Raises UnstorableText with the columns or parameters whose text cannot be stored."""
    problems = [
        FieldProblem(name, TEXT_RULE)
        for name, value in zip(names, values, strict=False)
        if not all(map(is_storable, _texts(value)))
    ]
    if problems:
        raise UnstorableText(problems=tuple(problems))


def check_rows(names: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """The same for the rows of a batch."""
    check_storable(names, zip(*rows, strict=True))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple | frozenset | set):
        for one in value:
            yield from _texts(one)
