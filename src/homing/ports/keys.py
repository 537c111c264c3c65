"""The keys of the API, as they are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from homing.policy.keys import ApiKey


class KeySession(Struct, frozen=True):
    """A key that is signed in at the dashboard."""

    id: str  # random, 1 to 64 characters
    holder: str  # the prefix of the key, or "admin"
    since: int


class KeyStore(Protocol):
    """Keys and their sessions. Every key that is made or revoked raises the version of the keys."""

    async def key_versions(self) -> tuple[int, int]:
        """The version of the keys, and that of the sessions."""

    async def live_keys(self) -> tuple[int, list[ApiKey]]:
        """The version, and all that are not revoked."""

    async def create_key(self, key: ApiKey, *, max_keys: int) -> bool:
        """False, and nothing is written, if there are ``max_keys`` already that are not revoked."""

    async def revoke_key(self, key_id: int, *, now: int) -> ApiKey | None:
        """As it is then; None if there is no such key, or it has been revoked before."""

    async def keys(
        self, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[ApiKey], int | None]:
        """Newest first, revoked ones included, and the next ``before_id``."""

    async def keys_used(self, used: Sequence[tuple[int, int]]) -> None:
        """When keys were last used: (id, time). It raises no version."""

    async def open_session(
        self, session: KeySession, *, max_sessions: int, too_old: int
    ) -> list[str]:
        """Keep a session; sessions beyond the ``max_sessions`` newest of its key end. Returns them.

        A bounded number of sessions from before ``too_old`` is removed meanwhile. Sessions that end
        raise the version of the sessions, which a new one does not.
        """

    async def end_session(self, session_id: str) -> None:
        """Remove it, if it is there, and raise the version of the sessions."""

    async def has_session(self, session_id: str) -> bool: ...
