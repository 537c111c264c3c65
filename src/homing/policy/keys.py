"""API keys: their roles, their text, and the part that is stored.

A key reads ``hk_PREFIX_SECRET``. The prefix is public: the key is found and named by it. The secret
has 256 bits; only its SHA-256 is stored, which is enough for a text that cannot be guessed.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b32encode, urlsafe_b64encode
from enum import StrEnum
from hmac import compare_digest

from msgspec import Struct

PREFIX_BYTES = 8
SECRET_BYTES = 32
NAME_LENGTH_MAX = 100

_KEY = re.compile(rb"hk_([a-z2-7]{13})_([A-Za-z0-9_-]{43})")


class Role(StrEnum):
    """The uses of a key. Keys of publishers, managers and viewers belong to one tenant."""

    ADMIN = "admin"  # everything, of all tenants
    PUBLISHER = "publisher"  # posts events
    MANAGER = "manager"  # subscriptions, endpoints, deliveries, replays
    VIEWER = "viewer"  # reads
    METRICS = "metrics"  # reads the metrics of a process, and nothing else


class ApiKey(Struct, frozen=True, kw_only=True):
    """A key as it is stored: without its secret."""

    id: int
    prefix: str
    hash: bytes
    name: str
    role: Role
    tenant: str | None  # None: for admin and metrics keys
    created_at: int
    expires_at: int | None = None
    last_used_at: int | None = None
    revoked_at: int | None = None

    def works(self, now: int) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def __repr__(self) -> str:
        return f"ApiKey({self.prefix}, {self.role}, {self.tenant})"


class KeyText(Struct, frozen=True):
    """A key as its holder sends it: its prefix, and the hash of its secret."""

    prefix: str
    hash: bytes

    def fits(self, key: ApiKey) -> bool:
        """Whether it is the text of this key; compared in constant time."""
        return compare_digest(self.hash, key.hash)

    def __repr__(self) -> str:
        return f"KeyText({self.prefix})"


def write_key(random: bytes) -> str:
    """The text of a new key from random bytes."""
    assert len(random) == PREFIX_BYTES + SECRET_BYTES
    prefix = b32encode(random[:PREFIX_BYTES]).rstrip(b"=").lower()
    secret = urlsafe_b64encode(random[PREFIX_BYTES:]).rstrip(b"=")
    return f"hk_{prefix.decode()}_{secret.decode()}"


def read_key(text: bytes) -> KeyText | None:
    """The parts of a key; None if the text does not have the form of a key."""
    found = _KEY.fullmatch(text)
    if found is None:
        return None
    return KeyText(found[1].decode(), hashlib.sha256(found[2]).digest())
