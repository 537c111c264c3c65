"""Sessions of the dashboard: most requests find out without a statement whether theirs is open.

A session is a row in the database from sign-in to sign-out, so that it outlives a restart and works
in every process. A session that was read once is remembered until some session ends: ``ApiKeys``
reads the version of the sessions with that of the keys, and calls ``forget`` when it was raised.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from homing.errors import TooMany
from homing.languages.sentences import say
from homing.ports import Clock, KeySession, KeyStore

SESSION_LIFE_MS = 12 * 3_600_000
SESSIONS_MAX = 100  # of one key: a further sign-in ends the oldest
REMEMBERED_MAX = 10_000
SIGN_IN_EVERY_MS = 1_000  # of one key and in one process, in the long run
SIGN_INS_AT_ONCE_MS = 60 * SIGN_IN_EVERY_MS  # unused sign-ins that a key may save up


class KeySessions:
    """The sessions of all keys."""

    def __init__(self, store: KeyStore, clock: Clock, random_id: Callable[[], str]) -> None:
        self._store, self._clock, self._random_id = store, clock, random_id
        self._known: OrderedDict[str, bool] = OrderedDict()
        self._endings = 0  # A read that began before a session ended may still show it.
        self._rates: OrderedDict[str, int] = OrderedDict()

    async def open(self, holder: str, *, link: str | None = None) -> KeySession | None:
        """Open a session of this key; None if this link has opened one before.

        Raises TooMany, or StoreUnavailable.
        """
        now = self._clock.now()
        self._check_rate(holder, now)
        session = KeySession(self._random_id(), holder, now)
        ended = await self._store.open_session(
            session, max_sessions=SESSIONS_MAX, too_old=now - SESSION_LIFE_MS, link=link
        )
        if ended is None:
            return None
        self._endings += 1
        for one in ended:
            self._remember(one, lives=False)
        self._remember(session.id, lives=True)
        return session

    def _check_rate(self, holder: str, now: int) -> None:
        used_until = max(self._rates.get(holder, 0), now - SIGN_INS_AT_ONCE_MS)
        if used_until > now - SIGN_IN_EVERY_MS:
            raise TooMany(
                say("This key has signed in too often."),
                after_ms=used_until + SIGN_IN_EVERY_MS - now,
            )
        self._rates[holder] = used_until + SIGN_IN_EVERY_MS
        self._rates.move_to_end(holder)
        if len(self._rates) > REMEMBERED_MAX:
            self._rates.popitem(last=False)

    async def end(self, session_id: str) -> None:
        """End a session: it is refused from the moment this returns."""
        self._endings += 1
        self._known.pop(session_id, None)  # A call that fails may have ended it.
        await self._store.end_session(session_id)
        self._endings += 1
        self._remember(session_id, lives=False)

    async def lives(self, session_id: str) -> bool:
        """Whether the session is in the database, as of the last read."""
        known = self._known.get(session_id)
        if known is not None:
            return known
        endings = self._endings
        lives = await self._store.has_session(session_id)
        if endings == self._endings:
            self._remember(session_id, lives=lives)
        return lives

    def forget(self) -> None:
        """Forget all sessions: another process has ended one."""
        self._endings += 1
        self._known.clear()

    def _remember(self, session_id: str, *, lives: bool) -> None:
        self._known[session_id] = lives
        self._known.move_to_end(session_id)
        if len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
