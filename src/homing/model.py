"""The values of the domain: all frozen; ids; and the words for status, state, lane and outcome.

Ids are 63-bit integers in order of time: 42 bits of Unix milliseconds, 7 bits for the process
that made them, 14 bits of counter. They are small keys for the store and carry their age.
People see them with a prefix and in Crockford's base 32: ``dlv_01k9x3w8z4g00``.
An event's public id is the publisher's own text, or ``evt_…`` where none was given.

All times are integer milliseconds UTC.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any, get_type_hints

from msgspec import Struct
from msgspec.structs import fields as struct_fields
from msgspec.structs import replace

from homing.languages.sentences import Sentence, say, unpack

ID_BITS = 21  # of an id below its time: for the ids of all nodes in one millisecond
WIDE_NODES = 64  # the first nodes make 16,384 ids in a millisecond each, the others 512
NODES = WIDE_NODES + 2_048
NOT_BOUND = (1 << 63) - 1  # instead of the last id that something is about: it is not read yet
_WIDE_BITS, _NARROW_BITS = 14, 9  # of the ids that a node makes in a millisecond
_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
_CROCKFORD_PAIRS = tuple(a + b for a in _CROCKFORD for b in _CROCKFORD)
_CROCKFORD_VALUE = {char: value for value, char in enumerate(_CROCKFORD)}
_ID_CHARS = 13


class TextEnum(StrEnum):
    """A closed set of texts. A member hashes as its text does: the hash of an Enum is slow."""

    __hash__ = str.__hash__


class Status(TextEnum):
    """The status of a delivery."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DROPPED = "dropped"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"  # a newer event of its key was accepted, and it was not sent


class Reason(TextEnum):
    """Why a delivery was dropped or cancelled."""

    EXHAUSTED = "exhausted"
    EXPIRED = "expired"
    BY_PERSON = "by_person"
    SUBSCRIPTION_DELETED = "subscription_deleted"
    GONE = "gone"  # the receiver responded with 410, and its policy obeys that


