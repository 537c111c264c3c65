"""Who is signed in: a signed cookie that names its session, and a token against forged forms.

Nothing secret is in the cookie: it says which key signed in, when, and in which session, under a
signature that is made from the admin key. So nobody without a signature makes the database work,
and changing the admin key ends all sessions. The session and the key are looked up at every request
(``KeyRing``): after a sign-out the cookie opens nothing, and a key that is revoked is out at once.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

from homing.engine.sessions import SESSION_LIFE_MS
from homing.ports import KeySession

COOKIE = "homing_session"
LIFE_MS = SESSION_LIFE_MS
_MOST = 256  # characters of a cookie that is looked at


class Sessions:
    """Writes and reads the cookies of sessions."""

    def __init__(self, admin_key: str) -> None:
        self._key = hmac.digest(admin_key.encode(), b"homing dashboard sessions", sha256)

    def write(self, session: KeySession) -> str:
        """The value of the cookie."""
        text = _text(session)
        return f"{text}.{self._sign('session', text)}"

    def read(self, value: str, *, now: int) -> KeySession | None:
        """None if it is not ours, or too old."""
        text, _, signature = value[:_MOST].rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign("session", text).encode()):
            return None
        since, _, rest = text.partition(".")
        number, _, holder = rest.partition(".")
        if not holder:  # of a version before sessions had numbers
            return None
        session = KeySession(number, holder, int(since))
        return session if is_young(session, now=now) else None

    def token(self, session: KeySession) -> str:
        """What every form of this session carries."""
        return self._sign("form", _text(session))

    def fits(self, session: KeySession, token: str) -> bool:
        """Compared in constant time."""
        return hmac.compare_digest(token.encode(), self.token(session).encode())

    def _sign(self, use: str, text: str) -> str:
        return hmac.digest(self._key, f"{use}:{text}".encode(), sha256).hex()

    def __repr__(self) -> str:
        return "Sessions(****)"


def is_young(session: KeySession, *, now: int) -> bool:
    """Whether the time of a session is not over."""
    return session.since <= now < session.since + LIFE_MS


def _text(session: KeySession) -> str:
    return f"{session.since}.{session.id}.{session.holder}"
