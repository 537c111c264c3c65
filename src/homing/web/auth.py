"""Who is calling. So far one key opens everything; other kinds of keys will come in here."""

from __future__ import annotations

from hmac import compare_digest

from homing.errors import NotAuthorized

ADMIN = "the admin key"
_SCHEME = b"bearer "


class Keys:
    """The keys that are let in."""

    def __init__(self, admin_key: str) -> None:
        assert admin_key, "an empty key would let everyone in"
        self._admin = admin_key.encode()

    def who(self, authorization: bytes | None) -> str:
        """The name of the caller; raises NotAuthorized. Keys are compared in constant time."""
        if authorization is None:
            raise NotAuthorized("Give it as Authorization: Bearer <key>.")
        if authorization[:7].lower() != _SCHEME:
            raise NotAuthorized("The scheme must be Bearer.")
        if not compare_digest(authorization[7:].strip(), self._admin):
            raise NotAuthorized("This key is not known here.")
        return ADMIN

    def __repr__(self) -> str:
        return "Keys(****)"
