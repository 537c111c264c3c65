"""Bulk replays on the wire."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from homing.model import Reason, Status
from homing.web.schemas import Time


class ReplayFilterIn(Struct, frozen=True, forbid_unknown_fields=True):
    """Which finished deliveries a bulk replay takes; what is absent is any."""

    status: Status | None = None
    reason: Reason | None = None
    endpoint: str | None = None
    subscription: str | None = None
    event: Annotated[
        str | None,
        Meta(description="Of this event; of `tenant`, the key's tenant or `default`."),
    ] = None
    type: str | None = None
    url: Annotated[str | None, Meta(description="To URLs that hold this text.")] = None
    since: Annotated[
        str | None,
        Meta(description="Accepted since: RFC 3339, or a duration back from as_of like 2h."),
    ] = None
    until: Annotated[str | None, Meta(description="Accepted before; like since.")] = None
    tenant: str | None = None
    as_of: Annotated[
        str | None,
        Meta(description="Finished by then: RFC 3339, as a count says it; default now."),
    ] = None


class ReplayIn(Struct, frozen=True, forbid_unknown_fields=True):
    """A bulk replay, or with ``dry_run`` only the number of deliveries it would take."""

    filter: ReplayFilterIn
    dry_run: bool = False


class ReplayCount(Struct, frozen=True):
    """How many deliveries a bulk replay would take; ``exact`` is false when there are more."""

    count: int
    exact: bool
    as_of: Annotated[
        Time, Meta(description="Give it with the same filter to replay those that were counted.")
    ]


class ReplayFilterView(Struct, frozen=True):
    """The conditions of a bulk replay."""

    status: Status | None
    reason: Reason | None
    endpoint: str | None
    subscription: str | None
    event: str | None
    type: str | None
    url: str | None
    since: Time | None
    until: Time | None
    tenant: str | None
    as_of: Time | None


class ReplayJobView(Struct, frozen=True):
    """A bulk replay and how far it is."""

    id: str
    state: str
    filter: ReplayFilterView
    created_at: Time
    looked_at: int
    replayed: int
    skipped: Annotated[
        int, Meta(description="Their subscription is gone, or their data is past retention.")
    ]
