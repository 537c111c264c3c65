"""Sessions of the dashboard: signing in with a key opens a session.

The session and its key are checked at every request: after a sign-out the session no longer works,
and a revoked key is refused at once.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from homing.app.access import READERS, Caller, use_case
from homing.app.auth import ADMIN_CALLER, Authenticator
from homing.engine.keys import ApiKeys
from homing.engine.sessions import SESSION_LIFE_MS
from homing.errors import Forbidden, NotAuthorized
from homing.languages.sentences import say
from homing.policy.keys import read_key
from homing.policy.sign_in_links import PREFIX, read_link
from homing.ports import KeySession
from homing.ports.audit import acting

__all__ = ["SESSION_LIFE_MS", "Sessions", "is_young"]

SIGN_IN = "sessions.sign_in"
ADMIN_HOLDER = "admin"  # differs in length from every key prefix
BAD_LINK = say("This link was used before, or it is too old. Sign in with a key.")
CLOCKS_APART_MS = 60_000  # at most, of the process that opened a session and this one


class Sessions:
    """Opens and ends sessions, and finds their callers."""

    def __init__(
        self,
        authenticator: Authenticator,
        api_keys: ApiKeys,
        admin_key: str,
        now: Callable[[], int],
    ) -> None:
        self._authenticator, self._api_keys, self._now = authenticator, api_keys, now
        self._admin_key = admin_key.encode()
        self.on_refused: Callable[[Caller, Callable[..., Any], str], None] = lambda *_: None
        # Signs session cookies; changing the admin key therefore ends all sessions.
        self.cookie_key = hmac.digest(self._admin_key, b"homing dashboard sessions", "sha256")

    async def sign_in(self, key: bytes, source: str) -> KeySession:
        """Opens a session; raises NotAuthorized, TooMany, or Forbidden for a publisher key."""
        if key.startswith(PREFIX.encode()):
            return await self._sign_in_by_link(key, source)
        caller = await self._authenticator.caller_of(b"Bearer " + key, source)
        if caller.role not in READERS:
            error = Forbidden(
                say("A key with the role {role} may not use the dashboard.", role=caller.role.value)
            )
            self.on_refused(caller, self.sign_in, error.detail)
            raise error
        given = read_key(key)
        is_admin = hmac.compare_digest(key, self._admin_key)
        holder = ADMIN_HOLDER if is_admin or given is None else given.prefix
        caller.count_change()
        with acting(caller.who, SIGN_IN):
            opened = await self._api_keys.sessions.open(holder)
        assert opened is not None
        return opened

    async def _sign_in_by_link(self, link: bytes, source: str) -> KeySession:
        """Opens a session of the admin key with a link of ``policy.sign_in_links``, once."""
        name = read_link(link, self._admin_key.decode(), wall=self._api_keys.wall())
        if name is None:
            try:  # It is counted like a wrong key.
                await self._authenticator.caller_of(b"Bearer " + link, source)
            except NotAuthorized:
                raise NotAuthorized(BAD_LINK) from None
        with acting(replace(ADMIN_CALLER, address=source).who, SIGN_IN):
            opened = await self._api_keys.sessions.open(ADMIN_HOLDER, link=name)
        if opened is None:
            raise NotAuthorized(BAD_LINK)
        return opened

    @use_case(READERS, changes=True, counted=False)  # Everybody may always leave.
    async def sign_out(self, _caller: Caller, session: KeySession) -> None:
        """Ends the session in all processes."""
        await self._api_keys.sessions.end(session.id)

    async def caller_of(self, session: KeySession | None, source: str = "") -> Caller:
        """The caller of a session; raises NotAuthorized if it or its key is not valid any more."""
        if session is None or not is_young(session, now=self._now()):
            raise NotAuthorized(say("Sign in with a key."))
        if not await self._api_keys.session_lives(session.id):
            raise NotAuthorized(say("This session has ended."))
        lives = partial(self.caller_of, session)
        if session.holder == ADMIN_HOLDER:
            return replace(ADMIN_CALLER, address=source, lives=lives)
        key = await self._api_keys.named(session.holder)
        if key is None:
            raise NotAuthorized(say("The key no longer works."))
        return Caller(
            key.name,
            key.role,
            key.tenant,
            key.id,
            source,
            on_change=self._authenticator.on_change,
            check_tenant=self._authenticator.check_tenant,
            lives=lives,
        )


def is_young(session: KeySession, *, now: int) -> bool:
    """Whether the session has not reached its maximum age.

    In a fleet the clock of the process that opened it may be ahead.
    """
    return session.since - CLOCKS_APART_MS <= now < session.since + SESSION_LIFE_MS
