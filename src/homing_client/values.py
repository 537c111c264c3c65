"""What the API returns, as frozen values, and what callers may pass, as typed keywords.

Responses are read with tolerance: an unknown field is ignored, and closed sets (status, state,
outcome, …) stay text, so that a newer server does not break an older client. Times are RFC 3339
text in UTC, as in the API.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypedDict, TypeVar

from msgspec import Raw, Struct

from homing_client.subscription import PublicKey, Subscription

T = TypeVar("T")

Status = Literal["pending", "delivered", "dropped", "cancelled", "superseded"]
State = Literal["enabled", "disabled", "frozen"]
Role = Literal["admin", "publisher", "manager", "viewer", "metrics"]


class Page(Struct, Generic[T], frozen=True):
    """A page of a list, newest first; ``next_cursor`` is None at the end."""

    items: tuple[T, ...]
    next_cursor: str | None = None


# --- events ---------------------------------------------------------------------------------


class Event(Struct, frozen=True, kw_only=True):
    """An event to publish.

    ``data`` is any JSON value; a ``msgspec.Raw`` holds JSON that is sent byte for byte. ``key`` is
    the object that the event is about, by which subscriptions may ask for order.
    """

    type: str
    data: Any
    id: str | None = None
    tenant: str | None = None
    time: str | None = None
    key: str | None = None


class Receipt(Struct, frozen=True):
    """An accepted event, and the number of subscriptions that it is delivered to.

    ``duplicate`` is True if an event with this id was published before: nothing new is sent. It is
    also True if the response to an earlier attempt of the same call was lost on its way.
    """

    id: str
    deliveries: int
    duplicate: bool = False
    warning: str = ""  # why its data does not match its event type; empty: it does


class EventSummary(Struct, frozen=True, kw_only=True):
    """An event without its data."""

    id: str
    tenant: str
    type: str
    time: str
    accepted_at: str
    deliveries: int
    key: str | None = None


class ReadEvent(Struct, frozen=True, kw_only=True):
    """An event that was read from a subscription without a URL; ``cursor`` acknowledges it."""

    id: str
    type: str
    time: str
    accepted_at: str
    data: Any
    cursor: str
    key: str | None = None


class EventsRead(Struct, frozen=True, kw_only=True):
    """The next events of a subscription, in the order of acceptance.

    ``cursor`` acknowledges all of them; ``lag`` is the number of events that follow.
    """

    events: tuple[ReadEvent, ...]
    cursor: str
    lag: int = 0


class Reader(Struct, frozen=True, kw_only=True):
    """A reader of a subscription; ``lag`` is the number of events it has not acknowledged."""

    name: str
    cursor: str
    lag: int
    created_at: str
    acked_at: str | None = None


class Failure(Struct, frozen=True):
    """Why an attempt failed: a failure class, a sub-reason, a status code; ``title`` in words."""

    failure: str
    reason: str = ""
    code: int | None = None
    title: str = ""


class Delivery(Struct, frozen=True, kw_only=True):
    """A delivery in a list."""

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
    last_failure: Failure | None = None
    accepted_at: str
    due_at: str | None = None
    expires_at: str | None = None
    finished_at: str | None = None
    arrived: bool = False
    key: str | None = None


class UnmatchedSubscription(Struct, frozen=True, kw_only=True):
    """A subscription that an event is not delivered to, and the reason."""

    subscription: str
    url: str
    reason: str


class EventDetail(Struct, frozen=True, kw_only=True):
    """An event with its data and its first deliveries."""

    id: str
    tenant: str
    type: str
    time: str
    accepted_at: str
    data: Raw
    deliveries: tuple[Delivery, ...]
    key: str | None = None
    context: dict[str, str | bool | int] | None = None
    warning: str | None = None
    deliveries_more: bool = False
    unmatched: tuple[UnmatchedSubscription, ...] = ()
    unmatched_more: bool = False


# --- event types ----------------------------------------------------------------------------


Check = Literal["off", "warn", "refuse"]


class EventType(Struct, frozen=True, kw_only=True):
    """A type of events; ``check`` is None if the setting ``event_check`` says what happens."""

    name: str
    tenant: str
    description: str
    schema: Raw
    sample: Raw
    check: str | None
    created_at: str
    updated_at: str


class EventTypeChanges(TypedDict, total=False):
    """The fields of an event type to change."""

    description: str
    schema: Any
    sample: Any
    check: Check | None


class EventTypeSummary(Struct, frozen=True, kw_only=True):
    """A type of events without its schema and sample."""

    name: str
    tenant: str
    description: str
    has_schema: bool
    has_sample: bool
    check: str | None
    updated_at: str


# --- subscriptions --------------------------------------------------------------------------


class _SubscriptionWithSecret(Subscription, frozen=True, kw_only=True):
    secret: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, url={self.url!r}, secret=****)"


class BackfillStarted(Struct, frozen=True, kw_only=True):
    """The job that delivers past events to a new subscription; ``exact`` is false if more match.

    ``replay_job(id)`` shows its progress, and ``cancel_replay(id)`` stops it.
    """

    id: str
    count: int
    exact: bool


class NewSubscription(_SubscriptionWithSecret, frozen=True, kw_only=True):
    """A new subscription with its secret: keep the secret, the API never shows it again."""

    backfill: BackfillStarted | None = None  # None: it does not start in the past


class RotatedSubscription(_SubscriptionWithSecret, frozen=True, kw_only=True):
    """A subscription with its new secret; ``secrets`` says until when the old ones sign."""


class SigningKeys(Struct, frozen=True, kw_only=True):
    """The public keys of a tenant, newest first; ``jwks`` is the path of its JWK set."""

    tenant: str
    keys: tuple[PublicKey, ...]
    jwks: str


class CommitLoss(Struct, frozen=True, kw_only=True):
    """What one process noticed of commits that a failover of the database has lost."""

    noticed_at: str
    process: str
    kind: str
    lost_from: str | None
    lost_upto: str
    missing: str


class LostCommits(Struct, frozen=True, kw_only=True):
    """Losses, newest first; while ``holding``, events are refused until they are confirmed."""

    items: tuple[CommitLoss, ...]
    holding: bool


# --- filters --------------------------------------------------------------------------------


class ConditionResult(Struct, frozen=True, kw_only=True):
    """A condition of filters that were tried; ``decided`` if the result depends on it."""

    at: str
    field: str
    op: str
    state: str | None = None
    value: Any = None
    holds: bool
    decided: bool
    sentence: str


class FilterResult(Struct, frozen=True, kw_only=True):
    """Whether filters match, and which condition decided."""

    matches: bool
    sentence: str
    conditions: tuple[ConditionResult, ...] = ()
    event: str | None = None


class FilterInput(TypedDict, total=False):
    """What filters are tried on: data, an event, or the newest event (of a type); and how."""

    data: Any
    event: str
    type: str
    filter_connector: str


# --- attempts and deliveries ----------------------------------------------------------------


class Phases(Struct, frozen=True):
    """The phases of an attempt in microseconds; None for a phase that did not happen."""

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
    response_headers: tuple[str, ...]
    excerpt: str
    decided: str
    retry: int | None = None
    due_at: str | None = None


class AttemptLine(Struct, frozen=True, kw_only=True):
    """An attempt in the stream of attempts."""

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
    """Attempts, oldest first; ``next_cursor`` continues with those that come later."""

    items: tuple[AttemptLine, ...]
    next_cursor: str
    missed: int = 0


class AttemptsWhere(TypedDict, total=False):
    """Which attempts; an absent field matches all."""

    tenant: str
    endpoint: str
    subscription: str
    failure: str
    code: int
    until: str


class EndpointAttemptsWhere(TypedDict, total=False):
    """Which attempts of an endpoint; an absent field matches all."""

    outcome: str
    failure: str
    code: int
    since: str
    until: str


class SentencePart(Struct, frozen=True):
    """A part of a sentence; ``time`` is set if the part is a time."""

    text: str
    time: str | None = None


class Retry(Struct, frozen=True):
    """A retry that is still ahead."""

    n: int
    due_at: str


class Policy(Struct, frozen=True):
    """The policy of a delivery: its subscription's, its tenant's or the installation's."""

    name: str
    on_gone: str  # retry or deactivate
    retry_after: str  # obey or ignore


