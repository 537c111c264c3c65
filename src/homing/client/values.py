"""What the API tells, as frozen values, and what callers may give, as typed keywords.

Answers are read with tolerance: a field that is not known here is left out, and closed sets
(status, state, outcome, …) stay text, so that a newer server does not break an older client.
Times are RFC 3339 text in UTC, as the API shows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, TypedDict, TypeVar

from msgspec import Raw, Struct, field

from homing.client.filters import Unmatched

T = TypeVar("T")

Status = Literal["pending", "delivered", "dropped", "cancelled"]
State = Literal["enabled", "disabled", "frozen"]


class Page(Struct, Generic[T], frozen=True):
    """A page of a list, newest first; ``next_cursor`` is None at the end."""

    items: tuple[T, ...]
    next_cursor: str | None = None


# --- events ---------------------------------------------------------------------------------


class Event(Struct, frozen=True, kw_only=True):
    """An event to publish.

    ``data`` is any JSON value; a ``msgspec.Raw`` holds JSON that goes out byte for byte.
    """

    type: str
    data: Any
    id: str | None = None
    tenant: str | None = None
    time: str | None = None


class Receipt(Struct, frozen=True):
    """An event that was accepted, and to how many subscriptions it goes.

    ``duplicate`` is True if an event with this id was published before: nothing new is sent. It is
    also True if the response to an earlier attempt of the same call was lost on its way.
    """

    id: str
    deliveries: int
    duplicate: bool = False


class EventSummary(Struct, frozen=True, kw_only=True):
    """An event without its data."""

    id: str
    tenant: str
    type: str
    time: str
    accepted_at: str
    deliveries: int


class Delivery(Struct, frozen=True, kw_only=True):
    """A delivery as a list shows it."""

    id: str
    tenant: str
    status: str
    reason: str | None
    event: str
    type: str
    subscription: str
    endpoint: str
    url: str
    webhook_id: str
    replay: bool
    attempts_made: int
    accepted_at: str
    due_at: str | None = None
    expires_at: str | None = None
    finished_at: str | None = None
    arrived: bool = False


class EventDetail(Struct, frozen=True, kw_only=True):
    """An event with its data and its first deliveries."""

    id: str
    tenant: str
    type: str
    time: str
    accepted_at: str
    data: Raw
    deliveries: tuple[Delivery, ...]
    deliveries_more: bool = False
    unmatched: tuple[Unmatched, ...] = ()
    unmatched_more: bool = False


# --- subscriptions --------------------------------------------------------------------------


class MaskedSecret(Struct, frozen=True):
    """A signing secret, masked; ``until`` while it is being rotated out."""

    value: str
    until: str | None = None


class Subscription(Struct, frozen=True, kw_only=True):
    """A subscription; token, secrets and header values are masked."""

    id: str
    tenant: str
    endpoint: str
    url: str
    types: tuple[str, ...]
    format: str
    token: str | None
    headers: dict[str, str]
    secrets: tuple[MaskedSecret, ...]
    policy: str | None
    deadline_ms: int | None
    rate_per_second: float | None
    active: bool
    description: str
    created_at: str
    updated_at: str
    filters: tuple[dict[str, Any], ...] = ()
    filter_connector: str = field(name="filterConnector", default="AND")


class NewSubscription(Subscription, frozen=True, kw_only=True):
    """A new subscription, with its secret: keep it, it is never shown again."""

    secret: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, url={self.url!r}, secret=****)"


class SubscriptionOptions(TypedDict, total=False):
    """What a new subscription may say beside its URL and types."""

    tenant: str
    format: str
    token: str | None
    headers: Mapping[str, str]
    secret: str | None
    policy: str | None
    deadline_ms: int | None
    rate_per_second: float | None
    active: bool
    description: str
    filters: Sequence[Mapping[str, Any]]
    filter_connector: str


class SubscriptionChanges(TypedDict, total=False):
    """What is given replaces; None removes what is optional; a header's None removes that one."""

    url: str
    types: Sequence[str]
    format: str | None
    token: str | None
    headers: Mapping[str, str | None] | None
    secret: str
    policy: str | None
    deadline_ms: int | None
    rate_per_second: float | None
    active: bool
    description: str | None
    filters: Sequence[Mapping[str, Any]] | None
    filter_connector: str | None


