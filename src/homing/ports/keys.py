"""The keys of the API, as they are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from homing.policy.keys import ApiKey


class KeyStore(Protocol):
    """Keys. Every key that is made or revoked raises their version."""

    async def key_version(self) -> int: ...

    async def live_keys(self) -> tuple[int, list[ApiKey]]:
        """The version, and all that are not revoked."""

    async def create_key(self, key: ApiKey, *, most: int) -> bool:
        """False, and nothing is written, if there are ``most`` already that are not revoked."""

    async def revoke_key(self, key_id: int, *, now: int) -> ApiKey | None:
        """As it is then; None if there is no such key, or it has been revoked before."""

    async def keys(
        self, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[ApiKey], int | None]:
        """Newest first, revoked ones included, and the next ``before_id``."""

    async def keys_used(self, used: Sequence[tuple[int, int]]) -> None:
        """When keys were last used: (id, time). It raises no version."""
