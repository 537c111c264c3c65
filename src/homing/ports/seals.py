"""Which keys seal what is secret in the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from homing.model import Subscription


class Claim(NamedTuple):
    """What the store says to the keys that somebody comes with."""

    missing: tuple[str, ...]  # keys that sealed something here and are not among them
    done: bool  # all is sealed with the first of them


class Rewrite(NamedTuple):
    """Whether no file of the database holds an old row version with plaintext any more."""

    done: bool
    reason: str = ""  # why it is not done, and what the operator can do


class SealStore(Protocol):
    """The names of the keys that seal, never the keys."""

    async def claim_seal(self, ours: Sequence[str]) -> Claim:
        """Seal with the first of ours from now on; nothing is written if one is missing."""

    async def sealed_page(self, after_id: int, *, limit: int) -> list[Subscription]:
        """Subscriptions in order of id, deleted ones included, as they are stored."""

    async def seal_again(
        self, subscriptions: Sequence[Subscription], *, plaintext: bool = False
    ) -> None:
        """Write token, secrets and headers of those that have not changed since they were read.

        ``plaintext``: the old values were not encrypted, so their removal becomes due.
        """

    async def all_sealed(self, name: str) -> None:
        """Nothing is sealed with any other key now."""

    async def is_removal_due(self) -> bool:
        """Whether old row versions with plaintext may still be in the files of the database."""

    async def remove_plaintext(self) -> Rewrite:
        """Rewrite the files that may hold plaintext; still due afterwards if it is not done."""
