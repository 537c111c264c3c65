"""Keyed hashes of the ids of erased events: a repeated id is recognised, and nothing reveals it.

An event's id and content may be guessed, so plain hashes would reveal them to everybody who can
read the database. The key is not in the database.
"""

from __future__ import annotations

import hashlib

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

    __slots__ = ("_hashers",)

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        self._hashers = tuple(
            hashlib.blake2b(b"erased\0", digest_size=2 * HASH_BYTES, key=key) for key in keys
        )

    def __bool__(self) -> bool:
        return bool(self._hashers)

    def of(self, tenant: str, key: str) -> tuple[ErasedId, ...]:
        """The hashes of an event's id, the one for new rows first."""
        text = f"{tenant}\0{key}".encode()
        found = []
        for hasher in self._hashers:
            made = hasher.copy()
            made.update(text)
            digest = made.digest()
            found.append(ErasedId(digest[:HASH_BYTES], digest[HASH_BYTES:]))
        return tuple(found)
