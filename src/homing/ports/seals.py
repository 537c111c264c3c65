"""Which keys seal what is secret in the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from homing.model import Subscription


class Claim(NamedTuple):
    """What the store says to the keys that somebody comes with."""

    missing: tuple[str, ...]  # keys that sealed something here and are not among them
    done: bool  # all is sealed with the first of them


class SealStore(Protocol):
    """The names of the keys that seal, never the keys."""

    async def claim_seal(self, ours: Sequence[str]) -> Claim:
        """Seal with the first of ours from now on; nothing is written if one is missing."""

    async def sealed_page(self, after_id: int, *, limit: int) -> list[Subscription]:
        """Subscriptions in order of id, deleted ones included, as they are stored."""

    async def seal_again(self, subscriptions: Sequence[Subscription]) -> None:
        """Write token, secrets and headers of those that have not changed since they were read."""

    async def all_sealed(self, name: str) -> None:
        """Nothing is sealed with any other key now."""
