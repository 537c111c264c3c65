"""Reads for people: lists, details, and the figures of the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from homing.model import (
    Attempt,
    Cause,
    Delivery,
    Endpoint,
    Event,
    Failure,
    Outcome,
    Reason,
    State,
    Status,
    Subscription,
    Transition,
)
from homing.policy.bulk import Counted
from homing.ports.fleet import FleetView

# Bounds of the histogram of durations in milliseconds; the last count is of longer ones.
BOUNDS_MS = (2, 5, 10, 25, 50, 100, 250, 1_000, 5_000, 30_000, 600_000)
MINUTE_MS = 60_000
HOUR_MS = 3_600_000


class LastFailure(Struct, frozen=True):
    """Why the last attempt of a delivery failed."""

    code: int | None
    failure: Failure | None
    detail: str


class DeliveryRow(Struct, frozen=True):
    """A delivery as a list shows it, pending or finished.

    ``last_failure`` is None without a failed attempt and after a successful one.
    """

    delivery: Delivery
    status: Status
    reason: Reason | None
    finished_at: int | None
    arrived: bool
    event_key: str
    event_type: str
    url: str
    last_failure: LastFailure | None = None
    order_key: str = ""  # the key of the event
    superseded_by: int = 0  # the event that is sent instead


class AttemptFilter(Struct, frozen=True):
    """Conditions on the attempts of an endpoint; None: any. Times are those of their start."""

    outcome: Outcome | None = None
    failure: str | None = None  # the failure class
    code: int | None = None
    since: int | None = None
    until: int | None = None


class AttemptCursor(Struct, frozen=True, array_like=True):
    """A place in the list of an endpoint's attempts: one in each of its two walks."""

    started_at: int
    delivery_id: int
    number: int
    history_id: int


class CauseRow(Struct, frozen=True):
    """A cause with the URL and the state of its endpoint."""

    cause: Cause
    url: str
    state: State


class EventRow(Struct, frozen=True):
    """An event with the number of its first deliveries."""

    event: Event
    deliveries: int


class Selection(Struct, frozen=True):
    """Conditions on deliveries, for lists and bulk replays alike; None: any.

    ``since`` and ``until`` are times of acceptance: ``since`` is included, ``until`` is not.
    ``finished_since`` is included, too; a pending delivery never matches it.
    """

    tenant: str | None = None
    status: Status | None = None
    reason: Reason | None = None
    endpoint_id: int | None = None
    subscription_id: int | None = None
    event_id: int | None = None
    event_key: str | None = None  # of any tenant
    type: str | None = None  # exact, "a.*", "a*", or "*"
    url: str | None = None  # a part of it, case-insensitive
    failure: str | None = None  # the failure class of its last failed attempt
    code: int | None = None  # the status code of its last failed attempt
    since: int | None = None
    until: int | None = None
    finished_since: int | None = None  # finished at or after this time


class DeliveryFilter(Selection, frozen=True):
    """Conditions of a list."""

    expires_before: int | None = None  # pending ones only


class Ledger(Struct, frozen=True):
    """accepted = delivered + pending + dropped + cancelled + superseded, per tenant, always.

    ``pending`` is counted row by row up to a limit; beyond it ``counted`` is False, and ``pending``
    is the difference of the others.
    """

    tenant: str
    accepted: int
    delivered: int
    pending: int
    dropped: int
    cancelled: int
    superseded: int
    counted: bool


class Rollup(Struct, frozen=True):
    """The figures of one minute or hour: attempts by outcome, drops, durations.

    ``took`` counts the durations of attempts for an endpoint, and the times from acceptance to
    delivery for a tenant or for all.
    """

    at: int
    delivered: int = 0
    failed: int = 0
    sender_errors: int = 0
    dropped: int = 0
    took: tuple[int, ...] = (0,) * (len(BOUNDS_MS) + 1)


class Counts(Struct, frozen=True):
    """Endpoints by state, and pending deliveries, each counted up to a limit."""

    enabled: int
    disabled: int
    frozen: int
    waiting: int  # pending, not yet attempted
    failing: int  # pending after a failed attempt
    limit: int  # where counting stops


