"""The ids of the Workfront-compatible API: UUIDs, as Adobe's are, made from the ids of Homing.

A UUID of version 8 (RFC 9562) holds the 63 bits of an id, and a hash of the id in all other bits.
So the same subscription always has the same UUID without a table, and every other UUID, even one
with a mistyped digit, is recognised as unknown.
"""

from __future__ import annotations

import hashlib
import re
from uuid import UUID

from homing.model import read_id

SUBSCRIPTION = "sub"
_LOW_BITS = 15  # of the id, at the end of the UUID; the other 48 bits are at its beginning
_CHECK_BITS = 59
_VERSION, _VARIANT = 8, 2
_FORM = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE).fullmatch


def show_uuid(number: int) -> str:
    """The UUID of the subscription with this id."""
    check = _check(number)
    high, low = number >> _LOW_BITS, number & ((1 << _LOW_BITS) - 1)
    value = high << 80 | _VERSION << 76 | (check >> 47) << 64
    value |= _VARIANT << 62 | (check & ((1 << 47) - 1)) << _LOW_BITS | low
    return str(UUID(int=value))


def read_uuid(text: str) -> int | None:
    """The id behind a UUID; None if it is not the UUID of an id."""
    if _FORM(text) is None:
        return None
    value = UUID(text).int
    number = (value >> 80) << _LOW_BITS | value & ((1 << _LOW_BITS) - 1)
    return number if show_uuid(number) == text.lower() else None


def read_either_id(prefix: str, text: str) -> int | None:
    """As ``read_id``; a subscription may also be named by its UUID, in every API."""
    number = read_id(prefix, text)
    return read_uuid(text) if number is None and prefix == SUBSCRIPTION else number


def _check(number: int) -> int:
    hashed = hashlib.blake2b(number.to_bytes(8), digest_size=8, person=b"workfront id").digest()
    return int.from_bytes(hashed) >> (64 - _CHECK_BITS)