class DeliveryDetail(Delivery, frozen=True, kw_only=True):
    """A delivery with its attempts, the retries ahead, and an explanation of its status."""

    explanation: str
    explanation_parts: tuple[SentencePart, ...] = ()
    waits_for: str | None = None
    superseded_by: str | None = None
    attempts: tuple[Attempt, ...]
    policy: Policy | None = None
    schedule: tuple[Retry, ...]


class DeliveriesWhere(TypedDict, total=False):
    """Which deliveries; an absent field matches all. Times are RFC 3339 or like ``2h``."""

    tenant: str
    status: Status
    reason: str
    endpoint: str
    subscription: str
    event: str
    type: str
    url: str
    failure: str
    code: int
    since: str
    until: str
    finished_since: str
    expiring_within: str


# --- bulk replays ---------------------------------------------------------------------------


class ReplayWhere(TypedDict, total=False):
    """Which finished deliveries; an absent field matches all."""

    status: Status
    reason: str
    endpoint: str
    subscription: str
    event: str
    type: str
    url: str
    failure: str
    code: int
    since: str
    until: str
    finished_since: str
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
    failure: str | None = None
    code: int | None = None
    since: str | None = None
    until: str | None = None
    finished_since: str | None = None
    tenant: str | None = None
    as_of: str | None = None
    backfill: bool = False


