"""Filters on the wire: as they are given, and what trying them tells."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec import field as named

from homing.model import SPEC, Connector
from homing.policy.filters import Op, Side

FiltersIn = Annotated[list[dict[str, Any]], Meta(description=SPEC["filters"].sentence)]


class FilterTryIn(Struct, frozen=True, forbid_unknown_fields=True):
    """Filters, and what to try them on: data, an event by its id, or else the newest event."""

    filters: FiltersIn
    connector: Connector = named(name="filterConnector", default=Connector.AND)
    data: Annotated[Raw | UnsetType, Meta(description="Any JSON value, in place of an event.")] = (
        UNSET
    )
    event: Annotated[str | None, Meta(description="The id of an event.")] = None
    type: Annotated[str | None, Meta(description="The newest event of this type.")] = None


class ConditionView(Struct, frozen=True):
    """A condition and what came of it."""

    at: Annotated[str, Meta(description="Its place, like filters[0].filters[1].")]
    field: str
    op: Op
    state: Side | None
    value: Any
    holds: bool
    decided: Annotated[bool, Meta(description="The answer rests on it.")]
    sentence: str


class FilterTried(Struct, frozen=True):
    """Whether it matches, and which condition decided."""

    matches: bool
    sentence: str
    conditions: list[ConditionView]
    event: Annotated[str | None, Meta(description="The event it was tried on.")]


class UnmatchedView(Struct, frozen=True):
    """A subscription that an event does not go to, and why."""

    subscription: str
    url: str
    reason: str


class WorkfrontView(Struct, frozen=True):
    """The fields of a subscription that was made through the Workfront-compatible API."""

    version: str
    base64: bool
    object: Annotated[str | None, Meta(description="Only events of this object.")]
    twin_of: Annotated[
        str | None, Meta(description="It stands in for this one's old version, for five minutes.")
    ]
