"""Reads the text of a search: an id, an event id, a URL or a part of it, a type, a field."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from homing.errors import FieldProblem, Invalid
from homing.languages.sentences import Sentence, say
from homing.model import read_id
from homing.policy.admission import is_key, is_type, tenant_problem
from homing.policy.payload_fields import VALUE_CHARS_MAX
from homing.policy.url import URL_CHARS_MAX, parse_url
from homing.policy.workfront_ids import SUBSCRIPTION, read_uuid

QUERY_CHARS_MAX = URL_CHARS_MAX + 152  # a URL and its tenant
PART_CHARS_MAX = 200

_TENANT, _EVENT, _URL, _TYPE = "tenant:", "event:", "url:", "type:"
_SHOWN_CHARS = 64
_IDS = ("dlv", "sub", "ep")


class SearchQuery(Struct, frozen=True, kw_only=True):
    """Everything that a text may name; the parts that it cannot name are None."""

    tenant: str | None = None
    field: tuple[str, str] | None = None  # the path of a payload field, and its value
    id: tuple[str, int] | None = None  # the prefix of an id, and its number
    key: str | None = None  # an event id
    url: str | None = None  # a whole URL in its normal form
    part: str | None = None  # a part of a URL, in lower case
    type: str | None = None  # an event type


def read_query(text: str, *, fields: Collection[str]) -> SearchQuery:
    """What this text may name; raises Invalid. ``fields`` are the paths that can be searched."""
    if len(text) > QUERY_CHARS_MAX:
        raise _refused(say("must be at most {limit} characters", limit=QUERY_CHARS_MAX))
    tenant, text = _tenant(text.strip())
    if not text:
        raise _refused(say("must say what to search for"))
    if text.startswith("data.") and ":" in text:
        return SearchQuery(tenant=tenant, field=_field(text, fields))
    if text.startswith(_EVENT):
        key = text.removeprefix(_EVENT)
        return SearchQuery(tenant=tenant, key=key if is_key(key) else None)
    if text.startswith(_TYPE):
        name = text.removeprefix(_TYPE)
        return SearchQuery(tenant=tenant, type=name if is_type(name) else None)
    only_url = text.startswith(_URL)
    url, part = _url(text.removeprefix(_URL))
    if only_url:
        return SearchQuery(tenant=tenant, url=url, part=part)
    return SearchQuery(
        tenant=tenant,
        id=_id(text),
        key=text if is_key(text) else None,
        url=url,
        part=part,
        type=text if is_type(text) else None,
    )


def _tenant(text: str) -> tuple[str | None, str]:
    """The tenant at the beginning of a text, and the rest of the text."""
    first, _, rest = text.partition(" ")
    if not first.startswith(_TENANT):
        return None, text
    tenant = first.removeprefix(_TENANT)
    if tenant_problem(tenant):
        raise _refused(say("must have the name of a tenant after {qualifier}", qualifier=_TENANT))
    return tenant, rest.strip()


def _field(text: str, fields: Collection[str]) -> tuple[str, str]:
    path, _, value = text.partition(":")
    if path not in fields:
        raise _refused(_unsearchable(path[:_SHOWN_CHARS], fields))
    value = value.strip()
    if not 0 < len(value) <= VALUE_CHARS_MAX:
        raise _refused(
            say(
                "must have a value of 1 to {limit} characters after {field}:",
                limit=VALUE_CHARS_MAX,
                field=path,
            )
        )
    return path, value


def _unsearchable(path: str, fields: Collection[str]) -> Sentence:
    if not fields:
        return say(
            "must not name {field}: of the payload fields none can be searched (setting {setting})",
            field=path,
            setting="search_fields",
        )
    return say(
        "must not name {field}: of the payload fields only {names} can be searched (setting "
        "{setting})",
        field=path,
        names=", ".join(fields),
        setting="search_fields",
    )


def _id(text: str) -> tuple[str, int] | None:
    if (number := read_uuid(text)) is not None:
        return SUBSCRIPTION, number
    for prefix in _IDS:
        if (number := read_id(prefix, text)) is not None:
            return prefix, number
    return None


def _url(text: str) -> tuple[str | None, str | None]:
    """The URL that a text is, if it is one, and the part of a URL that it may be."""
    whole = _normal(text) if "://" in text else None
    if whole is not None:
        return whole, whole.lower()
    if not text.isascii():  # A part of an international name is stored in its ASCII form.
        name = _normal(f"https://{text}")
        return None, None if name is None else name.removeprefix("https://").removesuffix("/")
    usable = 0 < len(text) <= PART_CHARS_MAX and text.isprintable() and " " not in text
    return None, text.lower() if usable else None


def _normal(text: str) -> str | None:
    try:
        return parse_url(text)[0]
    except Invalid:
        return None


def _refused(reason: Sentence) -> Invalid:
    return Invalid(problems=(FieldProblem("q", reason),))
