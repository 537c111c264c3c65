"""CloudEvents in the body and headers of a publish: structured, batched and binary mode.

``data`` is copied from the body byte for byte. The attributes of an event have a limit in bytes,
which is checked before they are read one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.json import Decoder

from homing.errors import BadRequest, FieldProblem, Invalid, TooLarge
from homing.policy.admission import EVENT_BYTES_MAX, PROBLEMS_MAX, EventDraft
from homing.policy.cloudevents import (
    ATTRIBUTES_BYTES_MAX,
    BASE64_RULE,
    VALUE_RULE,
    Content,
    Value,
    header_text,
    is_base64,
    is_json_type,
    read,
)
from homing.policy.nesting import LEVELS_RULE
from homing.web.api.batch import cut
from homing.web.body import check_utf8, field_problem
from homing.web.texts import shown_name

STRUCTURED = "application/cloudevents+json"
BATCHED = "application/cloudevents-batch+json"
MARK = b"ce-specversion"  # the header that tells binary mode

_PREFIX = b"ce-"
_ANY_FORMAT = b"application/cloudevents"


class Mode(Enum):
    """How a request carries CloudEvents."""

    STRUCTURED = auto()
    BATCHED = auto()
    BINARY = auto()


class _Envelope(Struct, frozen=True):
    """The data of a CloudEvent; its attributes are read after their size is known."""

    data: Raw | UnsetType = UNSET
    data_base64: Raw | UnsetType = UNSET


_envelope = Decoder(_Envelope)
_attributes = Decoder(dict[str, Raw])
_value = Decoder(str | bool | int | None)
_text = Decoder(str)
_any = Decoder(Raw)


def is_cloudevents(content_type: bytes) -> bool:
    """Whether a content type is a format of CloudEvents, supported or not."""
    return content_type.lower().startswith(_ANY_FORMAT)


def mode_of(content_type: bytes) -> Mode | None:
    """The mode that a content type names, None if it names none; raises BadRequest."""
    if not is_cloudevents(content_type):
        return None
    kind = content_type.partition(b";")[0].strip().lower().decode("latin-1")
    if kind == STRUCTURED:
        return Mode.STRUCTURED
    if kind == BATCHED:
        return Mode.BATCHED
    raise BadRequest(
        f"The content type {kind[:64]} is not supported: send {STRUCTURED} or {BATCHED}."
    )


def read_drafts(
    body: bytes,
    tenant: str,
    *,
    mode: Mode,
    headers: Iterable[tuple[bytes, bytes]],
    trace: str,
) -> list[EventDraft]:
    """The events of a request, by default for this tenant.

    Raises BadRequest, TooLarge, or Invalid with all wrong attributes.
    """
    if mode is Mode.BINARY:
        return [_read_binary(body, headers, tenant=tenant, trace=trace)]
    drafts: list[EventDraft] = []
    problems: list[FieldProblem] = []
    for index, item in enumerate(_items(body, mode)):
        where = f"events[{index}]"
        try:
            drafts.append(_read_one(item, tenant=tenant, trace=trace, where=where))
        except Invalid as error:
            problems += error.problems
        except msgspec.ValidationError as error:
            problems.append(field_problem(error, where))
        except msgspec.DecodeError as error:
            raise BadRequest(problems=(FieldProblem(where, f"is not JSON: {error}"),)) from None
        except RecursionError:
            problems.append(FieldProblem(f"{where}.data", LEVELS_RULE))
        if len(problems) >= PROBLEMS_MAX:
            break
    if problems:
        raise Invalid(problems=tuple(problems[:PROBLEMS_MAX]))
    return drafts


def _items(body: bytes, mode: Mode) -> list[bytes]:
    check_utf8(body)
    if mode is Mode.STRUCTURED:
        return [body]
    if body.lstrip()[:1] != b"[":
        raise BadRequest(f"The body of {BATCHED} must be an array of events.")
    items = [bytes(item) for item in cut(body)]
    if not items:
        raise Invalid(problems=(FieldProblem("events", "must contain at least one event"),))
    return items


def _read_one(item: bytes, *, tenant: str, trace: str, where: str) -> EventDraft:
    content, attributes_bytes = _content_of(item, where)
    if attributes_bytes > ATTRIBUTES_BYTES_MAX:
        reason = f"must have attributes of at most {ATTRIBUTES_BYTES_MAX} bytes in all, spaces too"
        raise Invalid(problems=(FieldProblem(where, reason),))
    attributes: dict[str, Value] = {}
    problems: list[FieldProblem] = []
    for name, raw in _attributes.decode(item).items():
        if name in {"data", "data_base64"}:
            continue
        try:
            value = _value.decode(raw)
        except msgspec.DecodeError:
            problems.append(FieldProblem(f"{where}.{shown_name(name)}", VALUE_RULE))
            continue
        if value is not None:
            attributes[name] = value
    draft, found = read(attributes, content, tenant=tenant, trace=trace, where=where)
    if draft is None or problems:
        named = {it.field for it in problems}
        problems += [it for it in found if it.field not in named]
        raise Invalid(problems=tuple(problems))
    return draft


def _content_of(item: bytes, where: str) -> tuple[Content, int]:
    """The data of an event, and how many of its bytes are not its data."""
    envelope = _envelope.decode(item)
    data, base64 = envelope.data, envelope.data_base64
    if isinstance(data, Raw) and isinstance(base64, Raw):
        reason = "must not be given together with data: an event has one of both"
        raise Invalid(problems=(FieldProblem(f"{where}.data_base64", reason),))
    if isinstance(data, Raw):
        content = Content(bytes(data))
    elif isinstance(base64, Raw):
        content = Content(bytes(base64), base64=True)
    else:
        return Content(), len(item)
    if len(content.data) > EVENT_BYTES_MAX:
        raise TooLarge(problems=(FieldProblem(f"{where}.data", "must be at most 1 MiB"),))
    if isinstance(base64, Raw) and not _is_base64(base64):
        raise Invalid(problems=(FieldProblem(f"{where}.data_base64", BASE64_RULE),))
    return content, len(item) - len(content.data)


def _is_base64(raw: Raw) -> bool:
    try:
        return is_base64(_text.decode(raw))
    except msgspec.DecodeError:
        return False


# --- binary mode ----------------------------------------------------------------------------


def _read_binary(
    body: bytes, headers: Iterable[tuple[bytes, bytes]], *, tenant: str, trace: str
) -> EventDraft:
    where = "events[0]"
    attributes = dict(_attributes_of(headers))
    media_type = str(attributes.get("datacontenttype", ""))
    draft, problems = read(
        attributes, _content(body, media_type), tenant=tenant, trace=trace, where=where
    )
    if draft is None:
        raise Invalid(problems=tuple(problems[:PROBLEMS_MAX]))
    return draft


def _attributes_of(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[str, Value]]:
    for name, value in headers:
        if name == b"content-type":
            yield "datacontenttype", value.decode("latin-1")
        elif name.startswith(_PREFIX):
            yield name.removeprefix(_PREFIX).decode("latin-1"), header_text(value)


def _content(body: bytes, media_type: str) -> Content:
    """The body as data: JSON as it is, other text as a JSON string, other bytes as base64."""
    if not body:
        return Content()
    if len(body) > EVENT_BYTES_MAX:
        raise TooLarge(problems=(FieldProblem("events[0].data", "must be at most 1 MiB"),))
    if is_json_type(media_type):
        check_utf8(body)
        try:
            return Content(bytes(_any.decode(body)))
        except msgspec.DecodeError as error:
            raise BadRequest(f"The body is not JSON: {error}.") from None
        except RecursionError:
            raise Invalid(problems=(FieldProblem("events[0].data", LEVELS_RULE),)) from None
    try:
        return Content(msgspec.json.encode(body.decode()))
    except UnicodeDecodeError:
        return Content(msgspec.json.encode(body), base64=True)
