"""The nouns: frozen values, ids, and the words for status, state, lane and outcome.

Ids are 63-bit integers in order of time: 42 bits of Unix milliseconds, 7 bits for the process
that made them, 14 bits of counter. They are small keys for the store and carry their age.
People see them with a prefix and in Crockford's base 32: ``dlv_01k9x3w8z4g00``.
An event's public id is the publisher's own text, or ``evt_…`` where none was given.

All times are integer milliseconds UTC.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum

from msgspec import Struct

NODE_BITS = 7
COUNTER_BITS = 14
_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
_CROCKFORD_PAIRS = tuple(a + b for a in _CROCKFORD for b in _CROCKFORD)
_CROCKFORD_VALUE = {char: value for value, char in enumerate(_CROCKFORD)}
_ID_CHARS = 13


class Word(StrEnum):
    """A word of the contract. It hashes as its text does: that of an Enum is Python, and hot."""

    __hash__ = str.__hash__


class Status(Word):
    """Of a delivery."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DROPPED = "dropped"
    CANCELLED = "cancelled"


class Reason(Word):
    """Why a delivery was dropped or cancelled."""

    EXHAUSTED = "exhausted"
    EXPIRED = "expired"
    BY_PERSON = "by_person"
    SUBSCRIPTION_DELETED = "subscription_deleted"


