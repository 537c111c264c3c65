"""The requests and responses of the API. A request with an unknown field is refused.

In responses, times are RFC 3339 in UTC with milliseconds, ids have their prefix, and secrets are
masked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import NODEFAULT, UNSET, Meta, Raw, Struct, UnsetType, defstruct
from msgspec import field as named

from homing.app.search import HitKind
from homing.model import (
    SPEC,
    Connector,
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
from homing.policy.backfill import PER_SECOND
from homing.policy.causes import CLASSES, OTHER
from homing.policy.exact import encode
from homing.policy.filters import Op, Side
from homing.policy.retry import OnGone, OnRetryAfter
from homing.ports.erasures import ErasureKind
from homing.web.problems import FieldReason

Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
FailureClass = Annotated[
    str,
    Meta(
        description="The failure class: http_status for a response that is not 2xx.",
        extra_json_schema={"enum": [*CLASSES, OTHER.failure]},
    ),
]
Cursor = Annotated[
    str | None, Meta(description="The parameter cursor of the next page; null at the end.")
]


def silent(self: Struct) -> str:
    """The ``__repr__`` of a struct that holds secrets."""
    return f"{type(self).__name__}(****)"


# --- events ---------------------------------------------------------------------------------


class EventIn(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """An event to publish; ``data`` is stored byte for byte."""

    type: Annotated[str, Meta(description="Dotted, of A-Z a-z 0-9 . _ -, 1 to 256 characters.")]
    data: Annotated[Raw, Meta(description="Any JSON value, at most 1 MiB and 100 levels.")]
    id: Annotated[
        str | None,
        Meta(description='Idempotency key: 1 to 128 visible ASCII characters without ".".'),
    ] = None
    tenant: Annotated[
        str | UnsetType,
        Meta(description="1 to 64 of A-Z a-z 0-9 _ -; default: the key's, or default."),
    ] = UNSET
    time: Annotated[Time | None, Meta(description="RFC 3339; default now.")] = None
    key: Annotated[
        str | None,
        Meta(
            description=(
                "The object that the event is about: 1 to 128 bytes of printable text. "
                "Subscriptions may ask for order by key."
            )
        ),
    ] = None


class EventReceipt(Struct, frozen=True, gc=False):
    """An event that was accepted, and the number of subscriptions that it is sent to."""

    id: str
    deliveries: int
    duplicate: Annotated[
        bool, Meta(description="True: this id was published before, and nothing new is sent.")
    ]
    warning: Annotated[
        str | UnsetType,
        Meta(description="Why its data does not match its event type, if it does not."),
    ] = UNSET


class Published(Struct, frozen=True, gc=False):
    """One receipt per event, in order."""

    events: list[EventReceipt]


class EventView(Struct, frozen=True):
    """An event without its data."""

    id: str
    tenant: str
    type: str
    time: str
    key: Annotated[str | None, Meta(description="The object that it is about.")]
    accepted_at: Time
    deliveries: int


class EventPage(Struct, frozen=True):
    """Newest first."""

    items: list[EventView]
    next_cursor: Cursor


# --- subscriptions --------------------------------------------------------------------------


# More pairs than this are refused while they are read; the limits of a subscription are lower.
_READ_MAX = Meta(max_length=1_000)


def _spec_struct(
    name: str,
    kind_of: Callable[[Field], Any],
    default_of: Callable[[Field], Any],
    *bases: type[Struct],
) -> Any:
    """A struct with the fields of a subscription that callers set, built from ``SPEC``."""
    fields = []
    for it in SPEC.values():
        kind: Any = Annotated[kind_of(it), Meta(description=str(it.sentence))]
        fields.append((it.name, kind, named(name=it.api_name, default=default_of(it))))
    return defstruct(name, fields, bases=bases or None, frozen=True, kw_only=True)


def _json_kind(field: Field) -> Any:
    """The type of a field in JSON."""
    if field.kind is Kind.PAIRS:
        return Annotated[dict[str, str], _READ_MAX]
    return list[dict[str, Any]] if field.kind is Kind.FILTERS else field.type


def json_default(field: Field) -> Any:
    """The default of a field in JSON."""
    if field.required:
        return NODEFAULT
    return {Kind.PAIRS: {}, Kind.FILTERS: []}.get(field.kind, field.default)


def _patch_kind(field: Field) -> Any:
    kind: Any = _json_kind(field)
    if field.kind is Kind.PAIRS:
        kind = Annotated[dict[str, str | None], _READ_MAX]
    nullable = not field.required and field.kind is not Kind.FLAG
    return kind | UnsetType | None if nullable else kind | UnsetType


class _Identified(Struct, frozen=True, kw_only=True):
    id: str
    tenant: str
    endpoint: Annotated[str, Meta(description="Empty: it has no URL, its events are read.")]


if TYPE_CHECKING:  # mypy does not see the fields of a struct that is created at run time.
    _SpecIn = Struct
    _SpecPatch = Struct
    _SpecView = _Identified
else:
    _SpecIn = _spec_struct("SpecIn", _json_kind, json_default)
    _SpecPatch = _spec_struct("SpecPatch", _patch_kind, lambda _: UNSET)
    _SpecView = _spec_struct("SpecView", _json_kind, lambda _: NODEFAULT, _Identified)


class SubscriptionIn(_SpecIn, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A subscription: matching events of its tenant are sent to its URL."""

    tenant: Annotated[str | UnsetType, Meta(description="Default: the key's, or default.")] = UNSET
    secret: Annotated[
        str | None, Meta(description="whsec_ and base64, to sign with; default: a new one.")
    ] = None
    since: Annotated[
        str | None,
        Meta(
            description=(
                "Start in the past, by a job: it delivers the kept events accepted since this time "
                "(RFC 3339), or since a duration back from now like 7d."
            )
        ),
    ] = named(name="from", default=None)
    per_second: Annotated[
        int | None,
        Meta(description="With `from`: deliveries that the job makes per second; default: 100."),
    ] = None
    __repr__ = silent


