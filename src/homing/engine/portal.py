"""The customer portal: links that open one session each, refused within a second of their end.

A session that was read once is remembered until some session ends, as those of the dashboard are:
``ApiKeys`` reads the version of the sessions with that of the keys, and calls ``forget`` when it
was raised. A link works only while the key that made it works.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from homing.engine.keys import ApiKeys
from homing.errors import NotFound, TooMany
from homing.languages.sentences import say
from homing.model import Ids
from homing.policy.portal import (
    KEPT_MS,
    LIVE_LINKS_MAX,
    SECRET_BYTES,
    LinkTerms,
    Logo,
    PortalLink,
    PortalSettings,
    hash_of,
)
from homing.ports import Clock
from homing.ports.portal import PortalStore

REMEMBERED_MAX = 10_000
AGAIN_MS = 60_000  # when a tenant with too many links may try again


class Portal:
    """The links and sessions of all tenants, and how each tenant's portal looks."""

    def __init__(
        self,
        store: PortalStore,
        keys: ApiKeys,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        *,
        node: int = 0,
    ) -> None:
        self._store, self._keys, self._clock = store, keys, clock
        self._random_bytes, self._ids = random_bytes, Ids(node=node)
        self._known: OrderedDict[int, PortalLink] = OrderedDict()
        self._endings = 0  # A read that began before a session ended may still show it.
        keys.on_session_end = self.forget

    async def create(
        self, tenant: str, terms: LinkTerms, *, made_by: str, key_id: int | None
    ) -> tuple[PortalLink, bytes]:
        """A new link, and its secret, which is not stored. Raises TooMany or Conflict."""
        secret, now = self._random_bytes(SECRET_BYTES), self._clock.now()
        link = PortalLink(
            id=self._ids.take(now),
            tenant=tenant,
            role=terms.role,
            subject=terms.subject,
            hash=hash_of(secret),
            made_by=made_by,
            key_id=key_id,
            created_at=now,
            opens_until=now + terms.open_within_ms,
            session_ms=terms.session_ms,
        )
        made = await self._store.create_link(
            link, max_live=LIVE_LINKS_MAX, now=now, forget_before=now - KEPT_MS
        )
        if not made:
            detail = say(
                "The tenant {tenant} may have at most {limit} portal links and "
                "sessions at a time: revoke some, or wait until some end.",
                tenant=tenant,
                limit=LIVE_LINKS_MAX,
            )
            raise TooMany(detail, after_ms=AGAIN_MS)
        return link, secret

    async def link(self, link_id: int) -> PortalLink | None:
        """The link as it is stored now."""
        return await self._store.link(link_id)

    async def open(self, link: PortalLink, given: bytes) -> tuple[PortalLink, bytes] | None:
        """Open the session of a link: the link, and the session's secret. None: too late."""
        secret = self._random_bytes(SECRET_BYTES)
        opened = await self._store.open_link(
            link.id, given_hash=given, session_hash=hash_of(secret), now=self._clock.now()
        )
        return None if opened is None else (opened, secret)

    async def session(self, link_id: int) -> PortalLink | None:
        """The link of a session; None if there is none. The caller checks secret and time."""
        await self._keys.freshen()
        known = self._known.get(link_id)
        if known is None:
            endings = self._endings
            known = await self._store.link(link_id)
            if known is not None and known.opened_at is not None and endings == self._endings:
                self._remember(known)
        return known

    async def key_works(self, link: PortalLink) -> bool:
        """Whether the key that made the link works; True if no key made it."""
        return link.key_id is None or await self._keys.works(link.key_id)

    async def revoke(self, link_id: int) -> PortalLink:
        """Revoke a link and end its session, from the moment this returns. Raises NotFound."""
        self.forget()  # A call that fails may have revoked it.
        revoked = await self._store.revoke_link(link_id, now=self._clock.now())
        self.forget()
        if revoked is None:
            raise NotFound(say("There is no such portal link, or it is revoked already."))
        return revoked

    async def revoke_all(self, tenant: str) -> None:
        """Revoke every link of a tenant."""
        self.forget()
        await self._store.revoke_links_of(tenant, now=self._clock.now())
        self.forget()

    async def page(
        self, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[PortalLink], int | None]:
        """A page of links, newest first, and the next ``before_id``."""
        return await self._store.links(tenant=tenant, before_id=before_id, limit=limit)

    def forget(self) -> None:
        """Forget all sessions: one may have ended."""
        self._endings += 1
        self._known.clear()

    def _remember(self, link: PortalLink) -> None:
        self._known[link.id] = link
        self._known.move_to_end(link.id)
        if len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)

    # --- how a portal looks ------------------------------------------------------------------

    async def settings(self, tenant: str) -> PortalSettings:
        """The settings of a tenant; the defaults if it has none."""
        return await self._store.settings(tenant) or PortalSettings(tenant=tenant)

    async def logo(self, tenant: str) -> Logo | None:
        return await self._store.logo(tenant)

    async def set_settings(
        self, settings: PortalSettings, *, logo: Logo | None, keeps_logo: bool
    ) -> PortalSettings:
        """Store the settings; raises Conflict while the tenant is being erased."""
        return await self._store.set_settings(settings, logo=logo, keeps_logo=keeps_logo)
