"""Format ``workfront``: an event as Adobe Workfront's event subscriptions deliver it.

``newState`` and ``oldState`` are copied out of the event's data byte for byte. Version ``v1``
differs in one thing: a list of one text is replaced by that text, for receivers and for filters.
"""

from __future__ import annotations

import re
from base64 import b64encode
from json import JSONDecoder

import msgspec
from msgspec import Raw, Struct, field
from msgspec.json import encode
from msgspec.structs import replace

from homing.model import Event, Format, Subscription, Workfront, show_id
from homing.policy.filters_values import read_moment
from homing.policy.workfront_ids import show_uuid

V1, V2 = "v1", "v2"
VERSIONS = (V1, V2)
BOTH_VERSIONS_MS = 5 * 60 * 1000  # after a change of version every event is sent in both
STATES = ("newState", "oldState")
_EMPTY = b"{}"
_DEPTH_MAX = 16
COLLAPSE_MAX = 8_000  # lists and objects of a state: it is read in one turn of the event loop
_TEXT = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_NEXT_BRACKET = re.compile(rf'(?:[^"\[\]{{}}]++|{_TEXT})*+([\[\]{{}}])', re.DOTALL).match
_ONE_TEXT = re.compile(rf"\[\s*({_TEXT})\s*\]", re.DOTALL)
_scan = JSONDecoder(parse_int=len, parse_float=len, strict=False).scan_once  # type: ignore[attr-defined]
_TOO_FINE = re.compile(r"(\.[0-9]{9})[0-9]+")


class Frame(Struct, frozen=True):
    """The parts of a message that depend on the subscription."""

    subscription_id: bytes  # as JSON
    version: bytes  # as JSON
    base64: bool = False
    collapsed: bool = False


class _Sides(Struct, frozen=True):
    new: Raw = field(name="newState", default_factory=Raw)
    old: Raw = field(name="oldState", default_factory=Raw)
    user: Raw = field(name="userId", default_factory=Raw)


_sides = msgspec.json.Decoder(_Sides)


def frame_of(subscription: Subscription) -> Frame:
    """The frame of a subscription; ``v2``, not encoded, if the Workfront API did not create it."""
    own = subscription.workfront
    if own is None:
        return Frame(encode(show_id("sub", subscription.id)), encode(V2))
    shown = show_uuid(own.twin_of or subscription.id)
    return Frame(encode(shown), encode(own.version), own.base64, own.version == V1)


def twin_after(subscription: Subscription, twin: Subscription, *, now: int) -> Subscription:
    """The twin after a change of its subscription: all settings are the same for both.

    With a format that has no versions the twin becomes inactive, as after its time.
    """
    own = subscription.workfront or Workfront()
    was = twin.workfront or Workfront()
    return replace(
        subscription,
        id=twin.id,
        created_at=twin.created_at,
        version=twin.version,
        active=(
            subscription.active
            and subscription.format is Format.WORKFRONT
            and now < (was.until or 0)
        ),
        description=twin.description,
        workfront=replace(
            own,
            version=was.version,
            version_at=was.version_at,
            twin_of=subscription.id,
            until=was.until,
        ),
    )


def twin_of(
    subscription: Subscription, before: Subscription | None, *, new_id: int, now: int
) -> Subscription:
    """A twin that sends the present version of a subscription for the next five minutes.

    ``before`` is the twin of an earlier change, which is reused.
    """
    own = subscription.workfront or Workfront()
    shown = show_id("sub", subscription.id)
    twin = replace(
        subscription if before is None else before,
        workfront=replace(own, until=now + BOTH_VERSIONS_MS),
        description=f"Until five minutes after its change: {own.version} of {shown}.",
    )
    if before is None:
        twin = replace(twin, id=new_id, created_at=now, version=0)
    return twin_after(subscription, twin, now=now)


def workfront_body(event: Event, frame: Frame) -> bytes:
    """The message for an event."""
    try:
        sides = _sides.decode(event.data)
    except (msgspec.DecodeError, RecursionError):
        sides = _Sides()
    user = bytes(sides.user)
    return b"".join(
        (
            b'{"eventType":',
            encode(event.type.rpartition(".")[2]),
            b',"subscriptionId":',
            frame.subscription_id,
            b',"eventTime":',
            _time(event),
            b',"eventVersion":',
            frame.version,
            b',"subscriptionVersion":',
            frame.version,
            b',"customerId":',
            encode(event.tenant),
            b',"userId":' + user if user else b"",
            b',"newState":',
            _state(bytes(sides.new), frame),
            b',"oldState":',
            _state(bytes(sides.old), frame),
            b"}",
        )
    )


def _state(raw: bytes, frame: Frame) -> bytes:
    text = _EMPTY if raw in {b"", b"null"} else raw
    if frame.collapsed:
        text = collapse(text)
    return b'"' + b64encode(text) + b'"' if frame.base64 else text


def _time(event: Event) -> bytes:
    moment = read_moment(_TOO_FINE.sub(r"\1", event.time))
    if moment is None:
        moment = event.accepted_at * 1_000_000
    return b'{"epochSecond":%d,"nano":%d}' % divmod(moment, 10**9)


def collapse(raw: bytes) -> bytes:
    """A state with every list of one text replaced by that text; all else is kept byte for byte.

    Only fields of objects in objects are changed, never the inside of a list. A state that
    has more than COLLAPSE_MAX brackets, or eight times as many escapes, is left as it is.
    """
    if raw.count(b"[") + raw.count(b"{") + raw.count(b"\\") // 8 > COLLAPSE_MAX:
        return raw
    text = raw.decode()
    if _ONE_TEXT.search(text) is None:
        return raw
    kept: list[str] = []
    copied = at = objects = 0
    while (found := _NEXT_BRACKET(text, at)) is not None:
        at = found.end()
        if found[1] == "{":
            objects += 1
        elif found[1] == "}":
            objects -= 1
        elif objects <= _DEPTH_MAX and (only := _ONE_TEXT.match(text, at - 1)) is not None:
            kept += (text[copied : at - 1], only[1])
            copied = at = only.end()
        else:
            at = _end_of_list(text, at)
    return "".join((*kept, text[copied:])).encode()


def _end_of_list(text: str, at: int) -> int:
    """Where a list ends that begins just before ``at``."""
    try:
        return int(_scan(text, at - 1)[1])
    except RecursionError:
        pass
    lists = 1
    while lists and (found := _NEXT_BRACKET(text, at)) is not None:
        at = found.end()
        lists += {"[": 1, "]": -1}.get(found[1], 0)
    return at
