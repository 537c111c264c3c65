"""Checks events and subscriptions before they are stored.

A refusal names every wrong field at once (``events[3].type``), so that a publisher can correct a
whole batch in one go. No reason ever repeats a token, a secret or the value of a header.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from homing.errors import FieldProblem, Invalid, TooLarge
from homing.languages.sentences import say
from homing.model import (
    SPEC,
    Field,
    Format,
    Kind,
    Subscription,
    SubscriptionSpec,
    Target,
    Workfront,
)
from homing.policy.authentication import authentication_problems, token_url_of, ways_of
from homing.policy.certificates import identity_problems
from homing.policy.filters import filter_problems
from homing.policy.nesting import LEVELS_MAX, LEVELS_RULE, is_deep
from homing.policy.order import order_problems
from homing.policy.signature import read_secret
from homing.policy.text import ascii_lower
from homing.policy.url import parse_url

DEFAULT_TENANT = "default"
RESERVED_TYPES = "homing."
EVENT_BYTES_MAX = 1024 * 1024
BATCH_EVENTS_MAX = 1_000
TYPE_CHARS_MAX = 256
ORDER_KEY_BYTES_MAX = 128
PROBLEMS_MAX = 100
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
_ANY_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]").search
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
_HEADERS = SPEC["headers"]
_RESERVED_PREFIXES = ("proxy-", "webhook-", "homing-")

RESERVED_RULE = say(
    "must not begin with {prefix}, which is for Homing's own events", prefix=RESERVED_TYPES
)
TYPE_RULE = say("must be 1 to 256 of the characters A-Z a-z 0-9 . _ -")
KEY_RULE = say('must be 1 to 128 visible ASCII characters without "."')
ORDER_KEY_RULE = say(
    "must be 1 to 128 bytes of printable text (UTF-8), without a space at its beginning or end"
)
TENANT_RULE = say("must be 1 to 64 of the characters A-Z a-z 0-9 _ -")
_PATTERN_RULE = say("must be an event type, a prefix like order.*, or *")
TIME_RULE = say("must be an RFC 3339 time, like 2025-01-31T12:00:00Z")
_FIXED_URL_RULE = say(
    "must stay as it is: a subscription cannot change between events that are sent and events that "
    "are read; create another one"
)
# The fields that a subscription without a URL may have.
WITHOUT_URL = frozenset(
    {"url", "types", "filters", "filter_connector", "description", "metadata", "active"}
)
_MASKED_RULE = say(
    "must not begin with {mask}, which stands for a masked value: give the value itself", mask=MASK
)


class EventDraft(Struct, frozen=True, gc=False):
    """An event as its publisher gave it."""

    tenant: str
    type: str
    data: bytes
    key: str | None = None
    time: str | None = None
    trace: str = ""  # the traceparent of the request
    context: str = ""  # the other attributes of a CloudEvent, as JSON
    order_key: str | None = None  # the object that it is about
    warning: str = ""  # why its data does not match its event type; set by the check


class SubscriptionDraft(SubscriptionSpec, frozen=True, kw_only=True):
    """A subscription as a person wants it; ``url`` is in its normal form once checked."""

    tenant: str
    secret: str | None = None  # to sign with; None: a new one, or those that it has
    workfront: Workfront | None = None

    def __repr__(self) -> str:
        return f"SubscriptionDraft({self.tenant}, {self.url})"


# --- events ---------------------------------------------------------------------------------


def check_events(drafts: Sequence[EventDraft], *, deep: Collection[int] | None = None) -> None:
    """Raises TooLarge or Invalid with the index and reason of each bad item.

    ``deep`` are the indexes of those whose data has too many levels, if that is known.
    """
    if len(drafts) > BATCH_EVENTS_MAX:
        raise TooLarge(f"A batch holds at most {BATCH_EVENTS_MAX:,} events.")
    bad: dict[int, bool] = {}  # by index: whether its data has too many levels
    large: list[int] = []
    for index, draft in enumerate(drafts):
        if len(draft.data) > EVENT_BYTES_MAX:
            large.append(index)
            is_too_deep = False
        elif deep is not None:
            is_too_deep = index in deep
        else:
            is_too_deep = len(draft.data) > 2 * LEVELS_MAX and is_deep(draft.data)
        if (
            is_too_deep
            or len(draft.type) > TYPE_CHARS_MAX  # not kept by the cache
            or not _is_publishable(draft.type)
            or (draft.key is not None and _KEY(draft.key) is None)
            or (draft.tenant != DEFAULT_TENANT and _TENANT(draft.tenant) is None)
            or (draft.time is not None and not is_time(draft.time))
            or (draft.order_key is not None and not is_order_key(draft.order_key))
        ):
            bad[index] = is_too_deep
    if large:
        raise TooLarge(problems=_bounded([_too_large(index) for index in large]))
    if bad:
        found = [it for index in bad for it in _event_problems(index, drafts[index], bad[index])]
        raise Invalid(problems=_bounded(found))


@lru_cache(maxsize=1_024)  # Publishers use the same types again and again.
def _is_publishable(event_type: str) -> bool:
    return is_type(event_type) and not event_type.startswith(RESERVED_TYPES)


def is_type(text: str) -> bool:
    """Whether a text is an event type; those of Homing itself begin with ``homing.``."""
    return _TYPE(text) is not None


def is_key(text: str) -> bool:
    """Whether an event may have this id."""
    return _KEY(text) is not None


def is_order_key(text: str) -> bool:
    """Whether a text can name the object that an event is about."""
    if not text or len(text) > ORDER_KEY_BYTES_MAX or not text.isprintable():
        return False
    if text[0] == " " or text[-1] == " ":  # A header cannot carry it.
        return False
    return text.isascii() or len(text.encode()) <= ORDER_KEY_BYTES_MAX


def is_time(text: str) -> bool:
    """Whether a text is an RFC 3339 time; leap seconds are allowed."""
    found = _TIME(text)
    return found is not None and _is_date(found[1])


def read_time(text: str) -> int | None:
    """Unix milliseconds of an RFC 3339 time, or None if the text is no such time."""
    if not is_time(text):
        return None
    calm = text[:17] + "59" + text[19:] if text[17:19] == "60" else text
    try:
        at = datetime.fromisoformat(calm.upper())
        return (at - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return None


def tenant_problem(tenant: str, field: str = "tenant") -> tuple[FieldProblem, ...]:
    """The problem of a text that cannot name a tenant; empty if it can."""
    return () if _TENANT(tenant) else (FieldProblem(field, TENANT_RULE),)


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _bounded(problems: list[FieldProblem]) -> tuple[FieldProblem, ...]:
    return tuple(problems[:PROBLEMS_MAX])


def _too_large(index: int) -> FieldProblem:
    return FieldProblem(f"events[{index}].data", say("must be at most 1 MiB"))


def _event_problems(index: int, draft: EventDraft, deep: bool) -> list[FieldProblem]:
    at = f"events[{index}]"
    problems: list[FieldProblem] = []
    if _TYPE(draft.type) is None:
        problems.append(FieldProblem(f"{at}.type", TYPE_RULE))
    elif draft.type.startswith(RESERVED_TYPES):
        problems.append(FieldProblem(f"{at}.type", RESERVED_RULE))
    if draft.key is not None and _KEY(draft.key) is None:
        problems.append(FieldProblem(f"{at}.id", KEY_RULE))
    problems += tenant_problem(draft.tenant, f"{at}.tenant")
    if draft.time is not None and not is_time(draft.time):
        problems.append(FieldProblem(f"{at}.time", TIME_RULE))
    if draft.order_key is not None and not is_order_key(draft.order_key):
        problems.append(FieldProblem(f"{at}.key", ORDER_KEY_RULE))
    if deep:
        problems.append(FieldProblem(f"{at}.data", LEVELS_RULE))
    return problems


# --- subscriptions --------------------------------------------------------------------------


def check_subscription(
    draft: SubscriptionDraft,
    *,
    policies: Collection[str],
    refuses: Callable[[Target], str] | None,
    before: Subscription | None = None,
    now: int = 0,
) -> SubscriptionDraft:
    """The draft with its URLs in normal form; raises Invalid with every problem.

    ``refuses`` returns why Homing may not send to a target, or ""; None: it may. A URL that is the
    same as ``before`` was admitted, and is not checked again. Neither are the same filters: they
    may be older than a limit.
    """
    problems = list(tenant_problem(draft.tenant))
    draft = _with_normal_pem(draft)
    url, token_url = draft.url, token_url_of(draft)
    if before is not None and bool(before.url) != bool(url):
        problems.append(FieldProblem("url", _FIXED_URL_RULE))
    elif not url:
        problems += _sending_problems(draft)
    else:
        try:
            url, target = parse_url(draft.url)
            same = before is not None and before.url == draft.url
            if not same and refuses is not None and (why := refuses(target)):
                problems.append(FieldProblem("url", why))
        except Invalid as error:
            problems += error.problems
        same = before is not None and before.oauth_token_url == draft.oauth_token_url
        problems += authentication_problems(draft, None if same else refuses)
    problems += _masked_problems(draft)
    problems += _pattern_problems(draft.types)
    problems += _header_problems(draft.headers, ways_of(draft)[0:1])
    if draft.format is Format.CLOUDEVENTS_BINARY:
        problems += _attribute_problems(draft.headers)
    problems += _secret_problems(draft.secret)
    if before is None or before.policy != draft.policy:  # A policy that was removed may stay.
        problems += _choice_problems(draft, policies)
    problems += _limit_problems(draft)
    problems += order_problems(draft)
    problems += identity_problems(draft, before=before, now=now)
    if before is None or not _same_filters(draft, before):
        problems += filter_problems(draft.filters, draft.filter_connector)
    if problems:
        raise Invalid(problems=_bounded(problems))
    types = tuple(dict.fromkeys(draft.types))
    return replace(draft, url=url, types=types, oauth_token_url=token_url)


def _sending_problems(draft: SubscriptionDraft) -> Iterator[FieldProblem]:
    """The fields that say how events are sent, of a subscription whose events are read."""
    for field in SPEC.values():
        if field.name not in WITHOUT_URL and getattr(draft, field.name) != field.default:
            reason = say("has no effect without a URL: leave it out, or give a URL")
            yield FieldProblem(field.api_name, reason)


def _with_normal_pem(draft: SubscriptionDraft) -> SubscriptionDraft:
    """The draft with the lines of certificates and keys ended alike: forms end them with CRLF."""
    values = {
        field.name: text.replace("\r\n", "\n").strip() or None
        for field in SPEC.values()
        if field.kind is Kind.PEM and (text := getattr(draft, field.name)) is not None
    }
    return replace(draft, **values) if values else draft


def _same_filters(draft: SubscriptionDraft, before: Subscription) -> bool:
    given = (draft.filters, draft.filter_connector)
    return given == (before.filters, before.filter_connector)


def draft_of(subscription: Subscription) -> SubscriptionDraft:
    """The draft that leaves a subscription as it is, with its secrets."""
    return SubscriptionDraft(
        tenant=subscription.tenant, workfront=subscription.workfront, **subscription.spec()
    )


def patched(
    before: Subscription, changes: Mapping[str, Any], *, secret: str | None = None
) -> SubscriptionDraft:
    """The draft after a change: a value replaces, None restores the default, pairs are merged."""
    values: dict[str, Any] = {}
    for name, value in changes.items():
        field = SPEC[name]
        if value is None:
            values[name] = field.default
        elif field.kind is Kind.PAIRS:
            values[name] = merge_pairs(field, getattr(before, name), value)
        else:
            values[name] = value
    return replace(draft_of(before), secret=secret, **values)


def sent_by(changes: Mapping[str, Any]) -> frozenset[str]:
    """The fields that a change gives anew; of pairs, which are merged, each by its name."""
    sent: set[str] = set()
    for name, value in changes.items():
        if SPEC[name].kind is not Kind.PAIRS:
            sent.add(name)
        else:
            sent.update(f"{name}.{key}".lower() for key in value or ())
    return frozenset(sent)


def merge_pairs(
    field: Field, pairs: Iterable[tuple[str, str]], changes: Mapping[str, str | None]
) -> tuple[tuple[str, str], ...]:
    """These pairs with some replaced by name, and those without a value removed."""

    def key(name: str) -> str:
        return ascii_lower(name) if field.ignore_case else name

    merged: dict[str, tuple[str, str | None]] = {key(name): (name, value) for name, value in pairs}
    merged |= {key(name): (name, value) for name, value in changes.items()}
    return tuple((name, value) for name, value in merged.values() if value is not None)


def mask(value: str) -> str:
    """``****`` and the last four characters of a value; nothing of a short one."""
    return MASK if len(value) <= 8 else MASK + value[-4:]


def _pattern_problems(types: tuple[str, ...]) -> list[FieldProblem]:
    limit = SPEC["types"].max
    if not 1 <= len(types) <= limit:
        return [FieldProblem("types", say("must have 1 to {limit} patterns", limit=int(limit)))]
    return [
        FieldProblem(f"types[{index}]", _PATTERN_RULE)
        for index, pattern in enumerate(types)
        if _PATTERN(pattern) is None
    ]


def _masked_problems(draft: SubscriptionDraft) -> Iterator[FieldProblem]:
    for name, field in SPEC.items():
        value = getattr(draft, name)
        if field.secret and isinstance(value, str) and value.startswith(MASK):
            yield FieldProblem(name, _MASKED_RULE)


def _header_problems(
    headers: tuple[tuple[str, str], ...], ways: Sequence[str]
) -> list[FieldProblem]:
    """The problems of headers; ``ways`` has the first way to authenticate, if there is one."""
    if len(headers) > _HEADERS.max:
        return [FieldProblem("headers", say("must be at most {limit}", limit=int(_HEADERS.max)))]
    problems: list[FieldProblem] = []
    names: set[str] = set()
    for index, (name, value) in enumerate(headers):
        lower = ascii_lower(name)
        reason: str | None = _name_reason(lower) or _value_reason(value)
        if lower == "authorization" and ways and ways[0] != "headers":
            reason = say(
                "must not be given together with {field}, which is sent in this header",
                field=ways[0],
            )
        if lower in names:
            reason = say("must not be given twice")
        names.add(lower)
        if reason is not None:
            shown = name if _HEADER_NAME(name) and len(name) <= _HEADERS.name_chars_max else index
            problems.append(FieldProblem(f"headers.{shown}", reason))
    return problems


def _name_reason(lower: str) -> str | None:
    if len(lower) > _HEADERS.name_chars_max or _HEADER_NAME(lower) is None:
        limit = _HEADERS.name_chars_max
        return say("must be a header name of 1 to {limit} characters", limit=limit)
    if lower in _RESERVED_HEADERS or lower.startswith(_RESERVED_PREFIXES):
        return say("is reserved: Homing or the connection sets it; choose another name")
    return None


def _attribute_problems(headers: tuple[tuple[str, str], ...]) -> list[FieldProblem]:
    reason = say(
        "is reserved in the format {format}: choose another name",
        format=Format.CLOUDEVENTS_BINARY.value,
    )
    return [
        FieldProblem(f"headers.{name}", reason)
        for name, _ in headers
        if name.lower().startswith("ce-") and _HEADER_NAME(name)
    ]


def _value_reason(value: str) -> str | None:
    if len(value) > _HEADERS.chars_max or _HEADER_VALUE(value) is None:
        limit = str(_HEADERS.chars_max)
        return say("must be at most {limit} of visible ASCII, space and tab", limit=limit)
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
    if draft.policy is None or draft.policy in policies:
        return []
    return [
        FieldProblem("policy", say("must be one of {names}", names=", ".join(sorted(policies))))
    ]


def _limit_problems(draft: SubscriptionDraft) -> Iterator[FieldProblem]:
    """Problems with the limits in the list of fields; other fields are checked above."""
    for field in SPEC.values():
        value = getattr(draft, field.name)
        if value is None or field.secret:
            continue
        if field.kind is Kind.NUMBER and not field.min <= value <= field.max:
            reason = say("must be {min} to {max}", min=f"{field.min:g}", max=f"{field.max:g}")
            yield FieldProblem(field.name, reason)
        limit = field.chars_max
        if field.kind is Kind.TEXT and limit and (len(value) > limit or _CONTROL(value)):
            reason = say(
                "must be at most {limit} characters, no control characters", limit=str(limit)
            )
            yield FieldProblem(field.name, reason)
        if field.kind is Kind.PAIRS:
            yield from _pairs_problems(field, value)


def _pairs_problems(field: Field, pairs: Sequence[tuple[str, str]]) -> Iterator[FieldProblem]:
    """The limits of pairs that are kept for the caller and never sent."""
    excess = len(pairs) - int(field.max)
    if excess > 0:
        reason = say(
            "must have at most {limit} pairs: remove {excess}", limit=int(field.max), excess=excess
        )
        yield FieldProblem(field.name, reason)
        return
    for index, (name, value) in enumerate(pairs):
        limit = field.name_chars_max
        if not 1 <= len(name) <= limit or _ANY_CONTROL(name):
            reason = say(
                "must have a name of 1 to {limit} characters without control characters: "
                "choose another name",
                limit=limit,
            )
            yield FieldProblem(f"{field.name}.{index}", reason)
        elif len(value) > field.chars_max or _ANY_CONTROL(value):
            reason = say(
                "must be at most {limit} characters without control characters: "
                "shorten or change it",
                limit=field.chars_max,
            )
            yield FieldProblem(f"{field.name}.{name}", reason)
