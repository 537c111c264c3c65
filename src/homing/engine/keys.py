"""The API keys in memory: found without a statement, refused within a second of their revocation.

A process knows at once which keys it made or revoked itself. Where other processes share the
database, a request reads the version of the keys if the copy in memory is older than half a second;
without requests there are no statements. The last use of a key is written at most once a minute.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

import structlog
from msgspec.structs import replace

from homing.engine.sessions import KeySessions
from homing.errors import Conflict, HomingError, NotFound
from homing.languages.sentences import say
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

KEYS_MAX = 10_000  # keys that are not revoked: all of them are in memory
LIFE_MS = 500  # of the copy in memory, where other processes may revoke keys
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
        self._by_id: dict[int, ApiKey] = {}
        self._version: int | None = None
        self._sessions_version: int | None = None
        self.sessions = KeySessions(store, clock, lambda: secrets.token_hex(SESSION_BYTES))
        self._fresh_until: int | None = 0  # None: always, no other process changes keys
        self._loading = asyncio.Lock()
        self._used: dict[int, int] = {}
        self._noting: asyncio.TimerHandle | None = None
        self._writing: set[asyncio.Task[None]] = set()
        self.on_change: Callable[[], None] = lambda: None  # keys that were found may be revoked
        self.on_session_end: Callable[[], None] = lambda: None  # in another process

    @property
    def fresh_until(self) -> int | None:
        """Until when the results of ``find`` hold; None: until ``on_change``."""
        return self._fresh_until

    async def find(self, given: KeyText) -> ApiKey | None:
        """The key with this text, if it works; raises StoreUnavailable."""
        key = await self.named(given.prefix)
        return key if key is not None and given.fits(key) else None

    def wall(self) -> int:
        """The wall clock, by which keys expire: people set that time by their own clocks."""
        return self._clock.wall()

    async def named(self, prefix: str) -> ApiKey | None:
        """The key of this prefix, if it works; for callers whose secret was checked before."""
        await self.freshen()
        key = self._keys.get(prefix)
        return key if key is not None and key.works(self.wall()) else None

    async def works(self, key_id: int) -> bool:
        """Whether the key with this id is neither revoked nor expired."""
        await self.freshen()
        key = self._by_id.get(key_id)
        return key is not None and key.works(self.wall())

    async def session_lives(self, session_id: str) -> bool:
        """Whether this session was opened and no process has ended it."""
        await self.freshen()
        return await self.sessions.lives(session_id)

    async def freshen(self) -> None:
        """Read what other processes have changed, unless that was read a moment ago."""
        if self._fresh_until is not None and self._clock.now() >= self._fresh_until:
            await self._refresh()

    async def read_again(self) -> None:
        """Read the keys: a commit of another part of this process has revoked some."""
        await self._refresh(anyway=True)

    async def _refresh(self, *, anyway: bool = False) -> None:
        asked_at = self._clock.now()
        async with self._loading:
            fresh_until = self._fresh_until
            if not anyway and (fresh_until is None or asked_at < fresh_until):
                return  # Another call has just refreshed it.
            started = self._clock.now()
            version, sessions = await self._store.key_versions()
            if sessions != self._sessions_version:
                self._sessions_version = sessions
                self.sessions.forget()
                self.on_session_end()
            if anyway or version != self._version:
                self._version, found = await self._store.live_keys()
                self._keys = {key.prefix: key for key in found}
                self._by_id = {key.id: key for key in found}
                self.on_change()
            self._fresh_until = None if self._life_ms is None else started + self._life_ms

    # --- commands of an admin ----------------------------------------------------------------

    async def create(
        self, name: str, role: Role, tenant: str | None, expires_at: int | None
    ) -> tuple[ApiKey, str]:
        """A new key, and its text, which is not stored anywhere."""
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
            raise Conflict(
                say("There are {limit} keys already: revoke some first.", limit=KEYS_MAX)
            )
        await self._refresh(anyway=True)
        return key, text

    async def revoke(self, key_id: int) -> None:
        """Revoke a key: it is refused from the moment this returns. Raises NotFound."""
        async with self._loading:  # A concurrent read could return the key as it was.
            try:
                revoked = await self._store.revoke_key(key_id, now=self._clock.now())
            finally:  # A call that failed may have been committed: read the keys again.
                self._version, self._fresh_until = None, 0
                self.on_change()
        if revoked is None:
            raise NotFound(say("There is no such key, or it is revoked already."))

    async def page(
        self, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[ApiKey], int | None]:
        """A page of keys, newest first, with revoked ones and with uses not written yet."""
        found, after = await self._store.keys(tenant=tenant, before_id=before_id, limit=limit)
        return [self._as_used(key) for key in found], after

    def _as_used(self, key: ApiKey) -> ApiKey:
        at = self._used.get(key.id)
        return key if at is None else replace(key, last_used_at=max(at, key.last_used_at or 0))

    # --- when they were used -----------------------------------------------------------------

    def used(self, key_id: int) -> None:
        """Note that a key was used; the time is written within a minute."""
        self._used[key_id] = self._clock.now()
        if self._noting is None:
            self._noting = asyncio.get_running_loop().call_later(NOTE_EVERY_S, self._note)

    def _note(self) -> None:
        self._noting = None
        task = asyncio.get_running_loop().create_task(self.write_used())
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def write_used(self) -> None:
        """Write the noted uses; if that fails, they are lost, and the next use is written."""
        used, self._used = self._used, {}
        self.on_change()  # Cached callers must pass here again, so that their next use is noted.
        if not used:
            return
        try:
            await self._store.keys_used(list(used.items()))
        except HomingError as error:
            log.warning("the last uses of API keys were not written", error=str(error))

    async def close(self) -> None:
        if self._noting is not None:
            self._noting.cancel()
            self._noting = None
        await self.write_used()