class StoreFigures(Struct, frozen=True):
    """What the database holds, for metrics."""

    pending: int
    disabled: int  # endpoints, counted up to a limit
    frozen: int


class Expiring(Struct, frozen=True):
    """Pending deliveries of one endpoint whose window ends soon."""

    endpoint_id: int
    url: str
    tenant: str
    state: State
    count: int
    first_at: int


class EndpointSort(StrEnum):
    """The order of a list of endpoints."""

    ATTENTION = "attention"  # frozen, disabled, failing, then the others
    NEWEST = "newest"
    FAILING = "failing"  # most failures in a row first
    RATE = "rate"  # highest failure rate first
    SUCCESS = "success"  # longest without a success first
    URL = "url"


class EventSummary(Struct, frozen=True):
    """An event without its data, as a search shows it."""

    id: int
    tenant: str
    key: str
    type: str
    accepted_at: int


class SearchStore(Protocol):
    """The search of people: seeks, or a bounded number of rows; ``tenant`` None: all tenants.

    A second value says whether everything was searched: all tenants, all endpoints.
    """

    async def events_by_key(
        self, key: str, *, tenant: str | None, limit: int
    ) -> tuple[list[EventSummary], bool]:
        """Events with this id, newest first."""

    async def events_by_field(
        self, hashes: Sequence[bytes], *, tenant: str | None, limit: int
    ) -> list[EventSummary]:
        """Events with a payload field that has one of these hashes, newest first."""

    async def endpoints_by_url(
        self, url: str, *, tenant: str | None, limit: int
    ) -> tuple[list[Endpoint], bool]:
        """The endpoints with exactly this URL."""

    async def endpoints_by_part(
        self, text: str, *, tenant: str | None, limit: int
    ) -> tuple[list[Endpoint], bool]:
        """Endpoints whose URL contains this text, which is in lower case."""


class BoardStore(Protocol):
    """Reads of the dashboard; each reads a bounded number of rows."""

    async def rollups(
        self, *, endpoint_id: int | None, tenant: str | None, since: int, until: int
    ) -> list[Rollup]:
        """Minutes where they are stored, else hours, oldest first, without empty ones."""

    async def sparks(
        self, endpoint_ids: Sequence[int], *, since: int, until: int
    ) -> dict[int, list[Rollup]]:
        """The minutes of many endpoints."""

    async def counts(self, *, tenant: str | None, limit: int) -> Counts: ...

    async def expiring(self, *, tenant: str | None, before: int, limit: int) -> list[Expiring]:
        """Those among the ``limit`` oldest pending deliveries, by endpoint, soonest first."""

    async def figures(self, *, limit: int) -> StoreFigures:
        """Pending deliveries by the ledger; disabled and frozen endpoints up to ``limit``."""

    async def find_endpoints(
        self,
        *,
        tenant: str | None,
        state: State | None,
        text: str,
        sort: EndpointSort,
        offset: int,
        limit: int,
    ) -> tuple[list[Endpoint], bool]:
        """Endpoints whose URL contains this text, and whether there are more."""

    async def waiting_of(self, endpoint_ids: Sequence[int], *, limit: int) -> dict[int, int]:
        """How many deliveries are pending at each, counted up to ``limit``."""

    async def first_expiry_of(self, endpoint_ids: Sequence[int]) -> dict[int, int]:
        """When the window of the oldest pending delivery of each ends."""

    async def endpoints_by_id(self, endpoint_ids: Sequence[int]) -> dict[int, Endpoint]: ...

    async def failing(self, *, tenant: str | None, limit: int) -> list[CauseRow]:
        """The newest open causes of enabled endpoints."""

    async def ended_causes(self, *, tenant: str | None, since: int, limit: int) -> list[CauseRow]:
        """The causes that were closed last, since this time."""

    async def store_bytes(self) -> int:
        """The size of the database."""


