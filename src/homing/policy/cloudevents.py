"""CloudEvents 1.0: from the attributes of one to an event of Homing, and back.

``type``, ``time`` and the data of a CloudEvent are those of the event, and the extension
``partitionkey`` is its key. Its other attributes are the event's *context*, which only the
CloudEvents formats send: JSON with sorted names, so that the same attributes in another order are
the same event. The names of attributes are of a-z and 0-9, so two other names are free to say how
the data was given:

- ``data_base64``: the data is a JSON string of base64, because it is not JSON.
- ``id`` (a name that no context has otherwise): the id of the CloudEvent, where Homing cannot use
  it as the event's id.

A CloudEvent is identified by source and id, an event of Homing by tenant and id. The id stays as it
is if the rule for ids allows it. Otherwise the event gets an id that is made from source and id.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Mapping
from urllib.parse import quote, unquote_to_bytes

import msgspec
from msgspec import Struct

from homing.errors import FieldProblem
from homing.model import Event
from homing.policy.admission import ORDER_KEY_RULE, EventDraft, is_key, is_order_key
from homing.policy.trace import read_traceparent

Value = str | bool | int

SPEC_VERSION = "1.0"
ATTRIBUTES_BYTES_MAX = 4 * 1024  # of one event, without its data
EXTENSIONS_MAX = 32
VALUE_CHARS_MAX = 1_024
TENANT = "homingtenant"  # an extension: the tenant, for keys of the operator
PARTITION_KEY = "partitionkey"  # an extension of CloudEvents: the key of the event
REQUIRED = ("specversion", "id", "source", "type")

_BASE64 = "data_base64"
_NAME = re.compile(r"[a-z0-9]{1,40}").fullmatch
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]").search
_MEDIA_TYPE = re.compile(r"[!#$&^_.+A-Za-z0-9-]+/[!#$&^_.+A-Za-z0-9-]+(?:[ \t]*;[ -~]*)?").fullmatch
_JSON_TYPE = re.compile(r"[^/]+/(?:[^/;]+\+)?json\s*(?:;|\Z)", re.IGNORECASE | re.ASCII).match
_NOT_IN_CONTEXT = frozenset((*REQUIRED, "time", TENANT, PARTITION_KEY))
_TEXTS = frozenset(
    (*REQUIRED, "time", "subject", "datacontenttype", "dataschema", TENANT, PARTITION_KEY)
)
_MIN, _MAX = -(2**31), 2**31 - 1

NAME_RULE = "must have a name of 1 to 40 of the characters a-z 0-9"
TEXT_RULE = f"must be 1 to {VALUE_CHARS_MAX} characters without control characters"
VALUE_RULE = "must be a string, a boolean, or an integer of 32 bits"
BASE64_RULE = "must be a string of base64, as in RFC 4648, section 4"
VERSION_RULE = f'must be "{SPEC_VERSION}", which is the version that Homing reads'


class Content(Struct, frozen=True):
    """The data of a CloudEvent as JSON; ``base64``: it is a string of base64."""

    data: bytes = b"null"
    base64: bool = False


# --- reading --------------------------------------------------------------------------------


def read(
    attributes: Mapping[str, Value], content: Content, *, tenant: str, trace: str, where: str
) -> tuple[EventDraft | None, list[FieldProblem]]:
    """The event of a CloudEvent; None, with the problems, if an attribute is wrong.

    The rules for types, times and tenants are those of every event, which are checked later.
    """
    problems = [FieldProblem(f"{where}.{it}", "must be given") for it in REQUIRED]
    problems = [it for it in problems if it.field.rpartition(".")[2] not in attributes]
    extensions = 0
    for name, value in attributes.items():
        reason = _problem(name, value)
        if reason:
            shown = name if _NAME(name) else "extensions"
            problems.append(FieldProblem(f"{where}.{shown}", reason))
        extensions += name not in _TEXTS
    if extensions > EXTENSIONS_MAX:
        reason = f"must have at most {EXTENSIONS_MAX} extension attributes"
        problems.append(FieldProblem(where, reason))
    if problems:
        return None, problems
    given, source = str(attributes["id"]), str(attributes["source"])
    key = given if is_key(given) else _made_id(source, given)
    context: dict[str, Value] = {
        name: value for name, value in attributes.items() if name not in _NOT_IN_CONTEXT
    }
    context["source"] = source
    if key != given:
        context["id"] = given
    if content.base64:
        context[_BASE64] = True
    time, about = attributes.get("time"), attributes.get(PARTITION_KEY)
    return (
        EventDraft(
            str(attributes.get(TENANT, tenant)),
            str(attributes["type"]),
            content.data,
            key,
            None if time is None else str(time),
            read_traceparent(str(attributes.get("traceparent", ""))) or trace,
            msgspec.json.encode(context, order="sorted").decode(),
            None if about is None else str(about),
        ),
        [],
    )


def is_base64(text: str) -> bool:
    """Whether a text is base64 with its padding."""
    try:
        binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return False
    return True


def is_json_type(media_type: str) -> bool:
    """Whether data of this type is JSON: ``application/json``, or a type that ends with +json."""
    return not media_type or _JSON_TYPE(media_type) is not None


def header_text(value: bytes) -> str:
    """The attribute that a header has: percent-encoded UTF-8, in quotes or not."""
    text = value.strip(b" \t")
    if len(text) > 1 and text.startswith(b'"') and text.endswith(b'"'):
        text = re.sub(rb"\\(.)", rb"\1", text[1:-1])
    return unquote_to_bytes(text).decode(errors="surrogateescape")


def _problem(name: str, value: Value) -> str:
    """Why an attribute is refused; empty if it is not."""
    if _NAME(name) is None:
        return NAME_RULE
    if name in _TEXTS and not isinstance(value, str):
        return "must be a string"
    if isinstance(value, str):
        if not 1 <= len(value) <= VALUE_CHARS_MAX or _CONTROL(value):
            return TEXT_RULE
    elif not _MIN <= value <= _MAX:
        return VALUE_RULE
    if name == "specversion" and value != SPEC_VERSION:
        return VERSION_RULE
    if name == PARTITION_KEY and not is_order_key(str(value)):
        return ORDER_KEY_RULE
    if name == "datacontenttype" and _MEDIA_TYPE(str(value)) is None:
        return "must be a media type like application/json"
    return ""


def _made_id(source: str, given: str) -> str:
    """An id that is the same for the same source and id, for an id that Homing cannot use."""
    return "ce_" + hashlib.sha256(f"{source}\0{given}".encode()).hexdigest()[:32]


# --- writing --------------------------------------------------------------------------------


def attributes_of(event: Event) -> dict[str, Value]:
    """The attributes of an event, without its data; an event of Homing has its tenant as source."""
    attributes: dict[str, Value] = {
        "specversion": SPEC_VERSION,
        "id": event.key,
        "source": f"urn:homing:{quote(event.tenant, safe='')}",
        "type": event.type,
        "time": event.time,
        "datacontenttype": "application/json",
    }
    if event.order_key:
        attributes[PARTITION_KEY] = event.order_key
    if event.context:
        context = msgspec.json.decode(event.context, type=dict[str, Value])
        if context.pop(_BASE64, False):
            del attributes["datacontenttype"]
        attributes |= context
    return attributes


def structured_body(event: Event) -> bytes:
    """CloudEvents 1.0, structured mode; source and id together are unique, as they must be."""
    name = _BASE64 if _is_base64(event) else "data"
    head = msgspec.json.encode(attributes_of(event))
    return b'%b,"%b":%b}' % (head[:-1], name.encode(), event.data)


def binary_body(event: Event) -> bytes:
    """The data alone: JSON as it came, and data of another type as its own bytes."""
    if _is_base64(event):
        return binascii.a2b_base64(msgspec.json.decode(event.data, type=str))
    kind = attributes_of(event)["datacontenttype"] if event.context else ""
    if not is_json_type(str(kind)) and event.data[:1] == b'"':
        return msgspec.json.decode(event.data, type=str).encode()
    return event.data


def binary_headers(event: Event) -> bytes:
    """The header lines with the content type of the data and the other attributes."""
    attributes = attributes_of(event)
    kind = str(attributes.pop("datacontenttype", "application/octet-stream"))
    lines = [f"ce-{name}: {_header_value(value)}\r\n" for name, value in attributes.items()]
    return "".join((f"content-type: {kind}\r\n", *lines)).encode()


def key_line(event: Event) -> bytes:
    """The header line with the key of an event, written as an attribute in a header is."""
    return f"homing-key: {_header_value(event.order_key)}\r\n".encode()


def context_of(event: Event) -> dict[str, Value] | None:
    """The attributes that only the CloudEvents formats send; None if it was no CloudEvent."""
    if not event.context:
        return None
    found = msgspec.json.decode(event.context, type=dict[str, Value])
    return {name: value for name, value in found.items() if name != _BASE64}


def _is_base64(event: Event) -> bool:
    return bool(event.context) and f'"{_BASE64}":true' in event.context


def _header_value(value: Value) -> str:
    """Percent-encoded as the HTTP binding asks: space, quote, percent, and all but visible ASCII.

    The name of a boolean is that of JSON.
    """
    if isinstance(value, str):
        return quote(value, safe=_UNCHANGED)
    return str(value).lower()


_UNCHANGED = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
