"""The keys of the API in memory: found without a statement, gone within a second of revocation.

What is made or revoked here is known here at once. Where other processes share the database, the
version of the keys is looked at again when what is known is half a second old and somebody asks;
nobody asks, no statement. When a key was last used is written at most once a minute.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

import structlog
from msgspec.structs import replace

from homing.engine.sessions import KeySessions
from homing.errors import Conflict, HomingError, NotFound
from homing.model import Ids
from homing.policy.keys import (
    PREFIX_BYTES,
    SECRET_BYTES,
    ApiKey,
    KeyText,
    Role,
    read_key,
    write_key,
)
from homing.ports import Clock, KeyStore

log = structlog.get_logger("homing.keys")

KEYS_MAX = 10_000  # that are not revoked: all of them are held in memory
LIFE_MS = 500  # of what is known, where other processes may revoke
NOTE_EVERY_S = 60
SESSION_BYTES = 16


class ApiKeys:
    """All keys that are not revoked."""

    def __init__(
        self, store: KeyStore, clock: Clock, *, node: int = 0, life_ms: int | None = None
    ) -> None:
        self._store, self._clock, self._life_ms = store, clock, life_ms
        self._ids = Ids(node=node)
        self._keys: dict[str, ApiKey] = {}
        self._version: int | None = None
        self._sessions_version: int | None = None
        self.sessions = KeySessions(store, clock, lambda: secrets.token_hex(SESSION_BYTES))
        self._fresh_until: int | None = 0  # None: for ever, nobody else changes keys
        self._loading = asyncio.Lock()
        self._used: dict[int, int] = {}
        self._noting: asyncio.TimerHandle | None = None
        self._writing: set[asyncio.Task[None]] = set()
        self.on_change: Callable[[], None] = lambda: None  # what was found before may be gone

    @property
    def fresh_until(self) -> int | None:
        """Until when what ``find`` said holds; None: until ``on_change``."""
        return self._fresh_until

    async def find(self, given: KeyText) -> ApiKey | None:
        """The key, if it is known and works; raises StoreUnavailable."""
        key = await self.named(given.prefix)
        return key if key is not None and given.fits(key) else None

    def wall(self) -> int:
        """The clock by which keys expire: people set that time, and read it on their own clocks."""
        return self._clock.wall()

    async def named(self, prefix: str) -> ApiKey | None:
        """The key of this prefix, if it works: for whoever has proved to hold it before."""
        now = self._clock.now()
        await self._freshen(now)
        key = self._keys.get(prefix)
        return key if key is not None and key.works(self.wall()) else None

    async def session_lives(self, session_id: str) -> bool:
        """Whether this session was opened and has not been ended, by any process."""
        await self._freshen(self._clock.now())
        return await self.sessions.lives(session_id)

    async def _freshen(self, now: int) -> None:
        if self._fresh_until is not None and now >= self._fresh_until:
            await self._refresh()

    async def _refresh(self, *, anyway: bool = False) -> None:
        asked_at = self._clock.now()
        async with self._loading:
            fresh_until = self._fresh_until
            if not anyway and (fresh_until is None or asked_at < fresh_until):
                return  # Somebody else has just done it.
            started = self._clock.now()
            version, sessions = await self._store.key_versions()
            if sessions != self._sessions_version:
                self._sessions_version = sessions
                self.sessions.forget()
            if anyway or version != self._version:
                self._version, found = await self._store.live_keys()
                self._keys = {key.prefix: key for key in found}
                self.on_change()
            self._fresh_until = None if self._life_ms is None else started + self._life_ms

    # --- what an admin does ------------------------------------------------------------------

    async def create(
        self, name: str, role: Role, tenant: str | None, expires_at: int | None
    ) -> tuple[ApiKey, str]:
        """A new key, and its text, which is nowhere kept."""
        text = write_key(secrets.token_bytes(PREFIX_BYTES + SECRET_BYTES))
        given = read_key(text.encode())
        assert given is not None
        now = self._clock.now()
        key = ApiKey(
            id=self._ids.take(now),
            prefix=given.prefix,
            hash=given.hash,
            name=name,
            role=role,
            tenant=tenant,
            created_at=now,
            expires_at=expires_at,
        )
        if not await self._store.create_key(key, max_keys=KEYS_MAX):
            raise Conflict(f"There are {KEYS_MAX:,} keys already: revoke some first.")
        await self._refresh(anyway=True)
        return key, text

    async def revoke(self, key_id: int) -> None:
        """It opens nothing any more when this returns; NotFound."""
        async with self._loading:  # What is being read meanwhile would be older than this.
            try:
                revoked = await self._store.revoke_key(key_id, now=self._clock.now())
            finally:  # It may have been written, whatever the store replied: read them again.
                self._version, self._fresh_until = None, 0
                self.on_change()
        if revoked is None:
            raise NotFound("There is no such key, or it is revoked already.")

    async def page(
        self, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[ApiKey], int | None]:
        """Newest first, revoked ones included; a use not yet written is shown as well."""
        found, after = await self._store.keys(tenant=tenant, before_id=before_id, limit=limit)
        return [self._as_used(key) for key in found], after

    def _as_used(self, key: ApiKey) -> ApiKey:
        at = self._used.get(key.id)
        return key if at is None else replace(key, last_used_at=max(at, key.last_used_at or 0))

    # --- when they were used -----------------------------------------------------------------

    def used(self, key_id: int) -> None:
        """Noted now, written within a minute together with the others."""
        self._used[key_id] = self._clock.now()
        if self._noting is None:
            self._noting = asyncio.get_running_loop().call_later(NOTE_EVERY_S, self._note)

    def _note(self) -> None:
        self._noting = None
        task = asyncio.get_running_loop().create_task(self.write_used())
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def write_used(self) -> None:
        """Write what has been noted; when it fails, the next use is written instead."""
        used, self._used = self._used, {}
        self.on_change()  # Whoever was let in at once is noted again at its next use.
        if not used:
            return
        try:
            await self._store.keys_used(list(used.items()))
        except HomingError as error:
            log.warning("when keys were used is not written", error=str(error))

    async def close(self) -> None:
        if self._noting is not None:
            self._noting.cancel()
            self._noting = None
        await self.write_used()