class ViewStore(BoardStore, SearchStore, Protocol):
    """Reads for people. Lists are newest first, by id; ``before_id`` is the cursor.

    A page reads a bounded number of rows: it may hold fewer rows than asked for (even none) and
    still have a next cursor. The second value of a page is the next ``before_id``, None at the end.
    """

    async def events(
        self, *, tenant: str | None, event_type: str | None, before_id: int | None, limit: int
    ) -> tuple[list[EventRow], int | None]: ...

    async def event(self, key: str, *, tenant: str) -> EventRow | None: ...

    async def event_key(self, event_id: int) -> str:
        """The id of an event as people see it; empty if it is not kept."""

    async def event_deliveries(self, event_id: int, *, limit: int) -> list[DeliveryRow]:
        """The deliveries of one event, replays included, oldest first."""

    async def subscriptions(
        self, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[Subscription], int | None]:
        """Subscriptions without the deleted ones."""

    async def subscriptions_to(self, endpoint_id: int, *, limit: int) -> list[Subscription]:
        """The newest subscriptions to an endpoint, without the deleted ones."""

    async def subscription(self, subscription_id: int) -> Subscription | None:
        """A subscription, also a deleted one."""

    async def endpoints(
        self, *, tenant: str | None, state: State | None, before_id: int | None, limit: int
    ) -> tuple[list[Endpoint], int | None]: ...

    async def endpoint(self, endpoint_id: int) -> Endpoint | None: ...

    async def refused_endpoints(self, *, since: int, limit: int) -> list[Endpoint]:
        """Those that changed settings of the guard have refused since then, newest first."""

    async def waiting(self, endpoint_id: int, *, limit: int) -> int:
        """How many deliveries are pending, counted up to ``limit``."""

    async def transitions(
        self, endpoint_id: int, *, before_id: int | None, limit: int
    ) -> tuple[list[Transition], int | None]: ...

    async def deliveries(
        self, conditions: DeliveryFilter, *, before_id: int | None, limit: int
    ) -> tuple[list[DeliveryRow], int | None]:
        """Pending and finished in one statement: a row that moves is neither missed nor doubled."""

    async def pending_groups(self, conditions: DeliveryFilter, *, limit: int) -> Counted:
        """The pending deliveries that match among ``limit`` rows, by tenant and cause."""

    async def delivery(self, delivery_id: int) -> DeliveryRow | None: ...

    async def in_order(self, delivery_id: int) -> tuple[Delivery, int | None] | None:
        """A pending delivery with a key, and the id of the one that it waits for.

        The id is None if it is not blocked, or waits for one that was cancelled in flight.
        """

    async def deliveries_by_id(self, ids: Sequence[int]) -> dict[int, DeliveryRow]:
        """Those that are still stored, pending or finished."""

    async def attempts(self, delivery_id: int) -> list[Attempt]: ...

    async def endpoint_attempts(
        self,
        endpoint_id: int,
        conditions: AttemptFilter,
        *,
        cursor: AttemptCursor | None,
        limit: int,
    ) -> tuple[list[Attempt], AttemptCursor | None]:
        """The attempts of an endpoint, newest first, and the next cursor."""

    async def attempts_by_number(
        self, wanted: Sequence[tuple[int, int]]
    ) -> dict[tuple[int, int], Attempt]:
        """Attempts by delivery and number: those that are still stored."""

    async def causes(
        self,
        *,
        tenant: str | None,
        endpoint_id: int | None,
        is_open: bool | None,
        before_id: int | None,
        limit: int,
    ) -> tuple[list[CauseRow], int | None]: ...

    async def open_causes(self, endpoint_ids: Sequence[int]) -> dict[int, list[Cause]]:
        """The open causes of these endpoints, the latest failure first."""

    async def fleet(self) -> FleetView:
        """Live processes and the owners of buckets; empty on SQLite."""

    async def ledger(self, *, tenant: str | None, scan_limit: int | None = None) -> list[Ledger]:
        """Pending is counted row by row up to ``scan_limit`` rows."""

    async def pending_of(self, tenant: str) -> int:
        """The number of a tenant's pending deliveries from the ledger: cheap and exact."""

    async def subscriptions_of(self, tenant: str, *, limit: int) -> int:
        """How many subscriptions a tenant has, counted up to ``limit``."""

    async def ping(self) -> None:
        """Raises StoreUnavailable if the store does not respond."""