class State(TextEnum):
    """The state of an endpoint."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    FROZEN = "frozen"


class Outcome(TextEnum):
    """The result of an attempt; ``sender_error`` is a failure on the side of the sender."""

    DELIVERED = "delivered"
    FAILED = "failed"
    SENDER_ERROR = "sender_error"


class Lane(TextEnum):
    """The two lanes, and the two kinds of attempt that use neither."""

    FRESH = "fresh"
    RETRY = "retry"
    PROBE = "probe"
    TEST = "test"


class Format(TextEnum):
    """How an event is written into a request body."""

    STANDARD = "standard"
    RAW = "raw"
    CLOUDEVENTS = "cloudevents"
    CLOUDEVENTS_BINARY = "cloudevents-binary"
    WORKFRONT = "workfront"


class Signature(TextEnum):
    """How the requests of a subscription are signed."""

    HMAC = "hmac"  # v1 of Standard Webhooks, with the secret of the subscription
    ED25519 = "ed25519"  # v1a, with the signing key of the tenant
    BOTH = "both"


class Verification(TextEnum):
    """How a receiver proves that it owns its URL, before the first delivery."""

    NONE = "none"
    CHALLENGE = "challenge"
    CLOUDEVENTS = "cloudevents"


class Order(TextEnum):
    """In which order the deliveries of one subscription whose events have the same key are sent."""

    NONE = "none"
    KEY = "key"  # one after the other, in the order of acceptance
    LATEST = "latest"  # only the newest one


class Connector(TextEnum):
    """Whether all filters must hold, or one."""

    AND = "AND"
    OR = "OR"


class OAuthMethod(TextEnum):
    """How a client of OAuth 2.0 proves to the token endpoint who it is."""

    CLIENT_SECRET_BASIC = "client_secret_basic"  # noqa: S105 - the name of a method
    CLIENT_SECRET_POST = "client_secret_post"  # noqa: S105 - the name of a method
    PRIVATE_KEY_JWT = "private_key_jwt"


class Failure(TextEnum):
    """Why there was no usable response; the last group are sender-side failures."""

    TIMEOUT = "timeout"
    CONNECT_TIMEOUT = "connect_timeout"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    RESET = "reset"
    CLOSED = "closed"
    TLS = "tls"
    DNS = "dns"
    BAD_RESPONSE = "bad_response"
    RESPONSE_TOO_LARGE = "response_too_large"
    FORBIDDEN_ADDRESS = "forbidden_address"
    TOKEN = "token"  # noqa: S105 - the OAuth token endpoint gave no access token

    SENDER_DNS = "sender_dns"
    SENDER_NETWORK = "sender_network"
    SENDER_LIMITS = "sender_limits"
    SENDER_TLS = "sender_tls"
    SENDER_FAULT = "sender_fault"
    SENDER_TOKEN = "sender_token"  # noqa: S105 - the sender could not ask the token endpoint
    SENDER_CERTIFICATE = "sender_certificate"  # the client certificate cannot be used
    SENDER_PROXY = "sender_proxy"  # the proxy is away, or refuses this installation
    SENDER_TUNNEL = "sender_tunnel"  # the proxy is there, and did not reach the target


PART_FIRST = 0  # never attempted, not a replay, due when it was accepted
PART_REPLAY = 1  # never attempted, due later: a replay, or a delivery that was held back
PART_TRIED = 2  # attempted at least once
PART_FAIR = 16  # this and higher: as PART_FIRST, by fair group (``policy.fair``)
PART_BLOCKED = -1  # this and lower (by fair group): blocked, so that nothing reads it to send it


def is_first_part(part: int) -> bool:
    """Whether the rows of this part are first attempts, which stand in the order of acceptance."""
    return part == PART_FIRST or part >= PART_FAIR


def id_floor(at_ms: int) -> int:
    """The smallest id that can have been made at this time."""
    return at_ms << ID_BITS


def id_time(number: int) -> int:
    """When this id was made, in Unix milliseconds."""
    return number >> ID_BITS


class Ids:
    """Makes ids that never repeat and always grow, also when the clock goes back."""

    def __init__(self, *, node: int = 0, after: int = 0) -> None:
        assert 0 <= node < NODES
        self._first, self._count = node << _WIDE_BITS, 1 << _WIDE_BITS
        if node >= WIDE_NODES:
            narrow = node - WIDE_NODES << _NARROW_BITS
            self._first, self._count = (WIDE_NODES << _WIDE_BITS) + narrow, 1 << _NARROW_BITS
        self._by_clock = False  # else ids were ahead of the clock before the start
        self._begin(id_time(after) + 1 if after else 0)

    def _begin(self, ms: int) -> None:
        """Take the next ids from those of this millisecond."""
        self._ms = ms
        self._next = id_floor(ms) + self._first
        self._end = self._next + self._count

    def take(self, now_ms: int) -> int:
        """One new id."""
        if now_ms > self._ms:
            self._by_clock = True
            self._begin(now_ms)
        elif self._next == self._end:
            self._begin(self._ms + 1)
        number = self._next
        self._next = number + 1
        return number

    def ahead_ms(self, now_ms: int) -> int:
        """How far the last ids are ahead of the clock, because very many were taken at once."""
        return max(self._ms - now_ms, 0) if self._by_clock else 0


def show_id(prefix: str, number: int) -> str:
    """``show_id("dlv", 5)`` is ``dlv_0000000000005``."""
    pairs = _CROCKFORD_PAIRS  # Two characters at a time: this is on the hot path.
    return (
        f"{prefix}_{_show_high(number >> 30)}"
        f"{pairs[number >> 20 & 1023]}{pairs[number >> 10 & 1023]}{pairs[number & 1023]}"
    )


@lru_cache(maxsize=256)  # Ids of the same half second begin alike.
def _show_high(number: int) -> str:
    pairs = _CROCKFORD_PAIRS
    return (
        f"{_CROCKFORD[number >> 30]}{pairs[number >> 20 & 1023]}"
        f"{pairs[number >> 10 & 1023]}{pairs[number & 1023]}"
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


def content_hash(
    kind: str, given_time: str, data: bytes, context: str = "", order_key: str = ""
) -> bytes:
    """Events with the same id are the same event if this hash of what was published is."""
    digest = hashlib.blake2b(f"{kind}\0{given_time}\0".encode() + data, digest_size=16)
    if context:
        digest.update(b"\0" + context.encode())  # No JSON has this byte.
    if order_key:
        digest.update(b"\0key\0" + order_key.encode())
    return digest.digest()


def bucket_of(tenant: str, url: str) -> int:
    """The bucket (0 to 255) that an endpoint belongs to for ever."""
    return hashlib.sha256(tenant.encode() + b"\0" + url.encode()).digest()[0]


class Event(Struct, frozen=True, gc=False, array_like=True):
    """A fact, published once, immutable. ``id`` is internal; ``key`` is the id that people see.

    ``order_key`` is what people call the key of an event: the object that it is about.
    """

    id: int
    tenant: str
    key: str
    type: str
    time: str  # RFC 3339, as the publisher wrote it
    accepted_at: int
    data: bytes  # JSON, byte for byte as it came
    trace: str = ""  # the publisher's traceparent; empty: none
    context: str = ""  # of a CloudEvent: its other attributes, as JSON; see policy.cloudevents
    order_key: str = ""  # the object that it is about; empty: none was named
    warning: str = ""  # why its data does not match its event type; empty: it does


class Delivery(Struct, frozen=True, gc=False, array_like=True):
    """The duty to send one event to one subscription; a pending row."""

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
    t0: int | None = None  # the anchor of its schedule, set by its first failure
    retry: int = 0  # the number of the retry that is next; 0 before the first attempt
    attempts: int = 0  # attempts settled, probes included
    sender_errors: int = 0  # attempts in a row that failed on the side of the sender
    replay: bool = False
    cause_id: int = 0  # the cause of its last failed attempt; 0: none failed
    fair_part: int = PART_FIRST  # its part before its first attempt: higher if it has a fair group
    paused_ms: int = 0  # of the pauses of its subscription: how much its times have moved so far
    order_key: str = ""  # the key of its event
    order_seq: int = 0  # its place among the blocked deliveries of its key; 0: it is not blocked
    unblocked_at: int = 0  # 0: it was never blocked; negative: since the one before was dropped
    position: int = 0  # of its commit in the order of acceptance; 0: it was not read from the store

    @property
    def ready_at(self) -> int:
        """When it could first be sent: it was accepted, or unblocked."""
        return abs(self.unblocked_at) or self.accepted_at

    @property
    def part(self) -> int:
        if self.order_seq:
            return PART_BLOCKED - self.fair_part
        if self.attempts:
            return PART_TRIED
        later = self.replay or self.unblocked_at < 0 or self.due_at > self.ready_at
        return PART_REPLAY if later else self.fair_part

    @property
    def is_first(self) -> bool:
        """Whether it was never attempted, is no replay and was due when it was accepted.

        A delivery that was blocked counts from the moment at which it was unblocked.
        """
        if self.unblocked_at or self.order_seq:
            return self.part == self.fair_part
        return not (self.attempts or self.replay or self.due_at > self.accepted_at)


class Work(Struct, frozen=True, gc=False, array_like=True):
    """A delivery with its event: all that an attempt needs from the store."""

    delivery: Delivery
    event: Event


# --- subscriptions --------------------------------------------------------------------------


class Kind(TextEnum):
    """How a field of a subscription is written in JSON, on the command line and in a form."""

    TEXT = "text"
    WORDS = "words"  # texts without spaces
    NUMBER = "number"
    CHOICE = "choice"  # one of a closed set, or of the names that the installation knows
    FLAG = "flag"
    PAIRS = "pairs"  # a JSON object of texts
    FILTERS = "filters"  # a JSON list of conditions, kept as its text
    PEM = "pem"  # certificates or a key, in lines; on the command line the name of a file


class Field(Struct, frozen=True, kw_only=True):
    """What the API, the store, the forms, the client and the reference need to know of a field."""

    kind: Kind
    label: Sentence  # in the dashboard
    sentence: Sentence  # in OpenAPI, the reference, ``homing subscribe --help`` and the form
    example: str = ""  # shown in an empty form
    api_name: str = ""  # its name in JSON, where that differs
    option: str = ""  # its name on the command line, where that differs; of pairs: of one pair
    unset: str = ""  # what the dashboard shows when there is no value
    group: str = ""  # the dashboard folds up the fields of a group while none of them is set
    secret: bool = False  # encrypted in the store and masked in every response
    masked_whole: bool = False  # of a secret: its last characters are not shown either
    ignore_case: bool = False  # of the names of pairs
    min: float = 0  # of a number
    max: float = 0  # of a number; of words and pairs: of how many there are
    chars_max: int = 0  # of a text, or of the value of a pair
    name_chars_max: int = 0  # of the name of a pair

    # These come from the class below.
    name: str = ""
    type: Any = None
    required: bool = False
    default: Any = None


class SubscriptionSpec(Struct, frozen=True, kw_only=True):
    """The fields of a subscription that people set: the only list of them.

    The draft, the stored row, the requests and responses of the API, the form and the page of the
    dashboard, the options of ``homing subscribe``, the client's values and the reference page are
    made from this list. A field without a column of its own is stored in the column ``settings``.
    Limits that are not in the list are checked in ``policy.admission``.
    """

    url: Annotated[
        str,
        Field(
            kind=Kind.TEXT,
            label=say("URL"),
            sentence=say(
                "Where the events go: an http or https URL. Without one, the events are read from "
                "the subscription and never sent."
            ),
            example="https://example.com/hook",
            unset=say("none: its events are read"),
        ),
    ] = ""
    types: Annotated[
        tuple[str, ...],
        Field(
            kind=Kind.WORDS,
            label=say("Types"),
            sentence=say(
                "Event types: exact like order.paid, a prefix like order.*, or * for all."
            ),
            example="order.paid invoice.*",
            max=100,
        ),
    ]
    filters: Annotated[
        str,
        Field(
            kind=Kind.FILTERS,
            label=say("Filters"),
            sentence=say(
                'Conditions like {"field": "data.amount", "op": "gt", "value": 100}, '
                'Workfront\'s {"fieldName", "fieldValue", "comparison", "state"}, and groups '
                '{"type": "group", "connector", "filters"}; without any, everything matches.'
            ),
            example='[{"field": "data.amount", "op": "gt", "value": 100}]',
            option="filter",
            unset=say("none: every event of these types"),
        ),
    ] = "[]"
    filter_connector: Annotated[
        Connector,
        Field(
            kind=Kind.CHOICE,
            label=say("Connector"),
            sentence=say("Whether all filters must hold (AND) or one (OR)."),
            api_name="filterConnector",
        ),
    ] = Connector.AND
    format: Annotated[
        Format,
        Field(
            kind=Kind.CHOICE,
            label=say("Format"),
            sentence=say("How an event is written into the request body."),
        ),
    ] = Format.STANDARD
    signature: Annotated[
        Signature,
        Field(
            kind=Kind.CHOICE,
            label=say("Signature"),
            sentence=say(
                "How requests are signed: hmac with the secret, ed25519 with the tenant's signing "
                "key, or both."
            ),
        ),
    ] = Signature.HMAC
    policy: Annotated[
        str | None,
        Field(
            kind=Kind.CHOICE,
            label=say("Policy"),
            sentence=say("A retry policy by its name; default: the tenant's."),
            unset=say("the tenant's"),
        ),
    ] = None
    token: Annotated[
        str | None,
        Field(
            kind=Kind.TEXT,
            label=say("Token"),
            sentence=say("Sent as Authorization: Bearer TOKEN."),
            secret=True,
            chars_max=4_096,
        ),
    ] = None
    basic_user: Annotated[
        str | None,
        Field(
            kind=Kind.TEXT,
            label=say("Basic: user"),
            group=say("Basic authentication"),
            sentence=say("With the password, sent as Authorization: Basic."),
            chars_max=256,
        ),
    ] = None
    basic_password: Annotated[
        str | None,
        Field(
            kind=Kind.TEXT,
            label=say("Basic: password"),
            group=say("Basic authentication"),
            sentence=say("The password of the user."),
            secret=True,
            masked_whole=True,
            chars_max=1_024,
        ),
    ] = None
    oauth_token_url: Annotated[
        str | None,
        Field(
            kind=Kind.TEXT,
            label=say("OAuth: token URL"),
            group=say("OAuth 2.0"),
            sentence=say(
                "Where Homing fetches access tokens (OAuth 2.0 client credentials), which it "
                "sends as Authorization: Bearer."
            ),
            example="https://auth.example.com/oauth/token",
        ),
    ] = None
    oauth_client_id: Annotated[
        str | None,
        Field(
            kind=Kind.TEXT,
            label=say("OAuth: client id"),
            group=say("OAuth 2.0"),
            sentence=say("The client that Homing is at the token endpoint."),
            chars_max=512,
        ),
    ] = None
    oauth_method: Annotated[
        OAuthMethod,
        Field(
            kind=Kind.CHOICE,
            label=say("OAuth: method"),
            group=say("OAuth 2.0"),
            sentence=say("How the client authenticates at the token endpoint."),
        ),
    ] = OAuthMethod.CLIENT_SECRET_BASIC
    oauth_client_secret: Annotated[
        str | None,
        Field(
            kind=Kind.TEXT,
            label=say("OAuth: client secret"),
            group=say("OAuth 2.0"),
            sentence=say("For client_secret_basic and client_secret_post."),
            secret=True,
            chars_max=4_096,
        ),
    ] = None
    oauth_scope: Annotated[
        str | None,
        Field(
            kind=Kind.TEXT,
            label=say("OAuth: scope"),
            group=say("OAuth 2.0"),
            sentence=say(
                "The scopes to ask for, with spaces between them; default: none are named."
            ),
            example="events.write",
            unset=say("none named"),
            chars_max=1_024,
        ),
    ] = None
    oauth_audience: Annotated[
        str | None,
        Field(
            kind=Kind.TEXT,
            label=say("OAuth: audience"),
            group=say("OAuth 2.0"),
            sentence=say("The audience to ask for, where the token endpoint needs one."),
            example="https://api.example.com",
            unset=say("none named"),
            chars_max=1_024,
        ),
    ] = None
    oauth_key_id: Annotated[
        str | None,
        Field(
            kind=Kind.TEXT,
            label=say("OAuth: key id"),
            group=say("OAuth 2.0"),
            sentence=say("The kid of the private key, where the token endpoint needs one."),
            unset=say("none named"),
            chars_max=256,
        ),
    ] = None
    oauth_private_key: Annotated[
        str | None,
        Field(
            kind=Kind.PEM,
            label=say("OAuth: private key"),
            group=say("OAuth 2.0"),
            sentence=say(
                "For private_key_jwt: a PEM private key without a passphrase, RSA of 2048 to 4096 "
                "bits (RS256) or EC on P-256 (ES256)."
            ),
            secret=True,
            chars_max=8_192,
        ),
    ] = None
    deadline_ms: Annotated[
        int | None,
        Field(
            kind=Kind.NUMBER,
            label=say("Deadline (ms)"),
            sentence=say("How long a response may take: 1000 to 30000 ms; default: the policy's."),
            example="5000",
            unset=say("the policy's"),
            min=1_000,
            max=30_000,
        ),
    ] = None
    order: Annotated[
        Order,
        Field(
            kind=Kind.CHOICE,
            label=say("Order"),
            sentence=say(
                "The order of events with the same key: none, key (one after the other, in the "
                "order of acceptance), or latest (only the newest one; older ones that are not in "
                "flight are superseded)."
            ),
        ),
    ] = Order.NONE
    quiet_ms: Annotated[
        int | None,
        Field(
            kind=Kind.NUMBER,
            label=say("Quiet time (ms)"),
            sentence=say(
                "With order latest: the first attempt of a key waits until no newer event came for "
                "so long, 1 to 3600000 ms; default: it does not wait."
            ),
            example="2000",
            unset=say("none"),
            min=1,
            max=3_600_000,
        ),
    ] = None
    max_wait_ms: Annotated[
        int | None,
        Field(
            kind=Kind.NUMBER,
            label=say("Longest wait for quiet (ms)"),
            sentence=say(
                "With quiet_ms: a key waits for quiet at most so long in all, 1 to 86400000 ms; "
                "default: ten times quiet_ms."
            ),
            example="30000",
            unset=say("ten times the quiet time"),
            min=1,
            max=86_400_000,
        ),
    ] = None
    rate_per_second: Annotated[
        float | None,
        Field(
            kind=Kind.NUMBER,
            label=say("Attempts per second"),
            sentence=say("Attempts per second at most, 0.01 to 1000; default: no limit."),
            example="10",
            unset=say("no limit"),
            min=0.01,
            max=1_000,
        ),
    ] = None
    headers: Annotated[
        tuple[tuple[str, str], ...],
        Field(
            kind=Kind.PAIRS,
            label=say("Headers"),
            sentence=say("Sent with every request."),
            example="x-team: billing",
            option="header",
            secret=True,
            ignore_case=True,
            max=32,
            name_chars_max=128,
            chars_max=4_096,
        ),
    ] = ()
    client_certificate: Annotated[
        str | None,
        Field(
            kind=Kind.PEM,
            label=say("Client certificate"),
            sentence=say(
                "The certificate that Homing presents to the receiver (mTLS), in PEM, followed by "
                "those of its intermediate authorities; default: the tenant's."
            ),
            example="-----BEGIN CERTIFICATE-----",
            unset=say("the tenant's"),
            chars_max=32_768,
        ),
    ] = None
    client_key: Annotated[
        str | None,
        Field(
            kind=Kind.PEM,
            label=say("Client key"),
            sentence=say("The key of the client certificate, in PEM, not encrypted."),
            example="-----BEGIN PRIVATE KEY-----",
            unset=say("the tenant's"),
            secret=True,
            chars_max=16_384,
        ),
    ] = None
    ca_certificates: Annotated[
        str | None,
        Field(
            kind=Kind.PEM,
            label=say("CA certificates"),
            sentence=say(
                "Certificate authorities to trust for this subscription, in PEM, besides those "
                "that the installation trusts."
            ),
            example="-----BEGIN CERTIFICATE-----",
            unset=say("none besides the installation's"),
            chars_max=65_536,
        ),
    ] = None
    description: Annotated[
        str,
        Field(
            kind=Kind.TEXT,
            label=say("Description"),
            sentence=say("What it is for: at most 1024 characters."),
            chars_max=1_024,
        ),
    ] = ""
    metadata: Annotated[
        tuple[tuple[str, str], ...],
        Field(
            kind=Kind.PAIRS,
            label=say("Metadata"),
            sentence=say(
                "Names and values of your own, returned and never sent: at most 20, names of "
                "at most 40 characters, values of at most 500."
            ),
            example="customer: 4711",
            max=20,
            name_chars_max=40,
            chars_max=500,
        ),
    ] = ()
    verification: Annotated[
        Verification,
        Field(
            kind=Kind.CHOICE,
            label=say("Verification"),
            sentence=say(
                "How the receiver proves that it owns the URL before it gets events: none, "
                "challenge (it must return a random text), or cloudevents (the OPTIONS handshake "
                "of CloudEvents); default: the installation's."
            ),
        ),
    ] = Verification.NONE
    active: Annotated[
        bool,
        Field(
            kind=Kind.FLAG,
            label=say("Active"),
            sentence=say("Whether it gets new events; default: it does."),
        ),
    ] = True

    def spec(self) -> dict[str, Any]:
        """The fields that people set, by name."""
        return {name: getattr(self, name) for name in SPEC}


def _spec() -> dict[str, Field]:
    hints = get_type_hints(SubscriptionSpec, include_extras=True)
    found = {}
    for it in struct_fields(SubscriptionSpec):
        field: Field = hints[it.name].__metadata__[0]
        found[it.name] = replace(
            field,
            name=it.name,
            type=hints[it.name].__origin__,
            required=it.required,
            default=None if it.required else it.default,
            api_name=field.api_name or it.name,
            option=field.option or it.name,
        )
    return found


SPEC = MappingProxyType(_spec())


class TlsIdentity(Struct, frozen=True, weakref=True):
    """What a connection presents and trusts beyond the default; equal if the fingerprint is."""

    fingerprint: str  # SHA-256 of all texts below
    certificate: str = ""  # PEM, with its chain; empty: none
    key: str = ""  # PEM
    authorities: str = ""  # PEM; trusted besides those of the installation
    valid_from: int = 0  # of the certificate
    valid_until: int = 0
    problem: str = ""  # why it cannot be used; empty: it can

    def __repr__(self) -> str:
        return f"TlsIdentity({self.fingerprint[:12]})"


class Secret(Struct, frozen=True):
    """A secret or private key that signs; ``until`` is set while it is being rotated out."""

    value: str
    until: int | None = None

    def __repr__(self) -> str:
        return "Secret(****)"


class SigningKeys(Struct, frozen=True):
    """The Ed25519 keys of a tenant (``whsk_…``), newest first."""

    tenant: str
    keys: tuple[Secret, ...]
    version: int = 0  # of the catalog, when they last changed; 0: they are not stored yet

    def __repr__(self) -> str:
        return f"SigningKeys({self.tenant}, ****)"


class Workfront(Struct, frozen=True):
    """What a subscription has that was made through the Workfront-compatible API."""

    version: str = "v2"
    version_at: int | None = None  # when it was last changed
    base64: bool = False
    object_id: str | None = None  # only events of this object
    twin_of: int | None = None  # it sends the old version of this subscription
    until: int | None = None  # until this time


class ReceiverState(Struct, frozen=True, omit_defaults=True):
    """What the receiver of a subscription has said about it."""

    gone_at: int | None = None  # it responded with 410; until a person activates it or changes URL
    gone_upto: int = 0  # the last position then: deliveries up to it are cancelled
    verified_at: int | None = None  # it has proved that it owns the URL
    asked_at: int | None = None  # when it was last asked for that proof
    problem: str = ""  # why it has not given it
    per_minute_max: int | None = None  # the rate that it allows (CloudEvents)
    said: dict[str, Any] = {}  # the problem as ``Sentence.pack`` wrote it, for other languages

    @property
    def why(self) -> str:
        """The problem, in every language if it can be said in every language."""
        return unpack(self.said) if self.said else self.problem


class Pauses(Struct, frozen=True, omit_defaults=True):
    """When a subscription was paused by its owner (``policy.pause``)."""

    since: int | None = None  # it is paused now, since then
    past: tuple[tuple[int, int], ...] = ()  # earlier pauses, begin and end, oldest first


class Subscription(SubscriptionSpec, frozen=True, kw_only=True):
    """A standing request: these events of this tenant go to this URL."""

    id: int
    tenant: str
    endpoint_id: int
    secrets: tuple[Secret, ...]
    created_at: int
    updated_at: int
    version: int  # of the catalog, when it last changed
    deleted_at: int | None = None
    workfront: Workfront | None = None
    receiver: ReceiverState | None = None  # None: it has said nothing
    pauses: Pauses | None = None  # None: it was never paused
    newer: dict[str, Any] = {}  # fields that a newer release stored; kept as they are

    @property
    def is_unverified(self) -> bool:
        """Whether it gets nothing because its receiver has not proved that it owns the URL."""
        if self.verification is Verification.NONE:
            return False
        return self.receiver is None or self.receiver.verified_at is None

    @property
    def paused_since(self) -> int | None:
        """Since when its deliveries wait because its owner has paused it; None: they do not."""
        return None if self.pauses is None else self.pauses.since

    def __repr__(self) -> str:
        return f"Subscription({show_id('sub', self.id)}, {self.url})"


class Health(Struct, frozen=True, array_like=True):
    """The numbers of an endpoint that the health rules use."""

    state: State
    since: int  # when it came into this state
    enabled_since: int  # last time it became enabled (at first: its creation)
    attempts: int = 0
    failures: int = 0
    consecutive_failures: int = 0
    first_attempt_at: int | None = None
    last_success_at: int | None = None
    manual_enable_at: int | None = None
    warned: int = 0  # one bit for each warning that was sent and still holds


class Endpoint(Struct, frozen=True, array_like=True):
    """A subscription URL of one tenant with its health."""

    id: int
    bucket: int
    tenant: str
    url: str
    created_at: int
    generation: int  # raised by every command that does not come from the owner of its bucket
    health: Health
    next_probe_at: int | None = None  # only while disabled
    probe_after_id: int = 0  # the delivery that was probed last; the next probe takes a later one
    hold_until: int = 0  # Retry-After
    dropped_unreported: int = 0  # drops since the last homing.delivery.dropped
    dropped_reported_at: int = 0
    rule: str = ""  # the rule that brought it into its state, or "person"
    failing: bool = False  # an attempt has failed since the last success: causes may be open
    guard_passed: int = 0  # the fingerprint of the guard's settings when an attempt last passed it
    guard_refused_at: int = 0  # when changed settings last refused it; 0: not since it passed


class Transition(Struct, frozen=True, array_like=True):
    """A recorded change of an endpoint's state."""

    id: int
    endpoint_id: int
    at: int
    before: State
    after: State
    rule: str  # "failure_rate", "consecutive_failures", "no_success", "success", "person", …
    numbers: dict[str, int]
    by: str = ""  # the name of the person, where a person did it


