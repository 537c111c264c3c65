"""What goes over the wire: requests refuse unknown fields, answers show values in house words.

Times are RFC 3339 in UTC with milliseconds; ids carry their prefix; secrets are masked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import NODEFAULT, UNSET, Meta, Raw, Struct, UnsetType, defstruct
from msgspec import field as named

from homing.model import (
    SPEC,
    Decided,
    Failure,
    Field,
    Kind,
    Lane,
    Outcome,
    Reason,
    State,
    Status,
)
from homing.policy.exact import encode
from homing.web.schemas_filters import UnmatchedView, WorkfrontView

Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Cursor = Annotated[str | None, Meta(description="Give it as cursor for the next page.")]


def silent(self: Struct) -> str:
    """As ``__repr__`` of what holds secrets."""
    return f"{type(self).__name__}(****)"


# --- events ---------------------------------------------------------------------------------


class EventIn(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """An event to publish; ``data`` is kept byte for byte."""

    type: Annotated[str, Meta(description="Dotted, of A-Z a-z 0-9 . _ -, 1 to 256 characters.")]
    data: Annotated[Raw, Meta(description="Any JSON value, at most 1 MiB.")]
    id: Annotated[
        str | None,
        Meta(description='Idempotency key: 1 to 128 visible ASCII characters without ".".'),
    ] = None
    tenant: Annotated[
        str | UnsetType,
        Meta(description="1 to 64 of A-Z a-z 0-9 _ -; default: the key's, or default."),
    ] = UNSET
    time: Annotated[Time | None, Meta(description="RFC 3339; default now.")] = None


class EventReceipt(Struct, frozen=True, gc=False):
    """An event that was accepted, and to how many subscriptions it goes."""

    id: str
    deliveries: int
    duplicate: Annotated[
        bool, Meta(description="True: this id was published before, and nothing new is sent.")
    ]


class Published(Struct, frozen=True, gc=False):
    """One receipt per event, in order."""

    events: list[EventReceipt]


class EventView(Struct, frozen=True):
    """An event without its data."""

    id: str
    tenant: str
    type: str
    time: str
    accepted_at: Time
    deliveries: int


class EventPage(Struct, frozen=True):
    """Newest first."""

    items: list[EventView]
    next_cursor: Cursor


# --- subscriptions --------------------------------------------------------------------------


def _spec_struct(
    name: str,
    kind_of: Callable[[Field], Any],
    default_of: Callable[[Field], Any],
    *bases: type[Struct],
) -> Any:
    """A struct with the fields that people set, made from the list of them."""
    fields = []
    for it in SPEC.values():
        kind: Any = Annotated[kind_of(it), Meta(description=it.sentence)]
        fields.append((it.name, kind, named(name=it.api_name, default=default_of(it))))
    return defstruct(name, fields, bases=bases or None, frozen=True, kw_only=True)


def _json_kind(field: Field) -> Any:
    """The type of a field in JSON."""
    if field.kind is Kind.PAIRS:
        return dict[str, str]
    return list[dict[str, Any]] if field.kind is Kind.FILTERS else field.type


def json_default(field: Field) -> Any:
    """The default of a field in JSON."""
    if field.required:
        return NODEFAULT
    return {Kind.PAIRS: {}, Kind.FILTERS: []}.get(field.kind, field.default)


def _patch_kind(field: Field) -> Any:
    kind = dict[str, str | None] if field.kind is Kind.PAIRS else _json_kind(field)
    lasts = field.required or field.kind is Kind.FLAG
    return kind | UnsetType if lasts else kind | UnsetType | None


class _Identified(Struct, frozen=True, kw_only=True):
    id: str
    tenant: str
    endpoint: str


if TYPE_CHECKING:  # mypy does not see the fields of a struct that is made at run time.
    _SpecIn = Struct
    _SpecPatch = Struct
    _SpecView = _Identified
else:
    _SpecIn = _spec_struct("SpecIn", _json_kind, json_default)
    _SpecPatch = _spec_struct("SpecPatch", _patch_kind, lambda _: UNSET)
    _SpecView = _spec_struct("SpecView", _json_kind, lambda _: NODEFAULT, _Identified)


class SubscriptionIn(_SpecIn, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A standing request: these events of this tenant go to this URL."""

    tenant: Annotated[str | UnsetType, Meta(description="Default: the key's, or default.")] = UNSET
    secret: Annotated[
        str | None, Meta(description="whsec_ and base64, to sign with; default: a new one is made.")
    ] = None
    __repr__ = silent


