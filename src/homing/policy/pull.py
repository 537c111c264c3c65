"""Cursors of subscriptions without a URL: opaque, and valid for one subscription only.

A cursor is a position with a keyed hash of it and of its subscription. So a reader can only give
back a cursor that it got, and no cursor of another subscription. The hash keys are in the database
(``policy.hash_keys``): cursors stay valid after a move, after a restore and when the encryption key
is replaced.
"""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Sequence

from homing.errors import FieldProblem

DEFAULT_READER = "default"
READER_RULE = "must be 1 to 64 of the characters A-Z a-z 0-9 . _ -"
CURSOR_RULE = "must be a cursor of this subscription, as a response gave it"

_HASH_BYTES = 8
_READER = re.compile(r"[A-Za-z0-9._-]{1,64}").fullmatch


def reader_problem(name: str) -> tuple[FieldProblem, ...]:
    """The problem of a text that cannot name a reader; empty if it can."""
    return () if _READER(name) else (FieldProblem("reader", READER_RULE),)


class Cursors:
    """Writes and reads cursors; the first key writes, and all of them are read."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = keys

    def show(self, subscription_id: int, position: int) -> str:
        """The cursor of a position."""
        raw = position.to_bytes(8, "big")
        return _text(raw + _hash(self._keys[0], subscription_id, raw))

    def read(self, subscription_id: int, text: str) -> int | None:
        """The position of a cursor; None if it is not one of this subscription."""
        try:
            raw = urlsafe_b64decode(text.encode() + b"==")
        except (NotBase64, ValueError):
            return None
        place, given = raw[:8], raw[8:]
        if len(given) != _HASH_BYTES or _text(raw) != text:
            return None
        if given not in {_hash(key, subscription_id, place) for key in self._keys}:
            return None
        return int.from_bytes(place, "big")


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _hash(key: bytes, subscription_id: int, place: bytes) -> bytes:
    content = subscription_id.to_bytes(8, "big") + place
    return hashlib.blake2b(
        content, digest_size=_HASH_BYTES, key=key[:64], person=b"cursor"
    ).digest()