class Phases(Struct, frozen=True, gc=False, array_like=True):
    """How long each phase of an attempt took, in microseconds; None: it did not happen."""

    dns_us: int | None = None
    connect_us: int | None = None
    tls_us: int | None = None
    first_byte_us: int | None = None
    total_us: int = 0


class Decided(TextEnum):
    """What was decided after an attempt."""

    DELIVERED = "delivered"
    RETRY = "retry"
    UNCHANGED = "unchanged"  # a probe failed: its delivery keeps its schedule
    DROPPED = "dropped"
    CANCELLED = "cancelled"  # the delivery was cancelled during the attempt, or by its response
    SUPERSEDED = "superseded"  # a newer event of its key is sent instead
    WAIT = "wait"  # a failure of the sender: tried again shortly, no retry is used up
    NOTHING = "nothing"  # the attempt was a test


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
    request_headers: bytes  # as sent, secrets masked; read by ``policy.sent_headers.logged_lines``
    response_headers: bytes
    excerpt: bytes  # of the body of a failing response, at most 1 KiB
    decided: Decided
    due_at: int | None = None  # when decided is retry or wait
    retry: int = 0


class CauseKey(Struct, frozen=True, gc=False, array_like=True):
    """Why an attempt failed: a failure class, a sub-reason ("" if none is known), a status code."""

    failure: str  # a value of Failure, or one of the classes in ``policy.causes``
    reason: str = ""
    code: int | None = None