class NamedCount(Struct, frozen=True):
    """A status, a tenant or a cause, and how many of the counted deliveries have it."""

    name: str
    count: int


class ReplayCount(Struct, frozen=True):
    """How many deliveries a bulk replay would replay; ``exact`` is false if there are more.

    The same filter with ``as_of`` replays exactly those that were counted.
    """

    count: int
    exact: bool
    as_of: str | None = None
    by_status: list[NamedCount] = []
    by_tenant: list[NamedCount] = []
    by_cause: list[NamedCount] = []


class ReplayJob(Struct, frozen=True, kw_only=True):
    """A bulk replay and its progress."""

    id: str
    state: str
    filter: ReplayFilter
    created_at: str
    scanned: int
    replayed: int
    skipped: int
    waits: str = ""  # why it makes no deliveries for now; empty if it does


# --- erasures -------------------------------------------------------------------------------


class Erasure(Struct, frozen=True, kw_only=True):
    """An erasure and its progress; ``more``: other events match, too, and are not erased."""

    id: str
    tenant: str
    kind: Literal["event", "field", "tenant"]
    field: str | None
    state: Literal["running", "done"]
    more: bool
    events: int
    deliveries: int
    cancelled: int
    created_at: str
    finished_at: str | None


# --- endpoints ------------------------------------------------------------------------------


class Counter(Struct, frozen=True):
    """A number that the health rules compare with a limit."""

    name: str
    value: int
    limit: int | None = None
    meaning: str = ""


class Transition(Struct, frozen=True, kw_only=True):
    """A state change of an endpoint."""

    at: str
    before: str
    after: str
    rule: str
    numbers: dict[str, int]
    by: str
    sentence: str


class CauseSummary(Struct, frozen=True, kw_only=True):
    """Why attempts of an endpoint fail, since when, and how often."""

    id: str
    failure: str
    reason: str
    code: int | None
    title: str
    open: bool
    first_seen: str
    last_seen: str
    closed_at: str | None
    attempts: int
    deliveries: int


class Cause(CauseSummary, frozen=True, kw_only=True):
    """A cause with its endpoint and its latest failed attempt."""

    tenant: str
    endpoint: str
    url: str
    state: str
    attempts_in_all: int
    sentence: str
    sentence_parts: tuple[SentencePart, ...] = ()
    waiting: int
    waiting_more: bool
    example_delivery: str
    example: Attempt | None


class CausesWhere(TypedDict, total=False):
    """Which causes; an absent field matches all."""

    tenant: str
    endpoint: str
    open: bool


