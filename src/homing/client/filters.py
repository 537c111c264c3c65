"""What the API tells of filters."""

from __future__ import annotations

from typing import Any, TypedDict

from msgspec import Struct


class Unmatched(Struct, frozen=True, kw_only=True):
    """A subscription that an event does not go to, and why."""

    subscription: str
    url: str
    reason: str


class TriedCondition(Struct, frozen=True, kw_only=True):
    """A condition of filters that were tried; ``decided`` if the answer rests on it."""

    at: str
    field: str
    op: str
    state: str | None = None
    value: Any = None
    holds: bool
    decided: bool
    sentence: str


class Tried(Struct, frozen=True, kw_only=True):
    """Whether filters match, and which condition decided."""

    matches: bool
    sentence: str
    conditions: tuple[TriedCondition, ...] = ()
    event: str | None = None


class TryOn(TypedDict, total=False):
    """What filters are tried on (without any of the first three: the newest event), and how."""

    data: Any
    event: str
    type: str
    filter_connector: str