class State(Word):
    """Of an endpoint."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    FROZEN = "frozen"


class Outcome(Word):
    """What an attempt means."""

    DELIVERED = "delivered"
    FAILED = "failed"
    OURS = "ours"


class Lane(Word):
    """The two lanes, and the two kinds of attempt that go around them."""

    FRESH = "fresh"
    RETRY = "retry"
    PROBE = "probe"
    TEST = "test"


class Format(Word):
    """How an event is written into a request body."""

    STANDARD = "standard"
    RAW = "raw"
    CLOUDEVENTS = "cloudevents"
    WORKFRONT = "workfront"


class Connector(Word):
    """Whether all filters must hold, or one."""

    AND = "AND"
    OR = "OR"


class Failure(Word):
    """Why there was no usable answer; the last group is our own trouble (outcome ``ours``)."""

    TIMEOUT = "timeout"
    CONNECT_TIMEOUT = "connect_timeout"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    RESET = "reset"
    CLOSED = "closed"
    TLS = "tls"
    DNS = "dns"
    BAD_ANSWER = "bad_answer"
    ANSWER_TOO_LARGE = "answer_too_large"
    FORBIDDEN_ADDRESS = "forbidden_address"

    OUR_DNS = "our_dns"
    OUR_NETWORK = "our_network"
    OUR_LIMITS = "our_limits"
    OUR_TLS = "our_tls"
    OUR_FAULT = "our_fault"


PART_FIRST = 0  # never attempted, not a replay: fresh, unless it was held back first
PART_REPLAY = 1  # never attempted, and due at its own time: a replay, or one that waits its turn
PART_TRIED = 2  # attempted at least once


def id_floor(at_ms: int) -> int:
    """The smallest id that can have been made at this time."""
    return at_ms << (NODE_BITS + COUNTER_BITS)


def id_time(number: int) -> int:
    """When this id was made, in Unix milliseconds."""
    return number >> (NODE_BITS + COUNTER_BITS)


class Ids:
    """Makes ids that never repeat and never go back, also when the clock does."""

    def __init__(self, *, node: int = 0, after: int = 0) -> None:
        assert 0 <= node < (1 << NODE_BITS)
        self._node = node
        self._ms = id_time(after) + 1 if after else 0
        self._counter = 0

    def take(self, now_ms: int) -> int:
        """One new id."""
        if now_ms > self._ms:
            self._ms, self._counter = now_ms, 0
        elif self._counter >> COUNTER_BITS:
            self._ms, self._counter = self._ms + 1, 0
        number = id_floor(self._ms) | (self._node << COUNTER_BITS) | self._counter
        self._counter += 1
        return number


def show_id(prefix: str, number: int) -> str:
    """``show_id("dlv", 5)`` is ``dlv_0000000000005``."""
    pairs = _CROCKFORD_PAIRS  # It is on the hot path: two characters at a time.
    return (
        f"{prefix}_{_CROCKFORD[number >> 60]}{pairs[number >> 50 & 1023]}"
        f"{pairs[number >> 40 & 1023]}{pairs[number >> 30 & 1023]}"
        f"{pairs[number >> 20 & 1023]}{pairs[number >> 10 & 1023]}{pairs[number & 1023]}"
    )


def read_id(prefix: str, text: str) -> int | None:
    """The number behind a shown id, or None if it is not one of this prefix."""
    head, _, tail = text.partition("_")
    if head != prefix or len(tail) != _ID_CHARS:
        return None
    number = 0
    for char in tail:
        value = _CROCKFORD_VALUE.get(char)
        if value is None:
            return None
        number = number << 5 | value
    return number if number < 1 << 63 else None


def content_hash(kind: str, given_time: str, data: bytes) -> bytes:
    """What must be equal for the same id to be the same event: type, the time given, data."""
    return hashlib.blake2b(f"{kind}\0{given_time}\0".encode() + data, digest_size=16).digest()


def bucket_of(tenant: str, url: str) -> int:
    """The fixed part (0 to 255) of all endpoints that this one belongs to."""
    return hashlib.sha256(tenant.encode() + b"\0" + url.encode()).digest()[0]


class Event(Struct, frozen=True, gc=False, array_like=True):
    """A fact, published once, immutable. ``id`` is ours; ``key`` is what people see."""

    id: int
    tenant: str
    key: str
    type: str
    time: str  # RFC 3339, as the publisher wrote it
    accepted_at: int
    data: bytes  # JSON, byte for byte as it came


class Delivery(Struct, frozen=True, gc=False, array_like=True):
    """The duty to bring one event to one subscription; a pending row."""

    id: int
    bucket: int
    tenant: str
    endpoint_id: int
    subscription_id: int
    event_id: int
    root_id: int  # the first delivery of this event to this subscription: its webhook-id
    accepted_at: int
    due_at: int
    expires_at: int  # the end of its window
    t0: int | None = None  # the anchor of its schedule, known from its first failure on
    retry: int = 0  # the n of the retry it waits for; 0 before its first attempt
    attempts: int = 0  # attempts settled, probes included
    ours: int = 0  # attempts in a row that failed by our own trouble
    replay: bool = False

    @property
    def part(self) -> int:
        if self.attempts:
            return PART_TRIED
        later = self.replay or self.due_at > self.accepted_at
        return PART_REPLAY if later else PART_FIRST


class Work(Struct, frozen=True, gc=False):
    """A delivery with the event it carries: all an attempt needs from the store."""

    delivery: Delivery
    event: Event


class Secret(Struct, frozen=True):
    """A signing secret (``whsec_…``); ``until`` is set while it is being rotated out."""

    value: str
    until: int | None = None

    def __repr__(self) -> str:
        return "Secret(****)"


class Workfront(Struct, frozen=True):
    """What a subscription has that was made through the Workfront door."""

    version: str = "v2"
    version_at: int | None = None  # when it was last changed
    base64: bool = False
    object_id: str | None = None  # only events of this object
    twin_of: int | None = None  # it stands in for the old version of this one,
    until: int | None = None  # to this time


class Subscription(Struct, frozen=True):
    """A standing request: these events of this tenant go to this URL."""

    id: int
    tenant: str
    endpoint_id: int
    url: str
    types: tuple[str, ...]  # exact, "a.*", or "*"
    format: Format
    secrets: tuple[Secret, ...]
    created_at: int
    updated_at: int
    version: int  # of the catalog, when it last changed
    token: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    policy: str | None = None
    deadline_ms: int | None = None
    rate_per_second: float | None = None
    active: bool = True
    description: str = ""
    deleted_at: int | None = None
    filters: str = "[]"  # JSON, as they were given
    connector: Connector = Connector.AND
    workfront: Workfront | None = None

    def __repr__(self) -> str:
        return f"Subscription({show_id('sub', self.id)}, {self.url})"


class Health(Struct, frozen=True, array_like=True):
    """What the rules know of an endpoint. Counters are explained in contract words in the docs."""

    state: State
    since: int  # of this state
    enabled_since: int  # last time it became enabled (at first: its creation)
    attempts: int = 0
    failures: int = 0
    consecutive_failures: int = 0
    first_attempt_at: int | None = None
    last_success_at: int | None = None
    manual_enable_at: int | None = None
    warned: int = 0  # bits of the warnings given since they could last be taken back


class Endpoint(Struct, frozen=True, array_like=True):
    """A subscription URL of one tenant with its health."""

    id: int
    bucket: int
    tenant: str
    url: str
    created_at: int
    generation: int  # raised by every command from outside the settling process
    health: Health
    next_probe_at: int | None = None  # only while disabled
    probe_after_id: int = 0  # the delivery last probed; the next round goes on after it
    hold_until: int = 0  # Retry-After
    dropped_unreported: int = 0  # drops since the last homing.delivery.dropped
    dropped_reported_at: int = 0
    rule: str = ""  # which rule, or person, brought it into its state


class Transition(Struct, frozen=True, array_like=True):
    """A recorded change of an endpoint's state."""

    id: int
    endpoint_id: int
    at: int
    before: State
    after: State
    rule: str  # "failure_rate", "consecutive_failures", "no_success", "success", "person", …
    numbers: dict[str, int]
    by: str = ""  # who, when a person did it


