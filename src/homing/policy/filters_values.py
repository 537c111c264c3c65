"""Reads a text as a number or as a date, if it is one."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal

NUMBER_CHARS_MAX = 40
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?").fullmatch
_DATE = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]|60)(?:[.:,]([0-9]{1,9}))?)?"
    r"(?:[Zz]|([+-])([01][0-9]|2[0-3])(?::?([0-5][0-9]))?)?)?"
).fullmatch
_DATE_CHARS_MIN = 10
_USUAL_CHARS = len("2026-03-01T17:00:00.000-0600")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_number(text: str) -> int | Decimal | None:
    """The number in a text; None if the text is not a number."""
    if len(text) > NUMBER_CHARS_MAX:
        return None
    found = _NUMBER(text)
    if found is None:
        return None
    return int(text) if found[1] is None and found[2] is None else Decimal(text)


def read_moment(text: str) -> int | None:
    """Nanoseconds since 1970 of a date, with or without a time; without an offset it is UTC."""
    if len(text) < _DATE_CHARS_MIN or text[4] != "-":
        return None
    if len(text) == _USUAL_CHARS and (moment := _usual_moment(text)) is not None:
        return moment
    found = _DATE(text)
    if found is None:
        return None
    day, hour, minute, second, fraction, sign, off_hour, off_minute = found.groups()
    try:
        days = date.fromisoformat(day).toordinal() - 719_163
    except ValueError:
        return None
    minutes = days * 1440 + int(hour or 0) * 60 + int(minute or 0)
    if sign:
        offset = int(off_hour) * 60 + int(off_minute or 0)
        minutes += offset if sign == "-" else -offset
    return (minutes * 60 + int(second or 0)) * 10**9 + int((fraction or "").ljust(9, "0"))


def _usual_moment(text: str) -> int | None:
    """As ``read_moment``, ten times faster, for the form that Workfront writes; None for others."""
    if text[10] != "T" or text[19] != "." or text[23] not in "+-" or text[13] != ":":
        return None
    if not text.isascii() or not text[24:].isdigit() or text[26] > "5":
        return None
    if text[11:13] == "24":  # From Python 3.14 on, fromisoformat takes it as the next midnight.
        return None
    try:
        since = datetime.fromisoformat(text) - _EPOCH
    except (ValueError, OverflowError):
        return None
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1_000
