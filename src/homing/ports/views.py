"""What people see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from homing.model import (
    Attempt,
    Delivery,
    Endpoint,
    Event,
    Reason,
    State,
    Status,
    Subscription,
    Transition,
)
from homing.ports.board import BoardStore
from homing.ports.fleet import FleetView


class DeliveryRow(Struct, frozen=True):
    """A delivery as a list shows it, pending or finished."""

    delivery: Delivery
    status: Status
    reason: Reason | None
    finished_at: int | None
    arrived: bool
    event_key: str
    event_type: str
    url: str


class EventRow(Struct, frozen=True):
    """An event with the number of its first deliveries."""

    event: Event
    deliveries: int


class Selection(Struct, frozen=True):
    """Which deliveries people ask for; None means any. Lists and bulk replays understand the same.

    ``since`` and ``until`` are times of acceptance: from the first on, and before the second.
    """

    tenant: str | None = None
    status: Status | None = None
    reason: Reason | None = None
    endpoint_id: int | None = None
    subscription_id: int | None = None
    event_id: int | None = None
    event_key: str | None = None  # of any tenant
    type: str | None = None  # exact, "a.*", "a*", or "*"
    url: str | None = None  # a part of it, in any case
    since: int | None = None
    until: int | None = None


class DeliveryFilter(Selection, frozen=True):
    """Conditions of a list."""

    expires_before: int | None = None  # pending ones only


class Ledger(Struct, frozen=True):
    """accepted = delivered + pending + dropped + cancelled, per tenant, always.

    ``pending`` is counted row by row up to a bound; beyond it ``counted`` is False and it is the
    difference of the others.
    """

    tenant: str
    accepted: int
    delivered: int
    pending: int
    dropped: int
    cancelled: int
    counted: bool


class ViewStore(BoardStore, Protocol):
    """Reads for people. Lists are newest first, by id; ``before_id`` is the cursor.

    A page looks at a bounded number of rows: it may hold fewer rows than asked for (even none) and
    still have a next cursor. The second value of a page is the next ``before_id``, None at the end.
    """

    async def events(
        self, *, tenant: str | None, event_type: str | None, before_id: int | None, limit: int
    ) -> tuple[list[EventRow], int | None]: ...

    async def event(self, key: str, *, tenant: str) -> EventRow | None: ...

    async def event_deliveries(self, event_id: int, *, limit: int) -> list[DeliveryRow]:
        """The deliveries of one event, replays included, oldest first."""

    async def subscriptions(
        self, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[Subscription], int | None]:
        """Without the deleted ones."""

    async def subscription(self, subscription_id: int) -> Subscription | None:
        """Also a deleted one."""

    async def endpoints(
        self, *, tenant: str | None, state: State | None, before_id: int | None, limit: int
    ) -> tuple[list[Endpoint], int | None]: ...

    async def endpoint(self, endpoint_id: int) -> Endpoint | None: ...

    async def waiting(self, endpoint_id: int, *, limit: int) -> int:
        """How many deliveries are pending, counted up to ``limit``."""

    async def transitions(
        self, endpoint_id: int, *, before_id: int | None, limit: int
    ) -> tuple[list[Transition], int | None]: ...

    async def deliveries(
        self, conditions: DeliveryFilter, *, before_id: int | None, limit: int
    ) -> tuple[list[DeliveryRow], int | None]:
        """Pending and finished in one statement: a row that moves is neither missed nor doubled."""

    async def delivery(self, delivery_id: int) -> DeliveryRow | None: ...

    async def deliveries_by_id(self, ids: Sequence[int]) -> dict[int, DeliveryRow]:
        """Those of them that are kept, wherever each is now."""

    async def attempts(self, delivery_id: int) -> list[Attempt]: ...

    async def fleet(self) -> FleetView:
        """Live processes and the lease map; nobody is there where SQLite serves one process."""

    async def ledger(self, *, tenant: str | None, scan_limit: int | None = None) -> list[Ledger]:
        """Pending is counted row by row up to ``scan_limit`` rows."""

    async def pending_of(self, tenant: str) -> int:
        """How many of its deliveries are pending, by the sums of the ledger: cheap, and exact."""

    async def subscriptions_of(self, tenant: str, *, limit: int) -> int:
        """How many subscriptions it has, counted up to ``limit``."""

    async def ping(self) -> None:
        """Raises StoreUnavailable when the store does not answer."""
