"""Reads request bodies: limits their size while they arrive, decodes them, names wrong fields."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Hashable
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw
from starlette.types import Receive

from homing.app.access import Caller
from homing.errors import BadRequest, FieldProblem, Invalid, TooLarge, TooSlow
from homing.languages.sentences import say
from homing.policy.exact import decoder
from homing.policy.nesting import LEVELS_RULE
from homing.web.body_budget import SMALL_BYTES, BodyShare
from homing.web.texts import json_problems, raw_fields

PUBLISH_BYTES_MAX = 8 * 1024 * 1024
COMMAND_BYTES_MAX = 256 * 1024  # decoded in one call, during which no other request is served
ARRIVE_WITHIN_S = 60.0
CONTAINERS_MAX = 20_000  # of a command, without the data of an event
NAMES_MAX = 10_000
_DATA_KEPT_BYTES = 4 * 1024
_DIGITS_MAX = 20  # of a content-length

_T = TypeVar("_T")
_PLACE = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")


class ClientGone(Exception):
    """The client closed the connection before the request was complete."""


async def read_body(
    receive: Receive, *, declared: bytes | None, bytes_max: int, share: BodyShare, caller: Caller
) -> bytes:
    """The whole body; raises TooLarge, TooSlow or Busy as soon as that is known.

    Raises NotAuthorized if the caller's key, session or link ended while the body arrived.
    The caller must call ``share.release(body)`` after the response.
    """
    if declared is not None:
        if not declared.isdigit():
            raise BadRequest(say("The content-length is not a number."))
        if len(declared) > _DIGITS_MAX or int(declared) > bytes_max:
            raise _too_large(bytes_max)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    body: bytes = message.get("body", b"")
    if len(body) > bytes_max:
        raise _too_large(bytes_max)
    if not message.get("more_body", False):
        if len(body) > SMALL_BYTES:
            share.take(len(body))
        return body
    body = await _read_rest(receive, body, bytes_max, share)
    try:
        await caller.must_live()
    except BaseException:
        share.release(body)
        raise
    return body


async def _read_rest(receive: Receive, begin: bytes, bytes_max: int, share: BodyShare) -> bytes:
    share.take(len(begin))
    parts = [begin]
    try:
        async with asyncio.timeout(ARRIVE_WITHIN_S):
            await _arrive(receive, parts, bytes_max, share)
    except BaseException as error:
        share.give_back(sum(map(len, parts)))
        if isinstance(error, TimeoutError):
            raise TooSlow(
                say("The body did not arrive within {n} s.", n=int(ARRIVE_WITHIN_S))
            ) from None
        raise
    body = b"".join(parts)
    if len(body) <= SMALL_BYTES:
        share.give_back(len(body))
    return body


async def _arrive(receive: Receive, parts: list[bytes], bytes_max: int, share: BodyShare) -> None:
    """Adds the rest of the body to ``parts``; only bytes that have arrived use the budget."""
    size = len(parts[0])
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        more = message.get("more_body", False)
        size += len(part)
        if size > bytes_max:
            raise _too_large(bytes_max)
        share.take(len(part))
        parts.append(part)


def check_utf8(body: bytes) -> None:
    """Raises BadRequest if the body is not UTF-8, which the JSON decoder does not check."""
    if body.isascii():
        return
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"The body is not UTF-8 (byte {error.start}).") from None


def decode(body: bytes, kind: type[_T]) -> _T:
    """The body as this struct; raises BadRequest, or Invalid with the field."""
    check_utf8(body)
    if not body.strip():
        raise BadRequest("The request needs a JSON body.")
    if problems := json_problems(body, kind):
        raise Invalid(problems=tuple(problems))
    try:
        read = decoder(kind).decode(body)
        _check_names(_without_data(body, read))
    except msgspec.ValidationError as error:
        raise Invalid(problems=(field_problem(error),)) from None
    except msgspec.DecodeError as error:
        raise BadRequest(f"The body is not JSON: {error}.") from None
    except RecursionError:
        raise Invalid(problems=(FieldProblem("body", LEVELS_RULE),)) from None
    return read


def _without_data(body: bytes, read: object) -> bytes:
    """A command without the data of an event, which may have any number of names."""
    for name in raw_fields(cast("Hashable", type(read))):
        data = getattr(read, name)
        if isinstance(data, Raw) and len(data) > _DATA_KEPT_BYTES:
            body = body.replace(bytes(data), b"0", 1)
    return body


def _check_names(command: bytes) -> None:
    """Refuses a name that is given twice, and a command that would take long to check."""
    if command.count(b"[") + command.count(b"{") > CONTAINERS_MAX:
        raise BadRequest(f"It may have at most {CONTAINERS_MAX:,} lists and objects.")
    if command.count(b":") > NAMES_MAX:
        raise BadRequest(f"It may have at most {NAMES_MAX:,} names.")
    json.loads(command, object_pairs_hook=_once, parse_int=len, parse_float=len)


def _once(pairs: list[tuple[str, Any]]) -> None:
    """Raises BadRequest for a name given twice: JSON readers disagree on which value counts."""
    if len(dict(pairs)) < len(pairs):
        raise BadRequest(f"The body has {_first_twice(pairs)[:64]!r} twice in one object.")


def _first_twice(pairs: list[tuple[str, Any]]) -> str:
    """The first name that appears twice."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    raise AssertionError


def field_problem(error: msgspec.ValidationError, within: str = "") -> FieldProblem:
    """``Expected `str`, got `int` - at `$.types[0]` `` as a field and a reason."""
    text = str(error)
    place = _PLACE.search(text)
    path = place[1] if place else ""
    reason = text[: place.start()] if place else text
    if found := _UNKNOWN.match(reason):
        path, reason = _join(path, found[1][:64]), "is not a known field"
    elif found := _MISSING.match(reason):
        path, reason = _join(path, found[1]), "must be given"
    else:
        reason = "is invalid: " + reason[0].lower() + reason[1:].replace("`", "")
    return FieldProblem(_join(within, path) or "body", reason)


def _join(before: str, after: str) -> str:
    if not before or not after or after.startswith("["):
        return before + after
    return f"{before}.{after}"


def _too_large(bytes_max: int) -> TooLarge:
    if bytes_max < 1024 * 1024:
        return TooLarge(say("The body may have at most {n} KiB.", n=bytes_max // 1024))
    return TooLarge(say("The body may have at most {n} MiB.", n=bytes_max // (1024 * 1024)))