class SubscriptionPatch(_SpecPatch, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Changed fields: null restores the default; null inside an object removes that entry."""

    secret: str | UnsetType = UNSET
    __repr__ = silent


def read_spec(given: SubscriptionIn | SubscriptionPatch) -> dict[str, Any]:
    """The given fields as the model stores them; the pairs of a patch are not merged yet."""
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
    """A signing secret, masked; ``until`` is set while it is being rotated out."""

    value: str
    until: Time | None


class PublicKeyView(Struct, frozen=True):
    """A public key of a tenant; ``until`` is set while it is being rotated out."""

    value: Annotated[str, Meta(description="whpk_ and base64.")]
    kid: Annotated[str, Meta(description="Its name in the JWK set.")]
    until: Time | None


class WorkfrontView(Struct, frozen=True):
    """The fields of a subscription that was created through the Workfront-compatible API."""

    id: Annotated[str, Meta(description="Its id in that API: a UUID, accepted here as well.")]
    version: str
    base64: bool
    object: Annotated[str | None, Meta(description="Only events of this object.")]
    twin_of: Annotated[
        str | None,
        Meta(description="It sends the old version of this subscription for five minutes."),
    ]
    warnings: Annotated[
        list[FieldReason] | UnsetType,
        Meta(description="What Adobe would refuse, ignore or never match; not in lists."),
    ] = UNSET


class CertificateView(Struct, frozen=True):
    """What a client certificate says about itself."""

    subject: str
    issuer: str
    fingerprint: Annotated[str, Meta(description="SHA-256 of the certificate, in hexadecimal.")]
    expires_at: Time


class ReceiverView(Struct, frozen=True):
    """What the receiver of a subscription has said about it."""

    gone_at: Annotated[
        Time | None,
        Meta(description="It responded with 410, so the subscription was set inactive."),
    ]
    verified_at: Annotated[Time | None, Meta(description="It proved that it owns the URL.")]
    asked_at: Annotated[Time | None, Meta(description="When it was last asked for that proof.")]
    problem: Annotated[str, Meta(description="Why it has not given the proof; empty: it has.")]
    per_minute_max: Annotated[
        int | None, Meta(description="Requests a minute that it allows, by CloudEvents' handshake.")
    ]


class SubscriptionView(_SpecView, frozen=True, kw_only=True):
    """A subscription; secrets, among them tokens, keys and header values, are masked."""

    certificate: Annotated[
        CertificateView | None,
        Meta(description="The facts of its own client certificate; null: it has none."),
    ]

    secrets: list[SecretView]
    public_keys: Annotated[
        list[PublicKeyView],
        Meta(description="The keys of its tenant; empty if its requests are signed with hmac."),
    ]
    workfront: WorkfrontView | None
    unverified: Annotated[
        bool,
        Meta(description="It gets no events: its receiver has not proved that it owns the URL."),
    ]
    receiver: ReceiverView | None
    paused_since: Annotated[
        Time | None,
        Meta(description="It is paused: its deliveries wait until it is resumed; null: it is not."),
    ]
    created_at: Time
    updated_at: Time


class BackfillStarted(Struct, frozen=True):
    """The job that delivers past events to a new subscription; `GET /v1/replays/{id}` shows it."""

    id: str
    count: Annotated[int, Meta(description="Past events that match, counted before it began.")]
    exact: Annotated[bool, Meta(description="False: there are more.")]


class SubscriptionCreated(SubscriptionView, frozen=True, kw_only=True):
    """A new subscription with its secret, which is never shown again."""

    secret: str
    backfill: Annotated[
        BackfillStarted | None, Meta(description="Null: it does not start in the past.")
    ]
    __repr__ = silent


class SubscriptionPage(Struct, frozen=True):
    """Newest first."""

    items: list[SubscriptionView]
    next_cursor: Cursor


# --- filters --------------------------------------------------------------------------------------


FiltersIn = Annotated[list[dict[str, Any]], Meta(description=str(SPEC["filters"].sentence))]


class FilterTryIn(Struct, frozen=True, forbid_unknown_fields=True):
    """Filters to try on data, on an event by its id, or else on the newest event."""

    filters: FiltersIn
    connector: Connector = named(name="filterConnector", default=Connector.AND)
    data: Annotated[Raw | UnsetType, Meta(description="Any JSON value, in place of an event.")] = (
        UNSET
    )
    event: Annotated[str | None, Meta(description="The id of an event.")] = None
    type: Annotated[str | None, Meta(description="The newest event of this type.")] = None


class ConditionView(Struct, frozen=True):
    """A condition and its result."""

    at: Annotated[str, Meta(description="Its place, like filters[0].filters[1].")]
    field: str
    op: Op
    state: Side | None
    value: Any
    holds: bool
    decided: Annotated[bool, Meta(description="The result depends on it.")]
    sentence: str


class FilterTried(Struct, frozen=True):
    """Whether the filters match, and the conditions that decided it."""

    matches: bool
    sentence: str
    conditions: list[ConditionView]
    event: Annotated[str | None, Meta(description="The event it was tried on.")]


# --- attempts and deliveries ----------------------------------------------------------------


class PhasesView(Struct, frozen=True):
    """How long each phase took, in microseconds; null for a phase that did not happen."""

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
    response_headers: list[str]
    excerpt: str
    decided: Decided
    retry: int | None
    due_at: Time | None


class FailureView(Struct, frozen=True):
    """Why an attempt failed."""

    failure: FailureClass
    reason: Annotated[str, Meta(description="A sub-reason, like self_signed; empty if unknown.")]
    code: int | None
    title: Annotated[str, Meta(description="The same in words: 503 Service Unavailable.")]


class DeliveryView(Struct, frozen=True, kw_only=True):
    """A delivery as a list shows it."""

    id: str
    tenant: str
    status: Status
    reason: Reason | None
    event: str
    type: str
    key: Annotated[str | None, Meta(description="The key of the event.")]
    subscription: str
    endpoint: str
    url: str
    webhook_id: str
    replay: bool
    attempts_made: int
    last_failure: Annotated[
        FailureView | None,
        Meta(description="Why the last attempt failed; null if it did not, or there was none."),
    ]
    accepted_at: Time
    due_at: Time | None
    expires_at: Time | None
    finished_at: Time | None
    arrived: Annotated[
        bool, Meta(description="Cancelled while an attempt was in flight, which then got a 2xx.")
    ]


class DeliveryPage(Struct, frozen=True):
    """Newest first."""

    items: list[DeliveryView]
    next_cursor: Cursor


class SentencePart(Struct, frozen=True):
    """A part of a sentence; the texts of all parts make the whole sentence."""

    text: str
    time: Annotated[
        Time | None, Meta(description="Set if this part is a time: show it in your own way.")
    ]


class RetryView(Struct, frozen=True):
    """A retry to come."""

    n: int
    due_at: Time


class PolicyView(Struct, frozen=True):
    """The policy of a delivery: its subscription's, its tenant's or the installation's."""

    name: str
    on_gone: Annotated[
        OnGone, Meta(description="`deactivate`: a 410 ends the subscription and its deliveries.")
    ]
    retry_after: Annotated[
        OnRetryAfter,
        Meta(
            description="`obey`: `Retry-After` on 429 or 503 moves the retry and holds the whole"
            " URL, for an hour at most. `ignore`: it changes nothing."
        ),
    ]


class DeliveryDetail(DeliveryView, frozen=True, kw_only=True):
    """A delivery with its attempts, the retries to come, and an explanation of its state."""

    explanation: str
    explanation_parts: list[SentencePart]
    superseded_by: Annotated[
        str | None,
        Meta(description="The event that is sent instead, while it is kept."),
    ]
    waits_for: Annotated[
        str | None,
        Meta(description="The delivery of the same key that must be finished before this one."),
    ]
    attempts: list[AttemptView]
    policy: PolicyView
    schedule: list[RetryView]


class UnmatchedView(Struct, frozen=True):
    """A subscription that an event is not sent to, and the reason."""

    subscription: str
    url: str
    reason: str


class EventDetail(Struct, frozen=True, kw_only=True):
    """An event with its data and its first 200 deliveries; the list of deliveries has all of them.

    ``unmatched`` are the 200 newest other subscriptions of its tenant, each with the reason why
    the event is not sent to it.
    """

    id: str
    tenant: str
    type: str
    time: str
    key: Annotated[str | None, Meta(description="The object that it is about.")]
    accepted_at: Time
    context: Annotated[
        dict[str, str | bool | int] | None,
        Meta(description="Of an event that was published as a CloudEvent: its other attributes."),
    ]
    warning: Annotated[
        str | None, Meta(description="Why its data does not match its event type; null: it does.")
    ]
    data: Raw
    deliveries: list[DeliveryView]
    deliveries_more: bool
    unmatched: list[UnmatchedView]
    unmatched_more: bool


# --- endpoints ------------------------------------------------------------------------------


class CounterView(Struct, frozen=True):
    """A number that the health rules use, and its limit."""

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


class CauseSummary(Struct, frozen=True, kw_only=True):
    """Why attempts of an endpoint fail, since when, and how often."""

    id: str
    failure: FailureClass
    reason: Annotated[str, Meta(description="A sub-reason, like self_signed; empty if unknown.")]
    code: int | None
    title: Annotated[str, Meta(description="The same in words: 503 Service Unavailable.")]
    open: Annotated[bool, Meta(description="The endpoint has not succeeded since.")]
    first_seen: Time
    last_seen: Time
    closed_at: Time | None
    attempts: Annotated[int, Meta(description="Failed attempts since first_seen.")]
    deliveries: Annotated[
        int,
        Meta(
            description="Deliveries that failed so; one that failed otherwise in between "
            "counts again."
        ),
    ]


class CauseView(CauseSummary, frozen=True, kw_only=True):
    """A cause with its endpoint and its latest failed attempt."""

    tenant: str
    endpoint: str
    url: str
    state: State
    attempts_in_all: Annotated[
        int, Meta(description="Failed attempts of all open causes of the endpoint.")
    ]
    sentence: str
    sentence_parts: list[SentencePart]
    waiting: Annotated[int, Meta(description="Pending deliveries of the endpoint.")]
    waiting_more: Annotated[bool, Meta(description="There are more than were counted.")]
    example_delivery: str
    example: Annotated[
        AttemptView | None, Meta(description="The latest failed attempt; null past retention.")
    ]


class CausePage(Struct, frozen=True):
    """Newest first."""

    items: list[CauseView]
    next_cursor: Cursor


class EndpointView(Struct, frozen=True, kw_only=True):
    """A subscription URL of one tenant with its health."""

    id: str
    tenant: str
    url: str
    state: State
    since: Time
    rule: str
    sentence: str
    sentence_parts: list[SentencePart]
    counters: list[CounterView]
    first_attempt_at: Time | None
    last_success_at: Time | None
    enabled_since: Time
    next_probe_at: Time | None
    hold_until: Annotated[
        Time | None, Meta(description="From Retry-After: nothing is sent before this time.")
    ]
    causes: Annotated[
        list[CauseSummary], Meta(description="Open causes, the latest failure first.")
    ]
    created_at: Time


class EndpointPage(Struct, frozen=True):
    """Newest first."""

    items: list[EndpointView]
    next_cursor: Cursor


class EndpointDetail(EndpointView, frozen=True, kw_only=True):
    """An endpoint with its number of pending deliveries and its latest changes of state."""

    waiting: int
    waiting_more: Annotated[bool, Meta(description="There are more than were counted.")]
    transitions: list[TransitionView]


# --- bulk replays ---------------------------------------------------------------------------------


class ReplayFilterIn(Struct, frozen=True, forbid_unknown_fields=True):
    """The finished deliveries that a bulk replay selects; an absent field matches all."""

    status: Status | None = None
    reason: Reason | None = None
    endpoint: str | None = None
    subscription: str | None = None
    event: Annotated[
        str | None,
        Meta(description="Only of this event of `tenant`, the key's tenant or `default`."),
    ] = None
    type: str | None = None
    url: Annotated[str | None, Meta(description="Sent to a URL that contains this text.")] = None
    failure: Annotated[
        str | None, Meta(description="The failure class of the last failed attempt.")
    ] = None
    code: Annotated[int | None, Meta(description="The status code of the last failed attempt.")] = (
        None
    )
    since: Annotated[
        str | None,
        Meta(description="Accepted since: RFC 3339, or a duration back from as_of like 2h."),
    ] = None
    until: Annotated[str | None, Meta(description="Accepted before; same format as since.")] = None
    finished_since: Annotated[
        str | None,
        Meta(description="Delivered, dropped or cancelled since; same format as since."),
    ] = None
    tenant: str | None = None
    as_of: Annotated[
        str | None,
        Meta(description="Finished by this time: RFC 3339, as dry_run returns it; default: any."),
    ] = None


class ReplayIn(Struct, frozen=True, forbid_unknown_fields=True):
    """A bulk replay, or with ``dry_run`` only the number of deliveries it would replay."""

    filter: ReplayFilterIn
    dry_run: bool = False


class NamedCount(Struct, frozen=True):
    """A status, a tenant or a cause, and how many of the counted deliveries have it."""

    name: str
    count: int


class BackfillIn(Struct, frozen=True, forbid_unknown_fields=True):
    """Deliver past events to a subscription, or with ``dry_run`` only count them."""

    since: Annotated[
        str,
        Meta(
            description=(
                "Events accepted since then: a time after RFC 3339, or a duration back from now "
                "like 7d; not before the retention."
            )
        ),
    ] = named(name="from")
    per_second: Annotated[
        int, Meta(description="Deliveries that the job makes per second: 1 to 10000.")
    ] = PER_SECOND
    dry_run: bool = False


class BackfillCount(Struct, frozen=True):
    """How many past events would be delivered; ``exact`` is false if there are more."""

    count: int
    exact: bool


class ReplayCount(Struct, frozen=True):
    """How many deliveries a bulk replay would replay; ``exact`` is false if there are more."""

    count: int
    exact: bool
    by_status: list[NamedCount]
    by_tenant: list[NamedCount]
    by_cause: Annotated[
        list[NamedCount],
        Meta(description="By the last failure; the name is empty if there is none."),
    ]
    as_of: Annotated[
        Time,
        Meta(
            description="Send it with the same filter to replay the deliveries that were counted."
        ),
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
    failure: str | None
    code: int | None
    since: Time | None
    until: Time | None
    finished_since: Time | None
    tenant: str | None
    as_of: Time | None
    backfill: Annotated[
        bool, Meta(description="It delivers past events that the subscription has none of.")
    ]


class ReplayJobView(Struct, frozen=True):
    """A bulk replay and its progress."""

    id: str
    state: str
    filter: ReplayFilterView
    created_at: Time
    scanned: int
    replayed: int
    skipped: Annotated[
        int, Meta(description="Their subscription was deleted, or their data is past retention.")
    ]
    waits: Annotated[
        str,
        Meta(
            description="Why it makes no deliveries for now, such as the quota of its tenant; empty"
            " if it does."
        ),
    ]


# --- erasures -------------------------------------------------------------------------------


class ErasureIn(Struct, frozen=True, forbid_unknown_fields=True):
    """What to erase: give `event`, or `field` and `value`, or `everything`."""

    event: Annotated[str | None, Meta(description="The id of one event.")] = None
    field: Annotated[
        str | None,
        Meta(description="A payload field like data.customer.id; it must be in `search_fields`."),
    ] = None
    value: Annotated[
        str | None, Meta(description="Events that have this value at the field are erased.")
    ] = None
    everything: Annotated[
        bool,
        Meta(
            description="Erase all that the tenant has: events, deliveries, subscriptions,"
            " endpoints, notice targets and keys. It needs an admin key."
        ),
    ] = False
    tenant: Annotated[
        str | None, Meta(description="Default: the tenant of the key, else `default`.")
    ] = None


class ErasureView(Struct, frozen=True, kw_only=True):
    """An erasure and its progress. It has nothing of what was erased."""

    id: str
    tenant: str
    kind: ErasureKind
    field: Annotated[str | None, Meta(description="The payload field by which events were found.")]
    state: Annotated[
        Literal["running", "done"],
        Meta(
            description="In both states nothing of it is shown or sent. done: its rows are removed,"
            " and on SQLite the write-ahead log is emptied."
        ),
    ]
    more: Annotated[
        bool,
        Meta(description="Other events match, too, and are not erased: send the request again."),
    ]
    events: Annotated[int, Meta(description="Events that are removed so far.")]
    deliveries: Annotated[int, Meta(description="Deliveries that are removed so far.")]
    cancelled: Annotated[int, Meta(description="Of these deliveries, those that were pending.")]
    created_at: Time
    finished_at: Time | None


class ErasurePage(Struct, frozen=True):
    """Newest first."""

    items: list[ErasureView]
    next_cursor: Cursor


# --- search ---------------------------------------------------------------------------------


class SearchHit(Struct, frozen=True):
    """One thing that a search found."""

    kind: HitKind
    id: Annotated[str, Meta(description="Its id; of an event type the type itself.")]
    tenant: Annotated[str | None, Meta(description="Null for an event type.")]
    title: Annotated[str, Meta(description="Its event type or its URL.")]
    status: Annotated[
        str | None, Meta(description="The status of a delivery or the state of an endpoint.")
    ]
    at: Annotated[Time | None, Meta(description="When it was accepted or created.")]


class SearchExample(Struct, frozen=True):
    """A text that finds something now."""

    q: str
    finds: str


class SearchResult(Struct, frozen=True):
    """What a text names."""

    items: list[SearchHit]
    more: Annotated[bool, Meta(description="Whether there are more than these.")]
    notes: Annotated[list[str], Meta(description="Why something may be missing.")]
    examples: Annotated[
        list[SearchExample], Meta(description="Texts that can be searched, if nothing was found.")
    ]


# --- monitoring -----------------------------------------------------------------------------


class LedgerView(Struct, frozen=True):
    """accepted = delivered + pending + dropped + cancelled + superseded."""

    tenant: str
    accepted: int
    delivered: int
    pending: int
    dropped: int
    cancelled: int
    superseded: int
    counted: Annotated[bool, Meta(description="The pending deliveries were counted row by row.")]
    balanced: bool


class LedgerPage(Struct, frozen=True):
    """One ledger per tenant."""

    items: list[LedgerView]


class OutageShown(Struct, frozen=True):
    """Sender-outage detection: `confirmed` in an outage, when only canaries are sent.

    `off`: this installation has switched it off with `outage_detection = false`.
    """

    state: str  # off, none, suspected or confirmed
    since: str | None  # of this state; null if there was no outage yet
    why: str
    waiting: int  # failures that wait for a decision
    canaries: int  # sent since the process started
    outages: int  # since the process started


class ClockShown(Struct, frozen=True):
    """The wall clock of this machine, compared with the steady time that schedules use."""

    ahead_ms: int  # of the wall clock; negative: it is behind
    steps: int  # of more than a minute, seen since the process started
    stepped_at: str | None  # the last of them, in steady time; null if there was none
    stepped_by_ms: int  # negative: the wall clock was set back
    detail: str


class Well(Struct, frozen=True, omit_defaults=True):
    """The process is healthy.

    `outage` is present unless its state is `none`. `clock` is present while the wall clock is more
    than a minute away from steady time, and for an hour after it was stepped. `kept_policies` are
    those that are used and not in the settings any more: they keep their last known numbers.
    """

    ok: bool
    outage: OutageShown | None = None
    clock: ClockShown | None = None
    kept_policies: list[str] = []


class KeptPolicyView(Struct, frozen=True):
    """A policy that is not in the settings any more and keeps its last known numbers."""

    name: str
    count: int  # of the subscriptions that use it
    subscriptions: list[str]  # the first of them


class RefusedEndpoint(Struct, frozen=True):
    """An endpoint whose deliveries wait because changed settings refuse its address."""

    id: str
    tenant: str
    url: str
    refused_at: Time


class CertificateWarningView(Struct, frozen=True):
    """A client certificate that cannot be used, or expires within 30 days."""

    tenant: Annotated[str | None, Meta(description="Null: it is the installation's.")]
    subscription: Annotated[str | None, Meta(description="Null: it is in a file.")]
    file: str | None
    subject: str | None
    expires_at: Time | None
    problem: Annotated[str, Meta(description="Why it cannot be used; empty: it can.")]


class EgressView(Struct, frozen=True):
    """The addresses that requests to receivers come from."""

    addresses: Annotated[
        list[str], Meta(description="Networks like 203.0.113.7/32, as the operator has set them.")
    ]


class CommitLossView(Struct, frozen=True):
    """What one process noticed of commits that a failover has lost."""

    noticed_at: str
    process: str
    kind: str  # publish, settle, catalog or leases
    lost_from: str | None  # commits may be missing since then; null: unknown
    lost_upto: str
    missing: str  # in words, with what to do


class LostCommitsView(Struct, frozen=True):
    """Losses, newest first."""

    items: list[CommitLossView]
    holding: bool  # publishes are refused until an operator confirms


class StatusView(Struct, frozen=True):
    """One process at this moment; counters count from its start."""

    version: str
    outage: OutageShown
    clock: ClockShown
    draining: bool
    store_ok: bool
    late_ms: int  # how long a delivery has been due although a slot is free
    slots: dict[str, int]
    in_flight: dict[str, int]
    ready: dict[str, int]
    unsettled: int
    endpoints: dict[str, int]
    published: int
    accepted: int
    finished: dict[str, int]
    memory_bytes: int
    refused_endpoints: list[RefusedEndpoint]  # of all processes, the last 20
    kept_policies: list[KeptPolicyView]  # used, and not in the settings any more
    certificates: list[CertificateWarningView]  # the 20 that expire first
    lost_commits: list[CommitLossView]  # of all processes, until an operator confirms them