# --- attempts and deliveries ----------------------------------------------------------------


class Phases(Struct, frozen=True):
    """Where the time of an attempt went, in microseconds; None where a phase did not happen."""

    total_us: int
    dns_us: int | None = None
    connect_us: int | None = None
    tls_us: int | None = None
    first_byte_us: int | None = None


class Attempt(Struct, frozen=True, kw_only=True):
    """One HTTP request made for a delivery; secrets are masked."""

    number: int
    lane: str
    outcome: str
    code: int | None
    failure: str | None
    detail: str
    started_at: str
    finished_at: str
    endpoint: str
    address: str | None
    phases: Phases
    request_headers: tuple[str, ...]
    answer_headers: tuple[str, ...]
    excerpt: str
    decided: str
    retry: int | None = None
    due_at: str | None = None


class AttemptLine(Struct, frozen=True, kw_only=True):
    """An attempt as the stream of attempts shows it."""

    delivery: str
    number: int
    lane: str
    outcome: str
    code: int | None
    failure: str | None
    detail: str
    started_at: str
    finished_at: str
    total_us: int
    tenant: str
    event: str
    type: str
    endpoint: str
    subscription: str
    url: str
    decided: str
    retry: int | None = None
    due_at: str | None = None


class AttemptPage(Struct, frozen=True):
    """Oldest first; ask again with ``next_cursor`` for what came since."""

    items: tuple[AttemptLine, ...]
    next_cursor: str
    missed: int = 0


class AttemptsWhere(TypedDict, total=False):
    """Which attempts; what is absent is any."""

    tenant: str
    endpoint: str
    subscription: str


class Retry(Struct, frozen=True):
    """A retry that lies ahead."""

    n: int
    due_at: str


class DeliveryDetail(Delivery, frozen=True, kw_only=True):
    """A delivery with its attempts, the retries ahead, and why it is where it is."""

    explanation: str
    attempts: tuple[Attempt, ...]
    schedule: tuple[Retry, ...]


class DeliveriesWhere(TypedDict, total=False):
    """Which deliveries; what is absent is any. Times are RFC 3339 or durations like ``2h``."""

    tenant: str
    status: Status
    reason: str
    endpoint: str
    subscription: str
    event: str
    type: str
    url: str
    since: str
    until: str
    expiring_within: str


# --- endpoints ------------------------------------------------------------------------------


class Counter(Struct, frozen=True):
    """A number that the health rules look at, beside its limit."""

    name: str
    value: int
    limit: int | None = None
    meaning: str = ""


class Transition(Struct, frozen=True, kw_only=True):
    """A change of an endpoint's state."""

    at: str
    before: str
    after: str
    rule: str
    numbers: dict[str, int]
    by: str
    sentence: str


class Endpoint(Struct, frozen=True, kw_only=True):
    """A subscription URL of one tenant with its health."""

    id: str
    tenant: str
    url: str
    state: str
    since: str
    rule: str
    sentence: str
    counters: tuple[Counter, ...]
    first_attempt_at: str | None
    last_success_at: str | None
    enabled_since: str
    next_probe_at: str | None
    hold_until: str | None
    created_at: str


class EndpointDetail(Endpoint, frozen=True, kw_only=True):
    """An endpoint with what waits for it and its latest changes of state."""

    waiting: int
    waiting_more: bool
    transitions: tuple[Transition, ...]


class EndpointsWhere(TypedDict, total=False):
    """Which endpoints; what is absent is any."""

    tenant: str
    state: State


# --- the whole ------------------------------------------------------------------------------


class Ledger(Struct, frozen=True, kw_only=True):
    """Of one tenant: accepted = delivered + pending + dropped + cancelled."""

    tenant: str
    accepted: int
    delivered: int
    pending: int
    dropped: int
    cancelled: int
    counted: bool
    balanced: bool
