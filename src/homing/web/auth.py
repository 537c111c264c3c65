"""Who is calling, and what that caller may do.

The admin key of the settings opens everything; all other keys are kept as hashes (``policy.keys``).
A key that was found good once is let in by one look into a dictionary, until it expires, is
revoked, or what is known of the keys is too old. The dictionary is asked with the whole header:
its place depends on a hash that is seeded by chance at every start, so the time that takes tells
nothing about the keys in it; everything else is compared in constant time.
"""

from __future__ import annotations

from collections.abc import Callable
from hmac import compare_digest

from msgspec import Struct

from homing.engine.keys import KeyRing
from homing.errors import Forbidden, NotAuthorized
from homing.policy.keys import Role, read_key
from homing.web.throttle import Throttle

ADMIN = "the admin key"
_SCHEME = b"bearer "
_CANONICAL = b"Bearer "

# What an operation may be: the roles that it is open to.
NOBODY: frozenset[Role] = frozenset()
ONLY_ADMINS = frozenset({Role.ADMIN})
PUBLISHERS = frozenset({Role.ADMIN, Role.PUBLISHER})
MANAGERS = frozenset({Role.ADMIN, Role.MANAGER})
READERS = frozenset({Role.ADMIN, Role.MANAGER, Role.VIEWER})


class Caller(Struct, frozen=True):
    """Whoever holds a key; ``tenant`` is None for all tenants."""

    name: str
    role: Role
    tenant: str | None

    def sees(self, tenant: str) -> bool:
        """Whether what is of this tenant is there at all for this caller."""
        return self.tenant is None or self.tenant == tenant

    def must_be(self, roles: frozenset[Role]) -> None:
        """Raises Forbidden."""
        if self.role not in roles:
            raise Forbidden(f"A key with the role {self.role} may not do this.")

    def writes(self, tenant: str) -> None:
        """Raises Forbidden for every tenant but its own, whether there is one or not."""
        if not self.sees(tenant):
            raise Forbidden(f"This key is of the tenant {self.tenant}.")


STRANGER = Caller("", Role.VIEWER, "")  # of operations that are open to everybody


class _Pass:
    """A header that was found good, until when (None: until told otherwise)."""

    __slots__ = ("caller", "expires_at", "key_id", "noted", "until")

    def __init__(
        self,
        caller: Caller,
        key_id: int | None,
        until: int | None,
        expires_at: int | None = None,  # by the wall clock
    ) -> None:
        self.caller, self.key_id, self.until = caller, key_id, until
        self.expires_at = expires_at
        self.noted = key_id is None


class Keys:
    """The keys that are let in."""

    def __init__(self, admin_key: str, ring: KeyRing, now: Callable[[], int]) -> None:
        assert admin_key, "an empty key would let everyone in"
        self._admin = admin_key.encode()
        self._ring, self._now = ring, now
        self._throttle = Throttle(now)
        self._passes: dict[bytes | None, _Pass] = {}
        ring.on_change = self._forget
        self._forget()

    def _forget(self) -> None:
        self._passes.clear()
        self._passes[_CANONICAL + self._admin] = _Pass(
            Caller(ADMIN, Role.ADMIN, None), None, until=None
        )

    def known(self, authorization: bytes | None) -> Caller | None:
        """The caller, if this header was found good before and still is."""
        found = self._passes.get(authorization)
        if found is None:
            return None
        if found.until is not None and self._now() >= found.until:
            return None
        if found.expires_at is not None and self._ring.wall() >= found.expires_at:
            return None
        if not found.noted and found.key_id is not None:
            found.noted = True
            self._ring.used(found.key_id)
        return found.caller

    async def who(self, authorization: bytes | None, source: str) -> Caller:
        """Raises NotAuthorized; TooMany where too many wrong keys came from there."""
        caller = self.known(authorization)
        if caller is not None:
            return caller
        if authorization is None:
            raise NotAuthorized("Give it as Authorization: Bearer <key>.")
        if authorization[:7].lower() != _SCHEME:
            raise NotAuthorized("The scheme must be Bearer.")
        caller = await self._look(authorization[7:].strip())
        if caller is None:
            await self._throttle.wrong(source)
            raise NotAuthorized("This key is not known here.")
        return caller

    async def _look(self, text: bytes) -> Caller | None:
        if compare_digest(text, self._admin):
            return Caller(ADMIN, Role.ADMIN, None)
        given = read_key(text)
        key = None if given is None else await self._ring.find(given)
        if key is None:
            return None
        caller = Caller(key.name, key.role, key.tenant)
        until, expires_at = self._ring.fresh_until, key.expires_at
        self._passes[_CANONICAL + text] = _Pass(caller, key.id, until, expires_at)
        self.known(_CANONICAL + text)
        return caller

    def __repr__(self) -> str:
        return "Keys(****)"


def source_of(scope_client: tuple[str, int] | None) -> str:
    """The address that a connection comes from."""
    return scope_client[0] if scope_client else ""
