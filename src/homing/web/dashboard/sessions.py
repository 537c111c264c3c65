"""Session cookies, the tokens of forms, and the cookie of a secret that is shown once.

A session cookie contains no secret: it contains the time, the session id and the prefix of the API
key that signed in, with a signature. The signing key is derived from the admin key. So a forged
cookie is refused without a query to the database, and changing the admin key ends all sessions.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from hashlib import sha256

from cryptography.fernet import Fernet, InvalidToken

from homing.app.sessions import SESSION_LIFE_MS, is_young
from homing.ports import KeySession

COOKIE = "homing_session"
SECRET_LIFE_S = 60
_SIGNATURE_CHARS = 64
_CHARS_MAX = 256  # of a session cookie; the rest is not read


class SessionCookies:
    """Writes and reads the cookies of sessions."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def write(self, session: KeySession) -> str:
        """The value of the cookie."""
        text = _text(session)
        return f"{text}.{self._sign('session', text)}"

    def read(self, value: str, *, now: int) -> KeySession | None:
        """The session; None if the signature is wrong or the session is too old."""
        text, _, signature = value[:_CHARS_MAX].rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign("session", text).encode()):
            return None
        since, _, rest = text.partition(".")
        number, _, holder = rest.partition(".")
        if not holder:  # The cookie was written by a version without session ids.
            return None
        session = KeySession(number, holder, int(since))
        return session if is_young(session, now=now) else None

    def token(
        self, session: KeySession, tenant: str | None, chosen: str | None, *, now: int
    ) -> str:
        """The token that every form of this session carries now.

        It is made for the tenant of the caller, and shows the one that a caller of all tenants has
        chosen; None: all. It changes with time, because the session of a person whom a proxy names
        has no end.
        """
        return self._token(session, tenant, chosen, now // SESSION_LIFE_MS)

    def _token(
        self, session: KeySession, tenant: str | None, chosen: str | None, period: int
    ) -> str:
        shown = (chosen or "").encode().hex()
        return self._sign("form", f"{_text(session)}:{tenant or ''}:{period}:{shown}") + shown

    def chosen_of(
        self, session: KeySession, tenant: str | None, token: str, *, now: int
    ) -> str | None:
        """The tenant that was chosen for a form; raises ValueError for a form of another session.

        A form may be as old as a session may be. The token is compared in constant time.
        """
        chosen = bytes.fromhex(token[_SIGNATURE_CHARS:]).decode() or None
        period = now // SESSION_LIFE_MS
        for made_in in (period, period - 1, period + 1):  # The clock of its process may be ahead.
            expected = self._token(session, tenant, chosen, made_in)
            if hmac.compare_digest(token.encode(), expected.encode()):
                return chosen
        raise ValueError("a token of another session, or too old")

    def encrypt(self, session: KeySession, secret: str, *, now: int) -> str:
        """A secret, encrypted for the next page of this session."""
        return self._cipher(session).encrypt_at_time(secret.encode(), now // 1000).decode()

    def decrypt(self, session: KeySession, value: str, *, now: int) -> str:
        """The secret; empty if the value is too old or belongs to another session."""
        try:
            found = self._cipher(session).decrypt_at_time(
                value.encode(), ttl=SECRET_LIFE_S, current_time=now // 1000
            )
        except InvalidToken:
            return ""
        return found.decode()

    def _cipher(self, session: KeySession) -> Fernet:
        key = hmac.digest(self._key, f"secret:{_text(session)}".encode(), sha256)
        return Fernet(urlsafe_b64encode(key))

    def _sign(self, use: str, text: str) -> str:
        return hmac.digest(self._key, f"{use}:{text}".encode(), sha256).hex()

    def __repr__(self) -> str:
        return "SessionCookies(****)"


def _text(session: KeySession) -> str:
    return f"{session.since}.{session.id}.{session.holder}"