class Phases(Struct, frozen=True, gc=False, array_like=True):
    """Where the time of an attempt went, in microseconds; None where a phase did not happen."""

    dns_us: int | None = None
    connect_us: int | None = None
    tls_us: int | None = None
    first_byte_us: int | None = None
    total_us: int = 0


class Decided(Word):
    """What followed from an attempt."""

    DELIVERED = "delivered"
    RETRY = "retry"
    UNCHANGED = "unchanged"  # a probe failed: its delivery keeps its schedule
    DROPPED = "dropped"
    CANCELLED = "cancelled"  # it had been cancelled meanwhile
    WAIT = "wait"  # our own trouble: again shortly, nothing spent
    NOTHING = "nothing"  # a test send


class Attempt(Struct, frozen=True, gc=False, array_like=True):
    """One HTTP request made for a delivery, as logged."""

    delivery_id: int
    number: int
    endpoint_id: int
    subscription_id: int
    lane: Lane
    started_at: int
    finished_at: int
    outcome: Outcome
    code: int | None
    failure: Failure | None
    detail: str  # one line for people; never a secret
    address: str | None
    phases: Phases
    request_headers: bytes  # header lines as sent, secrets masked
    answer_headers: bytes
    excerpt: bytes  # of a failing answer's body, at most 1 KiB
    decided: Decided
    due_at: int | None = None  # when decided is retry or wait
    retry: int = 0


class Finished(Struct, frozen=True, gc=False, array_like=True):
    """A delivery that needs nothing more; a history row."""

    delivery: Delivery
    status: Status
    reason: Reason | None
    finished_at: int
    arrived: bool = False  # cancelled, but an attempt in flight was answered with 2xx


class Target(Struct, frozen=True, cache_hash=True):
    """A normalised URL in the parts that a request needs."""

    scheme: str  # "http" or "https"
    host: str  # ASCII name, IPv4, or IPv6 without brackets
    port: int
    path: str  # with the query; begins with "/"
    authority: str  # as the Host header shows it