class Endpoint(Struct, frozen=True, kw_only=True):
    """A subscription URL of one tenant with its health."""

    id: str
    tenant: str
    url: str
    state: str
    since: str
    rule: str
    sentence: str
    sentence_parts: tuple[SentencePart, ...] = ()
    counters: tuple[Counter, ...]
    first_attempt_at: str | None
    last_success_at: str | None
    enabled_since: str
    next_probe_at: str | None
    hold_until: str | None
    causes: tuple[CauseSummary, ...] = ()
    created_at: str


class EndpointDetail(Endpoint, frozen=True, kw_only=True):
    """An endpoint with the number of waiting deliveries and its latest state changes."""

    waiting: int
    waiting_more: bool
    transitions: tuple[Transition, ...]


class EndpointsWhere(TypedDict, total=False):
    """Which endpoints; an absent field matches all."""

    tenant: str
    state: State


# --- API keys -------------------------------------------------------------------------------


class Key(Struct, frozen=True, kw_only=True):
    """An API key without its secret; ``tenant`` is None if it is valid for all tenants."""

    id: str
    name: str
    role: str
    tenant: str | None
    prefix: str
    created_at: str
    expires_at: str | None = None
    last_used_at: str | None = None
    revoked_at: str | None = None


class NewKey(Key, frozen=True, kw_only=True):
    """A new API key with its secret (``key``): keep it, the API never shows it again."""

    key: str

    def __repr__(self) -> str:
        return f"NewKey(id={self.id!r}, name={self.name!r}, key=****)"


# --- the customer portal ----------------------------------------------------------------------

PortalRole = Literal["viewer", "manager"]
PortalTheme = Literal["auto", "light", "dark"]


class PortalLink(Struct, frozen=True, kw_only=True):
    """A link to the customer portal and its session."""

    id: str
    tenant: str
    role: str
    subject: str
    state: str
    made_by: str
    created_at: str
    opens_until: str
    opened_at: str | None = None
    session_until: str | None = None
    revoked_at: str | None = None


class NewPortalLink(PortalLink, frozen=True, kw_only=True):
    """A new link with its URL, which opens once: the API never shows it again."""

    url: str

    def __repr__(self) -> str:
        return f"NewPortalLink(id={self.id!r}, tenant={self.tenant!r}, url=****)"


class PortalLogo(Struct, frozen=True, kw_only=True):
    """The logo of a portal, without its content."""

    type: str
    bytes: int
    digest: str


class Portal(Struct, frozen=True, kw_only=True):
    """How the customer portal of a tenant looks, and which sites may show it in a frame."""

    tenant: str
    name: str
    accent_color: str
    header_color: str
    theme: str
    frame_ancestors: tuple[str, ...]
    logo: PortalLogo | None = None
    updated_at: str | None = None


# --- the audit log --------------------------------------------------------------------------


