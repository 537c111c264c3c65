"""Which keys encrypt the secret fields in the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from homing.model import SigningKeys, Subscription
from homing.policy.hash_keys import HashKey
from homing.policy.notices import NoticeTarget


class Claim(NamedTuple):
    """Whether the keys of a start fit the database."""

    missing: tuple[str, ...]  # keys that encrypt fields here and were not given
    done: bool  # every field is encrypted with the first key that was given


class Rewrite(NamedTuple):
    """Whether no file of the database holds an old row version with plaintext any more."""

    done: bool
    reason: str = ""  # why it is not done, and what the operator can do


class EncryptionStore(Protocol):
    """The names of the keys that encrypt, never the keys."""

    async def claim_keys(self, names: Sequence[str]) -> Claim:
        """Encrypt with the first of these keys from now on, unless one is missing."""

    async def subscriptions_page(self, after_id: int, *, limit: int) -> list[Subscription]:
        """Subscriptions in order of id, deleted ones included, as they are stored."""

    async def reencrypt(
        self, subscriptions: Sequence[Subscription], *, plaintext: bool = False
    ) -> None:
        """Write token, secrets and headers of those that have not changed since they were read.

        ``plaintext``: the old values were not encrypted, so their removal becomes due.
        """

    async def targets_page(self, after_id: int, *, limit: int) -> list[NoticeTarget]:
        """Targets of notices in order of id, as they are stored; deleted ones have no secrets."""

    async def reencrypt_targets(self, targets: Sequence[tuple[NoticeTarget, NoticeTarget]]) -> None:
        # Each as it was read and as it is to be stored; one that was changed since is left.
        """Write the addresses and secrets of targets."""

    async def signing_keys_page(self, after: str, *, limit: int) -> list[SigningKeys]:
        """Signing keys in the order of their tenants, as they are stored."""

    async def reencrypt_signing_keys(self, keys: Sequence[SigningKeys]) -> None:
        """Write those that have not changed since they were read."""

    async def hash_keys(self) -> list[HashKey]:
        """The keys of keyed hashes as they are stored; the first is the installation's own."""

    async def make_hash_key(self, key: HashKey) -> list[HashKey]:
        """Store the first one, unless there is one; returns all."""

    async def reencrypt_hash_keys(self, keys: Sequence[HashKey]) -> None: ...

    async def all_encrypted(self, name: str) -> None:
        """No field is encrypted with any other key now."""

    async def is_removal_due(self) -> bool:
        """Whether old row versions with plaintext may still be in the files of the database."""

    async def remove_plaintext(self) -> Rewrite:
        """Rewrite the files that may hold plaintext; still due afterwards if it is not done."""