class SubscriptionPatch(_SpecPatch, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A value replaces, null restores the default; null inside an object removes that one."""

    secret: str | UnsetType = UNSET
    __repr__ = silent


def read_spec(given: SubscriptionIn | SubscriptionPatch) -> dict[str, Any]:
    """The fields that a request names, as the model has them; a patch's pairs are yet to merge."""
    values = {}
    for name, field in SPEC.items():
        value = getattr(given, name)
        if value is UNSET:
            continue
        if field.kind is Kind.FILTERS and value is not None:
            value = encode(value).decode()
        elif field.kind is Kind.PAIRS and isinstance(given, SubscriptionIn):
            value = tuple(value.items())
        values[name] = value
    return values


class SecretView(Struct, frozen=True):
    """A signing secret, masked; ``until`` while it is being rotated out."""

    value: str
    until: Time | None


class SubscriptionView(_SpecView, frozen=True, kw_only=True):
    """A subscription; token, secrets and header values are masked."""

    secrets: list[SecretView]
    workfront: WorkfrontView | None
    created_at: Time
    updated_at: Time


class SubscriptionCreated(SubscriptionView, frozen=True, kw_only=True):
    """A new subscription, with its secret: it is never shown again."""

    secret: str
    __repr__ = silent


class SubscriptionPage(Struct, frozen=True):
    """Newest first."""

    items: list[SubscriptionView]
    next_cursor: Cursor


# --- attempts and deliveries ----------------------------------------------------------------


class PhasesView(Struct, frozen=True):
    """Where the time went, in microseconds; null where a phase did not happen."""

    dns_us: int | None
    connect_us: int | None
    tls_us: int | None
    first_byte_us: int | None
    total_us: int


class AttemptView(Struct, frozen=True):
    """One HTTP request made for a delivery; secrets are masked."""

    number: int
    lane: Lane
    outcome: Outcome
    code: int | None
    failure: Failure | None
    detail: str
    started_at: Time
    finished_at: Time
    endpoint: str
    address: str | None
    phases: PhasesView
    request_headers: list[str]
    answer_headers: list[str]
    excerpt: str
    decided: Decided
    retry: int | None
    due_at: Time | None


class DeliveryView(Struct, frozen=True, kw_only=True):
    """A delivery as a list shows it."""

    id: str
    tenant: str
    status: Status
    reason: Reason | None
    event: str
    type: str
    subscription: str
    endpoint: str
    url: str
    webhook_id: str
    replay: bool
    attempts_made: int
    accepted_at: Time
    due_at: Time | None
    expires_at: Time | None
    finished_at: Time | None
    arrived: Annotated[
        bool, Meta(description="Cancelled, but an attempt then in flight was answered with 2xx.")
    ]


class DeliveryPage(Struct, frozen=True):
    """Newest first."""

    items: list[DeliveryView]
    next_cursor: Cursor


class RetryView(Struct, frozen=True):
    """A retry that lies ahead."""

    n: int
    due_at: Time


class DeliveryDetail(DeliveryView, frozen=True, kw_only=True):
    """A delivery with its attempts, the retries ahead, and why it is where it is."""

    explanation: str
    attempts: list[AttemptView]
    schedule: list[RetryView]


class EventDetail(Struct, frozen=True, kw_only=True):
    """An event with its data, its deliveries (the first 200; the list has them all), and why not.

    ``unmatched`` tells of the 200 newest other subscriptions of its tenant, as they are now.
    """

    id: str
    tenant: str
    type: str
    time: str
    accepted_at: Time
    data: Raw
    deliveries: list[DeliveryView]
    deliveries_more: bool
    unmatched: list[UnmatchedView]
    unmatched_more: bool


# --- endpoints ------------------------------------------------------------------------------


class CounterView(Struct, frozen=True):
    """A number that the health rules look at, beside its limit."""

    name: str
    value: int
    limit: int | None
    meaning: str


class TransitionView(Struct, frozen=True):
    """A change of an endpoint's state."""

    at: Time
    before: State
    after: State
    rule: str
    numbers: dict[str, int]
    by: str
    sentence: str


class EndpointView(Struct, frozen=True, kw_only=True):
    """A subscription URL of one tenant with its health."""

    id: str
    tenant: str
    url: str
    state: State
    since: Time
    rule: str
    sentence: str
    counters: list[CounterView]
    first_attempt_at: Time | None
    last_success_at: Time | None
    enabled_since: Time
    next_probe_at: Time | None
    hold_until: Annotated[Time | None, Meta(description="Retry-After: nothing goes before.")]
    created_at: Time


class EndpointPage(Struct, frozen=True):
    """Newest first."""

    items: list[EndpointView]
    next_cursor: Cursor


class EndpointDetail(EndpointView, frozen=True, kw_only=True):
    """An endpoint with what waits for it and its latest changes of state."""

    waiting: int
    waiting_more: Annotated[bool, Meta(description="There are more than are counted.")]
    transitions: list[TransitionView]


# --- the whole ------------------------------------------------------------------------------


class LedgerView(Struct, frozen=True):
    """accepted = delivered + pending + dropped + cancelled."""

    tenant: str
    accepted: int
    delivered: int
    pending: int
    dropped: int
    cancelled: int
    counted: Annotated[bool, Meta(description="Pending was counted row by row.")]
    balanced: bool


class LedgerPage(Struct, frozen=True):
    """One ledger per tenant."""

    items: list[LedgerView]
