"""Signatures as in Standard Webhooks, over ``id.timestamp.body``: v1 (HMAC-SHA256), v1a (Ed25519).

Every attempt is signed, and HMAC begins by hashing two blocks made from the key. A ``Signer`` does
that once per secret and then copies the two hash states, which saves about half of the work for
small bodies. The key itself is not kept.

Ed25519 keys belong to a tenant. The text of a private key (``whsk_…``) is base64 of the seed and
the public key, 64 bytes, as Svix writes it; that of a public key (``whpk_…``) is base64 of its 32
bytes.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from base64 import urlsafe_b64encode as b64url
from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from homing.errors import FieldProblem, Invalid
from homing.languages.sentences import Sentence, say
from homing.model import Secret

PREFIX = "whsec_"
PRIVATE_PREFIX = "whsk_"
PUBLIC_PREFIX = "whpk_"
KEY_BYTES_MIN = 24
KEY_BYTES_MAX = 64
SEED_BYTES = 32  # of an Ed25519 key

_BLOCK = 64  # of SHA-256
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))


def read_secret(text: str) -> bytes:
    """The key behind ``whsec_…``; raises Invalid, and never repeats the text."""
    if not text.startswith(PREFIX):
        raise _refused(say("must begin with {prefix}", prefix=PREFIX))
    coded = text[len(PREFIX) :].rstrip("=")
    try:
        key = a2b_base64(coded + "=" * (-len(coded) % 4), strict_mode=True)
    except ValueError:
        raise _refused(say("must be base64 after its prefix")) from None
    if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        raise _refused(
            say("must be {min} to {max} bytes in base64", min=KEY_BYTES_MIN, max=KEY_BYTES_MAX)
        )
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


# --- Ed25519 --------------------------------------------------------------------------------


def new_private_key(seed: bytes) -> str:
    """The text of a new private key from random bytes."""
    assert len(seed) == SEED_BYTES
    public = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    return PRIVATE_PREFIX + b64encode(seed + public).decode("ascii")


class PublicKey(Struct, frozen=True):
    """A public key as receivers get it; ``until`` while it is being rotated out."""

    value: str  # whpk_ and base64
    kid: str  # its name in a JWK set: the thumbprint of RFC 7638
    x: str  # base64url, as a JWK has it
    until: int | None = None


def public_key(private: str, until: int | None = None) -> PublicKey:
    """The public key of a private one, which contains it."""
    key = _read_private(private)[SEED_BYTES:]
    x = _unpadded(key)
    members = f'{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}'
    kid = _unpadded(hashlib.sha256(members.encode()).digest())
    return PublicKey(PUBLIC_PREFIX + b64encode(key).decode("ascii"), kid, x, until)


class TenantSigner:
    """Signs with the Ed25519 keys of a tenant, which may be several during a rotation."""

    __slots__ = ("_signers", "public_keys")

    def __init__(self, keys: Sequence[Secret]) -> None:
        self._signers = [
            (Ed25519PrivateKey.from_private_bytes(_read_private(key.value)[:SEED_BYTES]), key.until)
            for key in keys
        ]
        self.public_keys = tuple(public_key(key.value, key.until) for key in keys)

    def sign(self, webhook_id: bytes, timestamp: bytes, body: bytes, *, now: int) -> list[bytes]:
        """``v1a,`` and the signature in base64, for each key that signs at this time."""
        found = self.digests(webhook_id, timestamp, body, now=now)
        return [b"v1a," + b2a_base64(it, newline=False) for it in found]

    def digests(self, webhook_id: bytes, timestamp: bytes, body: bytes, *, now: int) -> list[bytes]:
        """The signatures themselves, of 64 bytes each."""
        content = b"%b.%b.%b" % (webhook_id, timestamp, body)
        return [key.sign(content) for key, until in self._signers if until is None or now < until]

    def __repr__(self) -> str:
        return "TenantSigner(****)"


def _read_private(text: str) -> bytes:
    """The seed and the public key of a stored key."""
    key = b64decode(text.removeprefix(PRIVATE_PREFIX))
    assert len(key) == 2 * SEED_BYTES
    return key


def _unpadded(content: bytes) -> str:
    return b64url(content).rstrip(b"=").decode("ascii")


def _refused(reason: Sentence) -> Invalid:
    return Invalid(problems=(FieldProblem("secret", reason),))
