"""Who is signed in: a signed cookie that names its key, and a token against forged forms.

Nothing secret is in the cookie and nothing is kept here: the cookie says which key signed in and
when, under a signature that is made from the admin key. So a session outlives a restart and works
on every machine of a fleet, and changing the admin key ends all sessions. The key itself is looked
up at every request: one that is revoked is out at once.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

from msgspec import Struct

COOKIE = "homing_session"
LIFE_MS = 12 * 3_600_000
_MOST = 256  # characters of a cookie that is looked at


class Session(Struct, frozen=True):
    """A signed-in key: its public name, and since when."""

    holder: str
    since: int


class Sessions:
    """Writes and reads sessions."""

    def __init__(self, admin_key: str) -> None:
        self._key = hmac.digest(admin_key.encode(), b"homing dashboard sessions", sha256)

    def write(self, session: Session) -> str:
        """The value of the cookie."""
        text = f"{session.since}.{session.holder}"
        return f"{text}.{self._sign('session', text)}"

    def read(self, value: str, *, now: int) -> Session | None:
        """None if it is not ours, or too old."""
        text, _, signature = value[:_MOST].rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign("session", text).encode()):
            return None
        since, _, holder = text.partition(".")
        session = Session(holder, int(since))
        return session if session.since <= now < session.since + LIFE_MS else None

    def token(self, session: Session) -> str:
        """What every form of this session carries."""
        return self._sign("form", f"{session.since}.{session.holder}")

    def fits(self, session: Session, token: str) -> bool:
        """Compared in constant time."""
        return hmac.compare_digest(token.encode(), self.token(session).encode())

    def _sign(self, use: str, text: str) -> str:
        return hmac.digest(self._key, f"{use}:{text}".encode(), sha256).hex()

    def __repr__(self) -> str:
        return "Sessions(****)"
