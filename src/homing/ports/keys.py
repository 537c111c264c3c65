"""The API keys and the dashboard sessions, as they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from homing.policy.keys import ApiKey


class KeySession(Struct, frozen=True):
    """A dashboard session of a key."""

    id: str  # random, 1 to 64 characters
    holder: str  # the prefix of the key, or "admin"
    since: int


class KeyStore(Protocol):
    """Keys and their sessions. Creating or revoking a key raises the version of the keys."""

    async def key_versions(self) -> tuple[int, int]:
        """The version of the keys, and that of the sessions."""

    async def live_keys(self) -> tuple[int, list[ApiKey]]:
        """The version, and all keys that are not revoked."""

    async def create_key(self, key: ApiKey, *, max_keys: int) -> bool:
        """False, and nothing is written, if there are ``max_keys`` already that are not revoked."""

    async def revoke_key(self, key_id: int, *, now: int) -> ApiKey | None:
        """The revoked key; None if there is no such key or it was revoked before."""

    async def keys(
        self, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[ApiKey], int | None]:
        """Keys, newest first, including revoked ones, and the next ``before_id``."""

    async def keys_used(self, used: Sequence[tuple[int, int]]) -> None:
        """Store when keys were last used: (id, time). No version is raised."""

    async def open_session(
        self,
        session: KeySession,
        *,
        max_sessions: int,
        too_old: int,
        link: str | None = None,
    ) -> list[str] | None:
        """Keep a session; sessions beyond the ``max_sessions`` newest of its key end. Returns them.

        A bounded number of sessions from before ``too_old`` is removed, too. Sessions that end
        raise the version of the sessions; a new one does not. ``link`` is the name of a sign-in
        link: None is returned, and nothing kept, if it has opened a session before.
        """

    async def end_session(self, session_id: str) -> None:
        """Remove a session, if it is there, and raise the version of the sessions."""

    async def has_session(self, session_id: str) -> bool: ...