class AuditWho(Struct, frozen=True, kw_only=True):
    """The caller of a change: the name and id of the key, the person, the address."""

    name: str
    key: str | None = None
    person: str = ""
    address: str = ""


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One change, or calls of one minute: refused ones, and frequent changes."""

    id: str
    at: str
    tenant: str | None
    who: AuditWho
    action: str
    object: str
    before: Any = None
    after: Any = None
    refused: str = ""
    count: int = 1
    segment: int | None = None


class AuditSegment(Struct, frozen=True, kw_only=True):
    """A segment of the audit log, and what is wrong with it."""

    number: int
    entries: int
    first_at: str
    last_at: str
    hash: str
    problems: list[str]


class AuditVerified(Struct, frozen=True, kw_only=True):
    """A few segments; ``next_after`` is None at the end of the log."""

    segments: list[AuditSegment]
    problems: list[str]
    removed_segments: int
    removed_entries: int
    next_after: int | None


class AuditWhere(TypedDict, total=False):
    """Which entries of the audit log to list."""

    tenant: str
    who: str
    action: str
    object: str
    since: str
    until: str


# --- notices --------------------------------------------------------------------------------

TargetKind = Literal["email", "slack", "teams", "webhook"]
NoticeKind = Literal[
    "warning",
    "disabled",
    "frozen",
    "reminder",
    "recovered",
    "first_drop",
    "certificate",
    "gone",
    "outage",
    "outage_over",
    "commits_lost",
]
LanguageCode = Literal["en", "nl", "it", "ja", "zh"]


class NoticeTarget(Struct, frozen=True, kw_only=True):
    """Where people get notices; ``tenant`` is None if it belongs to the operator."""

    id: str
    tenant: str | None
    kind: str
    name: str
    address: str
    notices: tuple[str, ...] = ()
    quiet_hours: str = ""
    time_zone: str = "UTC"
    language: str = "en"
    created_at: str
    confirmed_at: str | None = None
    sent_at: str | None = None
    failures: int = 0
    error: str = ""


class NewNoticeTarget(NoticeTarget, frozen=True, kw_only=True):
    """A new target; a webhook has a secret: keep it, the API never shows it again."""

    secret: str | None = None

    def __repr__(self) -> str:
        return f"NewNoticeTarget(id={self.id!r}, kind={self.kind!r}, secret=****)"


class NoticeTested(Struct, frozen=True, kw_only=True):
    """Whether a test notice arrived, and why not."""

    arrived: bool
    error: str = ""


class Notice(Struct, frozen=True, kw_only=True):
    """A notice for one target."""

    id: str
    target: str
    kind: str
    at: str
    tenant: str | None = None
    endpoint: str | None = None
    url: str | None = None
    text: str = ""
    status: str
    reason: str = ""
    message: str | None = None
    sent_at: str | None = None


# --- the server -----------------------------------------------------------------------------


class SearchHit(Struct, frozen=True, kw_only=True):
    """One thing that a search found; ``kind`` says what it is."""

    kind: str
    id: str
    tenant: str | None
    title: str
    status: str | None = None
    at: str | None = None


class SearchExample(Struct, frozen=True):
    """A text that finds something, and what it finds."""

    q: str
    finds: str


class SearchResult(Struct, frozen=True, kw_only=True):
    """What a text names; ``notes`` say why something may be missing."""

    items: tuple[SearchHit, ...]
    more: bool = False
    notes: tuple[str, ...] = ()
    examples: tuple[SearchExample, ...] = ()


class Ledger(Struct, frozen=True, kw_only=True):
    """Counts of one tenant: accepted is the sum of the statuses."""

    tenant: str
    accepted: int
    delivered: int
    pending: int
    dropped: int
    cancelled: int
    superseded: int = 0
    counted: bool
    balanced: bool


class Outage(Struct, frozen=True, kw_only=True):
    """Sender-outage detection: while it is ``confirmed``, the server sends only canaries."""

    state: str  # off, none, suspected or confirmed
    since: str | None = None
    why: str = ""
    waiting: int = 0
    canaries: int = 0
    outages: int = 0


class RefusedEndpoint(Struct, frozen=True):
    """An endpoint whose deliveries wait because changed settings refuse its address."""

    id: str
    tenant: str
    url: str
    refused_at: str


class CertificateWarning(Struct, frozen=True):
    """A client certificate that cannot be used, or expires within 30 days."""

    problem: str
    tenant: str | None = None
    subscription: str | None = None
    file: str | None = None
    subject: str | None = None
    expires_at: str | None = None


class KeptPolicy(Struct, frozen=True):
    """A policy that is not in the settings any more and keeps its last known numbers."""

    name: str
    count: int  # of the subscriptions that use it
    subscriptions: tuple[str, ...]  # the first of them


class ServerStatus(Struct, frozen=True, kw_only=True):
    """The current state of the process that responded."""

    version: str
    outage: Outage
    draining: bool
    store_ok: bool
    late_ms: int
    slots: dict[str, int]
    in_flight: dict[str, int]
    ready: dict[str, int]
    unsettled: int
    endpoints: dict[str, int]
    published: int
    accepted: int
    finished: dict[str, int]
    memory_bytes: int
    refused_endpoints: tuple[RefusedEndpoint, ...] = ()
    kept_policies: tuple[KeptPolicy, ...] = ()
    certificates: tuple[CertificateWarning, ...] = ()
    lost_commits: tuple[CommitLoss, ...] = ()


class EgressAddresses(Struct, frozen=True):
    """The addresses that requests to receivers come from."""

    addresses: list[str]
