"""Keyed hashes of the ids of erased events: a repeated id is recognised, and nothing reveals it.

An event's id and content may be guessed, so plain hashes would reveal them to everybody who can
read the database. The database has the key only encrypted (``policy.hash_keys``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from msgspec import Struct

HASH_BYTES = 24


class ErasedId(Struct, frozen=True, gc=False, array_like=True):
    """What is kept of an event's id, and the key under which a hash of its content is kept."""

    hash: bytes  # of tenant and id
    content_key: bytes  # never stored

    def content(self, content_hash: bytes) -> bytes:
        """What is kept of the event's content."""
        return hashlib.blake2b(content_hash, digest_size=HASH_BYTES, key=self.content_key).digest()


class ErasedIds:
    """Makes the hashes. New ones are made with the first key, and known ones found with all."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = keys

    def of(self, tenant: str, key: str) -> tuple[ErasedId, ...]:
        """The hashes of an event's id, the one for new rows first."""
        text = f"erased\0{tenant}\0{key}".encode()
        digests = [
            hashlib.blake2b(text, digest_size=2 * HASH_BYTES, key=it).digest() for it in self._keys
        ]
        return tuple(ErasedId(it[:HASH_BYTES], it[HASH_BYTES:]) for it in digests)
