"""Authentication: which caller an ``Authorization`` header belongs to.

The admin key from the settings allows everything; of all other keys only hashes are stored
(``policy.keys``). The headers of valid keys are cached in a dictionary until the key expires, is
revoked, or ``ApiKeys`` has to read it again. The dictionary is keyed by the whole header: Python
seeds its hashes with random bytes at every start, so the time of a lookup reveals nothing about the
cached keys. Everything else is compared in constant time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hmac import compare_digest

from msgspec.structs import replace

from homing.app.access import Caller
from homing.app.throttle import Throttle
from homing.engine.keys import ApiKeys
from homing.errors import NotAuthorized
from homing.languages.sentences import say
from homing.policy.keys import Role, read_key
from homing.policy.networks import Network
from homing.policy.reach import read_address

METRICS_CALLER = Caller("an address in metrics_networks", Role.METRICS, None)
ADMIN_CALLER = Caller("the admin key", Role.ADMIN, None)
WRONG_KEY = say("This key is wrong, expired or revoked.")
_SCHEME = b"bearer "
_CANONICAL = b"Bearer "


class _Known:
    """A header with a valid key; ``until`` is when to check it again (None: when keys change)."""

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


class Authenticator:
    """Finds the caller of a key, and slows down clients that try wrong keys."""

    def __init__(
        self,
        admin_key: str,
        api_keys: ApiKeys,
        now: Callable[[], int],
        metrics_networks: tuple[Network, ...] = (),
    ) -> None:
        assert admin_key, "an empty admin key would admit everyone"
        self._admin = admin_key.encode()
        self._api_keys, self._now = api_keys, now
        self._throttle = Throttle(now)
        self._metrics_networks = metrics_networks
        self._known: dict[bytes | None, _Known] = {}
        # Counts a changing call of a tenant; raises TooMany.
        self.on_change: Callable[[str], None] | None = None
        # Raises TenantMoved or TenantMoving for a tenant whose data is not here.
        self.check_tenant: Callable[[str], None] | None = None
        # Called when an address without a valid key is refused, with the reason.
        self.on_anonymous: Callable[[str, str], None] = lambda _source, _why: None
        api_keys.on_change = self._forget
        self._forget()

    def _forget(self) -> None:
        self._known.clear()
        self._known[_CANONICAL + self._admin] = _Known(ADMIN_CALLER, None, until=None)

    def known(self, authorization: bytes | None) -> Caller | None:
        """The caller of a cached header; None if it is not cached or must be checked again."""
        found = self._known.get(authorization)
        if found is None:
            return None
        if found.until is not None and self._now() >= found.until:
            return None
        if found.expires_at is not None and self._api_keys.wall() >= found.expires_at:
            return None
        if not found.noted and found.key_id is not None:
            found.noted = True
            self._api_keys.used(found.key_id)
        return found.caller

    def caller_at(self, address: str) -> Caller | None:
        """The caller without a key who may read metrics, by the address of its connection.

        No header counts: behind a proxy it is the address of the proxy.
        """
        found = read_address(address) if self._metrics_networks else None
        if found is None:
            return None
        inner = getattr(found, "ipv4_mapped", None) or found
        listed = any(
            inner in network
            for network in self._metrics_networks
            if network.version == inner.version
        )
        return METRICS_CALLER if listed else None

    async def caller_of(self, authorization: bytes | None, source: str) -> Caller:
        """The caller of a header; raises NotAuthorized, or TooMany after too many wrong keys."""
        caller = self.known(authorization)
        if caller is None:
            caller = await self._of_unknown(authorization, source)
        return replace(caller, address=source)

    async def _of_unknown(self, authorization: bytes | None, source: str) -> Caller:
        if authorization is None:
            self.on_anonymous(source, "no key")
            raise NotAuthorized("Send a key as Authorization: Bearer <key>.")
        if authorization[:7].lower() != _SCHEME:
            self.on_anonymous(source, "no key")
            raise NotAuthorized("The scheme of the Authorization header must be Bearer.")
        caller = await self._find(authorization[7:].strip())
        if caller is None:
            self.on_anonymous(source, "wrong key")
            await self._throttle.wrong(source)
            raise NotAuthorized(WRONG_KEY)
        return caller

    async def _find(self, text: bytes) -> Caller | None:
        if compare_digest(text, self._admin):
            return ADMIN_CALLER
        given = read_key(text)
        key = None if given is None else await self._api_keys.find(given)
        if key is None:
            return None
        caller = Caller(
            key.name,
            key.role,
            key.tenant,
            key.id,
            on_change=self.on_change,
            check_tenant=self.check_tenant,
            lives=partial(self._must_work, key.id),
        )
        until, expires_at = self._api_keys.fresh_until, key.expires_at
        self._known[_CANONICAL + text] = _Known(caller, key.id, until, expires_at)
        self.known(_CANONICAL + text)
        return caller

    async def _must_work(self, key_id: int) -> None:
        if not await self._api_keys.works(key_id):
            raise NotAuthorized(WRONG_KEY)

    def __repr__(self) -> str:
        return "Authenticator(****)"
