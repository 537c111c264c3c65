"""What is let in: the checks on events and subscriptions before anything of them is kept.

Everything wrong is named at once, each with its field (``events[3].type``), so that a publisher
mends a batch in one go. No reason ever repeats a token, a secret or a header's value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from homing.errors import FieldProblem, Invalid, TooLarge
from homing.model import Connector, Format, Subscription, Target, Workfront
from homing.policy.filters import NO_FILTERS, filter_problems
from homing.policy.pace import RATE_LEAST, RATE_MOST
from homing.policy.presets import DEADLINE_LEAST_MS, DEADLINE_MOST_MS
from homing.policy.reach import REFUSED
from homing.policy.signature import read_secret
from homing.policy.url import parse_url

DEFAULT_TENANT = "default"
RESERVED_TYPES = "homing."
EVENT_BYTES_MOST = 1024 * 1024
BATCH_EVENTS_MOST = 1_000
PROBLEMS_MOST = 100
PATTERNS_MOST = 100
HEADERS_MOST = 32
HEADER_NAME_CHARS_MOST = 128
HEADER_VALUE_CHARS_MOST = 4_096
TOKEN_CHARS_MOST = 4_096
DESCRIPTION_CHARS_MOST = 1_024
MASK = "****"

_TYPE = re.compile(r"[A-Za-z0-9._-]{1,256}").fullmatch
_PATTERN = re.compile(r"\*|[A-Za-z0-9._-]{1,254}\.\*|[A-Za-z0-9._-]{1,256}").fullmatch
_KEY = re.compile(r"[!-\-/-~]{1,128}").fullmatch  # visible ASCII without "."
_TENANT = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]"
    r"(?:([01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60))(?:\.[0-9]{1,20})?"
    r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
).fullmatch
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_HEADER_VALUE = re.compile(r"[\t -~]*").fullmatch
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]").search  # all but tab and newline
_VISIBLE = re.compile(r"[!-~]+").fullmatch

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_RESERVED_HEADERS = frozenset(
    (
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    )
)
_RESERVED_PREFIXES = ("proxy-", "webhook-", "homing-")

TYPE_RULE = "must be 1 to 256 of the characters A-Z a-z 0-9 . _ -"
KEY_RULE = 'must be 1 to 128 visible ASCII characters without "."'
TENANT_RULE = "must be 1 to 64 of the characters A-Z a-z 0-9 _ -"
TIME_RULE = "must be a time after RFC 3339, like 2025-01-31T12:00:00Z"
_MASKED_RULE = f"must not begin with {MASK}: that is how a value is shown, not the value"


class EventDraft(Struct, frozen=True, gc=False):
    """An event as its publisher gave it."""

    tenant: str
    type: str
    data: bytes
    key: str | None = None
    time: str | None = None


class SubscriptionDraft(Struct, frozen=True):
    """A subscription as a person wants it; ``url`` is in its normal form once checked."""

    tenant: str
    url: str
    types: tuple[str, ...]
    format: Format = Format.STANDARD
    token: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    secret: str | None = None
    policy: str | None = None
    deadline_ms: int | None = None
    rate_per_second: float | None = None
    active: bool = True
    description: str = ""
    filters: str = NO_FILTERS  # JSON
    connector: Connector = Connector.AND
    workfront: Workfront | None = None

    def __repr__(self) -> str:
        return f"SubscriptionDraft({self.tenant}, {self.url})"


# --- events ---------------------------------------------------------------------------------


def check_events(drafts: Sequence[EventDraft]) -> None:
    """Raises TooLarge or Invalid with the index and reason of each bad item."""
    if len(drafts) > BATCH_EVENTS_MOST:
        raise TooLarge(f"A batch holds at most {BATCH_EVENTS_MOST:,} events.")
    bad: list[int] = []
    large: list[int] = []
    for index, draft in enumerate(drafts):
        if len(draft.data) > EVENT_BYTES_MOST:
            large.append(index)
        if (
            _TYPE(draft.type) is None
            or draft.type.startswith(RESERVED_TYPES)
            or (draft.key is not None and _KEY(draft.key) is None)
            or (draft.tenant != DEFAULT_TENANT and _TENANT(draft.tenant) is None)
            or (draft.time is not None and not is_time(draft.time))
        ):
            bad.append(index)
    if large:
        raise TooLarge(problems=_bounded([_too_large(index) for index in large]))
    if bad:
        found = [problem for index in bad for problem in _event_problems(index, drafts[index])]
        raise Invalid(problems=_bounded(found))


def is_type(text: str) -> bool:
    """Whether an event may have this type (or, with ``homing.``, one of our own has)."""
    return _TYPE(text) is not None


def is_key(text: str) -> bool:
    """Whether an event may have this id."""
    return _KEY(text) is not None


def is_time(text: str) -> bool:
    """Whether it is a time after RFC 3339 (a leap second is)."""
    found = _TIME(text)
    return found is not None and _is_date(found[1])


def read_time(text: str) -> int | None:
    """Unix milliseconds of a time after RFC 3339, or None if it is none."""
    if not is_time(text):
        return None
    calm = text[:17] + "59" + text[19:] if text[17:19] == "60" else text
    try:
        at = datetime.fromisoformat(calm.upper())
        return (at - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return None


def tenant_problem(tenant: str, field: str = "tenant") -> tuple[FieldProblem, ...]:
    """Empty if it can be a tenant."""
    return () if _TENANT(tenant) else (FieldProblem(field, TENANT_RULE),)


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _bounded(problems: list[FieldProblem]) -> tuple[FieldProblem, ...]:
    return tuple(problems[:PROBLEMS_MOST])


def _too_large(index: int) -> FieldProblem:
    return FieldProblem(f"events[{index}].data", "must be at most 1 MiB")


def _event_problems(index: int, draft: EventDraft) -> list[FieldProblem]:
    at = f"events[{index}]"
    problems: list[FieldProblem] = []
    if _TYPE(draft.type) is None:
        problems.append(FieldProblem(f"{at}.type", TYPE_RULE))
    elif draft.type.startswith(RESERVED_TYPES):
        reason = f"must not begin with {RESERVED_TYPES}, which is for Homing's own events"
        problems.append(FieldProblem(f"{at}.type", reason))
    if draft.key is not None and _KEY(draft.key) is None:
        problems.append(FieldProblem(f"{at}.id", KEY_RULE))
    problems += tenant_problem(draft.tenant, f"{at}.tenant")
    if draft.time is not None and not is_time(draft.time):
        problems.append(FieldProblem(f"{at}.time", TIME_RULE))
    return problems


# --- subscriptions --------------------------------------------------------------------------


def check_subscription(
    draft: SubscriptionDraft,
    *,
    policies: Collection[str],
    refuses: Callable[[Target], bool] | None,
    before: Subscription | None = None,
) -> SubscriptionDraft:
    """The draft with its URL in normal form; raises Invalid with all that is wrong.

    ``refuses`` says whether a target may not be sent to; without it the URL is known to be
    admitted already. Filters that are the same as ``before`` are kept whatever they cost: they may
    be older than the limit.
    """
    problems = list(tenant_problem(draft.tenant))
    url = draft.url
    try:
        url, target = parse_url(draft.url)
        if refuses is not None and refuses(target):
            problems.append(FieldProblem("url", REFUSED))
    except Invalid as error:
        problems += error.problems
    problems += _pattern_problems(draft.types)
    problems += _token_problems(draft.token)
    problems += _header_problems(draft.headers, with_token=draft.token is not None)
    problems += _secret_problems(draft.secret)
    problems += _choice_problems(draft, policies)
    if before is None or not _same_filters(draft, before):
        problems += filter_problems(draft.filters, draft.connector)
    if problems:
        raise Invalid(problems=_bounded(problems))
    return replace(draft, url=url, types=tuple(dict.fromkeys(draft.types)))


def _same_filters(draft: SubscriptionDraft, before: Subscription) -> bool:
    given, kept = (draft.filters, draft.connector), (before.filters, before.connector)
    return given == kept


def draft_of(subscription: Subscription) -> SubscriptionDraft:
    """What would leave it as it is; its secret stays."""
    names = [name for name in SubscriptionDraft.__struct_fields__ if name != "secret"]
    return SubscriptionDraft(**{name: getattr(subscription, name) for name in names})


def merge_headers(
    headers: tuple[tuple[str, str], ...], changes: Mapping[str, str | None]
) -> tuple[tuple[str, str], ...]:
    """These headers with some replaced (by name, in any case) and those without a value removed."""
    merged = {name.lower(): (name, value) for name, value in headers}
    for name, value in changes.items():
        if value is None:
            merged.pop(name.lower(), None)
        else:
            merged[name.lower()] = (name, value)
    return tuple(merged.values())


def mask(value: str) -> str:
    """``****`` and the last four characters; of a short value nothing is shown."""
    return MASK if len(value) <= 8 else MASK + value[-4:]


def _pattern_problems(types: tuple[str, ...]) -> list[FieldProblem]:
    if not 1 <= len(types) <= PATTERNS_MOST:
        return [FieldProblem("types", f"must have 1 to {PATTERNS_MOST} patterns")]
    return [
        FieldProblem(f"types[{index}]", "must be an event type, a prefix like order.*, or *")
        for index, pattern in enumerate(types)
        if _PATTERN(pattern) is None
    ]


def _token_problems(token: str | None) -> list[FieldProblem]:
    if token is None:
        return []
    if len(token) > TOKEN_CHARS_MOST or _VISIBLE(token) is None:
        reason = f"must be 1 to {TOKEN_CHARS_MOST} visible ASCII characters"
        return [FieldProblem("token", reason)]
    return [FieldProblem("token", _MASKED_RULE)] if token.startswith(MASK) else []


def _header_problems(
    headers: tuple[tuple[str, str], ...], *, with_token: bool
) -> list[FieldProblem]:
    if len(headers) > HEADERS_MOST:
        return [FieldProblem("headers", f"must be at most {HEADERS_MOST}")]
    problems: list[FieldProblem] = []
    names: set[str] = set()
    for index, (name, value) in enumerate(headers):
        lower = name.lower()
        reason = _name_reason(lower, with_token=with_token) or _value_reason(value)
        if lower in names:
            reason = "must not be given twice"
        names.add(lower)
        if reason is not None:
            shown = name if _HEADER_NAME(name) and len(name) <= HEADER_NAME_CHARS_MOST else index
            problems.append(FieldProblem(f"headers.{shown}", reason))
    return problems


def _name_reason(lower: str, *, with_token: bool) -> str | None:
    if len(lower) > HEADER_NAME_CHARS_MOST or _HEADER_NAME(lower) is None:
        return f"must be a header name of 1 to {HEADER_NAME_CHARS_MOST} characters"
    if lower in _RESERVED_HEADERS or lower.startswith(_RESERVED_PREFIXES):
        return "is reserved: Homing sets it, or it belongs to the connection"
    if lower == "authorization" and with_token:
        return "must not be given beside a token, which is sent in it"
    return None


def _value_reason(value: str) -> str | None:
    if len(value) > HEADER_VALUE_CHARS_MOST or _HEADER_VALUE(value) is None:
        return f"must be at most {HEADER_VALUE_CHARS_MOST} of visible ASCII, space and tab"
    return _MASKED_RULE if value.startswith(MASK) else None


def _secret_problems(secret: str | None) -> list[FieldProblem]:
    if secret is None:
        return []
    try:
        read_secret(secret)
    except Invalid as error:
        return list(error.problems)
    return []


def _choice_problems(draft: SubscriptionDraft, policies: Collection[str]) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    if draft.policy is not None and draft.policy not in policies:
        reason = f"must be one of {', '.join(sorted(policies))}"
        problems.append(FieldProblem("policy", reason))
    deadline_ms = draft.deadline_ms
    if deadline_ms is not None and not DEADLINE_LEAST_MS <= deadline_ms <= DEADLINE_MOST_MS:
        reason = f"must be {DEADLINE_LEAST_MS} to {DEADLINE_MOST_MS}"
        problems.append(FieldProblem("deadline_ms", reason))
    rate = draft.rate_per_second
    if rate is not None and not RATE_LEAST <= rate <= RATE_MOST:
        problems.append(FieldProblem("rate_per_second", f"must be {RATE_LEAST} to {RATE_MOST}"))
    if len(draft.description) > DESCRIPTION_CHARS_MOST or _CONTROL(draft.description):
        reason = f"must be at most {DESCRIPTION_CHARS_MOST} characters, no control characters"
        problems.append(FieldProblem("description", reason))
    return problems
