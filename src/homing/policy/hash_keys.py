"""The keys of keyed hashes: of erased ids, cursors, payload fields and built-in receivers.

An installation makes its own at its first start, at random. The database has it encrypted, and the
replacement of an encryption key encrypts it again: so these hashes outlive every replaced key. A
tenant that moves in brings the keys with which its hashes were made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

from msgspec import Struct


class HashKey(Struct, frozen=True):
    """One key, and a name for it that reveals nothing of it."""

    name: str
    value: str  # in hex; in the store it is encrypted

    def __repr__(self) -> str:
        return f"HashKey({self.name}, ****)"


class HashKeys(Sequence[bytes]):
    """The keys: new hashes are made with the first, stored ones are found with all."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Iterable[HashKey]) -> None:
        self._keys: tuple[bytes, ...] = ()
        self.replace(keys)

    def replace(self, keys: Iterable[HashKey]) -> None:
        """Use the keys that are stored now: a tenant may have brought others."""
        self._keys = tuple(bytes.fromhex(it.value) for it in keys)

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[bytes, ...]: ...
    def __getitem__(self, place: int | slice) -> bytes | tuple[bytes, ...]:
        return self._keys[place]

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return "HashKeys(****)"
