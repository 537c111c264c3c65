"""Signatures after Standard Webhooks v1: HMAC-SHA256 over ``id.timestamp.body``.

Every attempt is signed, and HMAC begins by hashing two blocks made from the key. A ``Signer`` does
that once per secret and then copies the two hash states, which saves about half of the work for
small bodies. The key itself is not kept.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from binascii import b2a_base64

from homing.errors import FieldProblem, Invalid

PREFIX = "whsec_"
KEY_BYTES_MIN = 24
KEY_BYTES_MAX = 64

_BLOCK = 64  # of SHA-256
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))


def read_secret(text: str) -> bytes:
    """The key behind ``whsec_…``; raises Invalid, and never repeats the text."""
    if not text.startswith(PREFIX):
        raise _refused(f"must begin with {PREFIX}")
    coded = text[len(PREFIX) :].rstrip("=")
    try:
        key = b64decode(coded + "=" * (-len(coded) % 4), validate=True)
    except ValueError:
        raise _refused("must be base64 after its prefix") from None
    if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        raise _refused(f"must be {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes in base64")
    return key


def new_secret(random_bytes: bytes) -> str:
    """The text of a new secret from random bytes."""
    assert KEY_BYTES_MIN <= len(random_bytes) <= KEY_BYTES_MAX
    return PREFIX + b64encode(random_bytes).decode("ascii")


class Signer:
    """Signs with one secret."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret_text: str) -> None:
        block = read_secret(secret_text).ljust(_BLOCK, b"\0")
        self._inner = hashlib.sha256(block.translate(_INNER))
        self._outer = hashlib.sha256(block.translate(_OUTER))

    def sign(self, webhook_id: bytes, timestamp: bytes, body: bytes) -> bytes:
        """``v1,`` and the signature in base64: one entry of the ``webhook-signature`` header."""
        return b"v1," + b2a_base64(self.digest(webhook_id, timestamp, body), newline=False)

    def digest(self, webhook_id: bytes, timestamp: bytes, body: bytes) -> bytes:
        """The signature itself."""
        inner = self._inner.copy()
        inner.update(b"%b.%b." % (webhook_id, timestamp))
        inner.update(body)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()

    def __repr__(self) -> str:
        return "Signer(****)"


def _refused(reason: str) -> Invalid:
    return Invalid(problems=(FieldProblem("secret", reason),))
