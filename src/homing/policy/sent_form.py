"""What a form carries: the state that it was made from, and the number that is used once.

The seal of an object has a short hash of each value that the form's page knew. The commit of the
change compares them with the values that it replaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from homing.errors import FieldProblem, FormOutdated
from homing.languages.sentences import say

HASH_CHARS = 12
SHOWN_CHARS_MAX = 100
VERSION = "version"  # raised by every change, also by one that is not shown
OUT_OF_DATE = say("This page is out of date. Reload it and try again.")


class SentForm(Struct, frozen=True):
    """The form with which a person asks for a change."""

    seal: str = ""  # of the object that it changes; empty: it was made from no state
    once: bytes = b""  # the same for every submit of one form; empty: it may be sent again
    submit: bytes = b""  # of this submit


def seal_of(path: str, values: Mapping[str, Any]) -> str:
    """The seal of the object at ``path``, as ``tenant/id``; it does not show the path."""
    return " ".join((_hash(path), *(f"{name}:{_hash(value)}" for name, value in values.items())))


def refuse_changed(seal: str, path: str, values: Mapping[str, Any]) -> None:
    """Raises FormOutdated with the values that have changed since an object was sealed.

    A seal of another object says nothing about this one.
    """
    sealed, *rest = seal.split(" ")
    if sealed != _hash(path):
        return
    hashes = dict(it.rpartition(":")[::2] for it in rest)
    changed = [it for it in hashes if _hash(values.get(it)) != hashes[it]]
    if changed:
        problems = tuple(_problem(it, values.get(it)) for it in _named(changed))
        raise FormOutdated(problems=problems)


def _named(changed: Iterable[str]) -> list[str]:
    """The fields that a person knows; the version only if nothing else has changed."""
    found = list(changed)
    return [it for it in found if it != VERSION] or found


def _problem(name: str, value: Any) -> FieldProblem:
    if name == VERSION:
        return FieldProblem("secret", say("or another hidden value has changed"))
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if not text or len(text) > SHOWN_CHARS_MAX:
        return FieldProblem(name, say("has changed"))
    return FieldProblem(name, say("is now {value}", value=text))


def _hash(value: Any) -> str:
    return sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:HASH_CHARS]
