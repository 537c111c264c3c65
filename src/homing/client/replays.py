"""Bulk replays: which deliveries, and how far one is."""

from __future__ import annotations

from typing import TypedDict

from msgspec import Struct

from homing.client.values import Status


class ReplayWhere(TypedDict, total=False):
    """Which finished deliveries; what is absent is any."""

    status: Status
    reason: str
    endpoint: str
    subscription: str
    event: str
    type: str
    url: str
    since: str
    until: str
    tenant: str
    as_of: str


class ReplayFilter(Struct, frozen=True, kw_only=True):
    """The conditions of a bulk replay."""

    status: str | None = None
    reason: str | None = None
    endpoint: str | None = None
    subscription: str | None = None
    event: str | None = None
    type: str | None = None
    url: str | None = None
    since: str | None = None
    until: str | None = None
    tenant: str | None = None
    as_of: str | None = None


class ReplayCount(Struct, frozen=True):
    """How many deliveries a bulk replay would take; ``exact`` is false when there are more.

    With ``as_of`` the same filter takes those that were counted.
    """

    count: int
    exact: bool
    as_of: str | None = None


class ReplayJob(Struct, frozen=True, kw_only=True):
    """A bulk replay and how far it is."""

    id: str
    state: str
    filter: ReplayFilter
    created_at: str
    looked_at: int
    replayed: int
    skipped: int