class Cause(Struct, frozen=True, gc=False, array_like=True):
    """Why attempts of an endpoint fail, since when, how often; open until its next success."""

    id: int
    tenant: str
    endpoint_id: int
    key: CauseKey
    first_seen: int
    last_seen: int
    attempts: int
    deliveries: int
    example_id: int  # the delivery of the latest failed attempt
    example_number: int  # and the number of that attempt
    closed_at: int | None = None


class Finished(Struct, frozen=True, gc=False, array_like=True):
    """A finished delivery; a history row."""

    delivery: Delivery
    status: Status
    reason: Reason | None
    finished_at: int
    arrived: bool = False  # cancelled while an attempt was in flight, which then got a 2xx
    superseded_by: int = 0  # the event whose delivery is sent instead


class Target(Struct, frozen=True, cache_hash=True):
    """The parts of a normalised URL that a request needs."""

    scheme: str  # "http" or "https"
    host: str  # ASCII name, IPv4, or IPv6 without brackets
    port: int
    path: str  # with the query; begins with "/"
    authority: str  # as the Host header shows it


class Credentials(Struct, frozen=True, gc=False):
    """A client of OAuth 2.0: all that a request for its access token is written from."""

    identity: bytes  # a hash of tenant and all fields: equal clients share a token
    tenant: str
    token_url: str
    target: Target  # the parts of the token URL
    client_id: str
    method: OAuthMethod
    secret: str  # the client secret, or the private key as PEM
    scope: str = ""
    audience: str = ""
    key_id: str = ""
    tls: TlsIdentity | None = None  # for connections to the token endpoint: the subscription's

    def __repr__(self) -> str:
        return f"Credentials({self.tenant}, {self.target.host})"
