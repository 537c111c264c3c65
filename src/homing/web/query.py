"""Reads query parameters; an unknown or invalid parameter is refused with its name."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Collection
from enum import StrEnum
from typing import TypeVar
from urllib.parse import parse_qsl

from msgspec import DecodeError, Struct, msgpack

from homing.errors import BadRequest, FieldProblem, Invalid
from homing.languages.sentences import say
from homing.policy.admission import (
    KEY_RULE,
    TYPE_RULE,
    is_key,
    is_type,
    tenant_problem,
)
from homing.policy.causes import code_problem, failure_problem
from homing.policy.moments import moment, read_duration
from homing.policy.workfront_ids import read_either_id
from homing.web.texts import shown_name, text_problems

LIMIT_DEFAULT = 50
LIMIT_MAX = 200
PARAMETERS_MAX = 50
URL_PART_MAX = 200

_CURSOR_RULE = say("must be the next_cursor of an earlier response")

_E = TypeVar("_E", bound=StrEnum)
_P = TypeVar("_P", bound=Struct)


class Query:
    """The parameters of one request; raises BadRequest or Invalid.

    If ``known`` is None, every name is allowed.
    """

    def __init__(self, query_string: bytes, known: Collection[str] | None) -> None:
        self._given: dict[str, str] = {}
        if not query_string:
            return
        try:
            pairs = parse_qsl(
                query_string.decode("latin-1"),
                keep_blank_values=True,
                max_num_fields=PARAMETERS_MAX,
                errors="surrogateescape",  # A byte that is not UTF-8 is refused with its name.
            )
        except ValueError:
            raise BadRequest(
                say("At most {limit} query parameters are allowed.", limit=PARAMETERS_MAX)
            ) from None
        problems = text_problems(pairs)
        for name, value in pairs:
            if known is not None and name not in known:
                problems.append(FieldProblem(shown_name(name), "is not a known parameter"))
            elif name in self._given:
                problems.append(FieldProblem(shown_name(name), say("must not be given twice")))
            self._given[name] = value
        if problems:
            raise Invalid(problems=tuple(problems))

    def text(self, name: str) -> str:
        """The value of a parameter without outer spaces; empty if it is absent."""
        return self._given.get(name, "").strip()

    def tenant(self) -> str | None:
        """The parameter ``tenant``; None if it is absent."""
        tenant = self._given.get("tenant")
        if tenant is not None and (problems := tenant_problem(tenant)):
            raise Invalid(problems=problems)
        return tenant

    def event_type(self) -> str | None:
        value = self._given.get("type")
        if value is not None and not is_type(value):
            raise _refused("type", TYPE_RULE)
        return value

    def event_key(self) -> str | None:
        value = self._given.get("event")
        if value is not None and not is_key(value):
            raise _refused("event", KEY_RULE)
        return value

    def url_part(self) -> str | None:
        value = self._given.get("url")
        if value is not None and (reason := url_part_problem(value)):
            raise _refused("url", reason)
        return value

    def id(self, name: str, prefix: str) -> int | None:
        value = self._given.get(name)
        return None if value is None else id_field(value, name, prefix)

    def choice(self, name: str, choices: type[_E]) -> _E | None:
        value = self._given.get(name)
        if value is None:
            return None
        try:
            return choices(value)
        except ValueError:
            reason = say("must be one of {names}", names=", ".join(choices))
            raise _refused(name, reason) from None

    def flag(self, name: str) -> bool | None:
        value = self._given.get(name)
        if value is None:
            return None
        if value not in {"true", "false"}:
            raise _refused(name, "must be true or false")
        return value == "true"

    def failure(self) -> str | None:
        """The failure class of an attempt."""
        value = self._given.get("failure")
        if value is not None and (reason := failure_problem(value)):
            raise _refused("failure", reason)
        return value

    def code(self) -> int | None:
        """The status code of a response."""
        value = self._given.get("code")
        if value is None:
            return None
        number = int(value) if re.fullmatch(r"[0-9]{3}", value) else 0
        if reason := code_problem(number):
            raise _refused("code", reason)
        return number

    def since(self, name: str, *, now: int) -> int | None:
        value = self._given.get(name)
        return None if value is None else moment(value, name, now=now)

    def duration_ms(self, name: str) -> int | None:
        value = self._given.get(name)
        if value is None:
            return None
        duration = read_duration(value)
        if duration is None:
            raise _refused(name, "must be a duration like 30m, 2h or 7d")
        return duration

    def cursor(self) -> int | None:
        value = self._given.get("cursor")
        if value is None:
            return None
        number = read_cursor(value)
        if number is None:
            raise _refused("cursor", _CURSOR_RULE)
        return number

    def place(self, kind: type[_P]) -> _P | None:
        """The cursor of a list whose place is more than an id."""
        value = self._given.get("cursor")
        if value is None:
            return None
        try:
            found = msgpack.decode(urlsafe_b64decode(value.encode() + b"=="), type=kind)
        except (NotBase64, ValueError, DecodeError):
            raise _refused("cursor", _CURSOR_RULE) from None
        if show_place(found) != value:
            raise _refused("cursor", _CURSOR_RULE)
        return found

    def count(self, name: str, *, default: int, maximum: int) -> int:
        """A number from 1 to ``maximum``; a number outside this range becomes the nearest bound."""
        value = self._given.get(name) or str(default)
        if re.fullmatch(r"-?[0-9]{1,9}", value) is None:
            raise _refused(name, f"must be a number from 1 to {maximum}")
        return min(max(int(value), 1), maximum)

    def number(self, name: str) -> int | None:
        """A number from 0 on; None if it is absent."""
        value = self._given.get(name)
        if value is None:
            return None
        if re.fullmatch(r"[0-9]{1,15}", value) is None:
            raise _refused(name, "must be a number")
        return int(value)

    def limit(self) -> int:
        value = self._given.get("limit", str(LIMIT_DEFAULT))
        if re.fullmatch(r"[0-9]{1,3}", value) is None or not 1 <= int(value) <= LIMIT_MAX:
            raise _refused("limit", f"must be 1 to {LIMIT_MAX}")
        return int(value)


def id_field(value: str, name: str, prefix: str) -> int:
    """The number in an id; raises Invalid."""
    number = read_either_id(prefix, value)
    if number is None:
        raise _refused(name, say("must be an id like {example}", example=f"{prefix}_01k9x3w8z4g00"))
    return number


def url_part_problem(value: str) -> str | None:
    """The reason why this text cannot be part of a URL; None if it can."""
    if 1 <= len(value) <= URL_PART_MAX and value.isascii() and value.isprintable():
        return None
    return say("must be 1 to {limit} characters of a URL", limit=URL_PART_MAX)


def show_cursor(number: int | None) -> str | None:
    """An id as an opaque cursor."""
    if number is None:
        return None
    return urlsafe_b64encode(number.to_bytes(8, "big")).rstrip(b"=").decode()


def show_place(place: Struct | None) -> str | None:
    """A place of integers as an opaque cursor."""
    if place is None:
        return None
    return urlsafe_b64encode(msgpack.encode(place)).rstrip(b"=").decode()


def read_cursor(text: str) -> int | None:
    """The id in a cursor; None if the text is not a cursor."""
    try:
        raw = urlsafe_b64decode(text.encode() + b"=")
    except (NotBase64, ValueError):
        return None
    number = int.from_bytes(raw, "big")
    return number if number < 1 << 63 and show_cursor(number) == text else None


def _refused(name: str, reason: str) -> Invalid:
    return Invalid(problems=(FieldProblem(name, reason),))
