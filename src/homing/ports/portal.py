"""The links of the customer portal and how each tenant's portal looks, as they are stored."""

from __future__ import annotations

from typing import Protocol

from homing.policy.portal import Logo, PortalLink, PortalSettings


class PortalStore(Protocol):
    """A link that is revoked raises the version of the sessions, as the end of a session does."""

    async def create_link(
        self, link: PortalLink, *, max_live: int, now: int, forget_before: int
    ) -> bool:
        """False, and nothing is written, if the tenant has ``max_live`` links that work.

        A bounded number of links that ended before ``forget_before`` is removed, too. Raises
        Conflict while the tenant is being erased.
        """

    async def link(self, link_id: int) -> PortalLink | None: ...

    async def open_link(
        self, link_id: int, *, given_hash: bytes, session_hash: bytes, now: int
    ) -> PortalLink | None:
        """Open the session of a link; None if it is not waiting any more."""

    async def revoke_link(self, link_id: int, *, now: int) -> PortalLink | None:
        """The revoked link; None if there is no such link or it was revoked before."""

    async def revoke_links_of(self, tenant: str, *, now: int) -> int:
        """Revoke all links of a tenant that work; returns their number."""

    async def links(
        self, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[PortalLink], int | None]:
        """Links, newest first, and the next ``before_id``."""

    async def settings(self, tenant: str) -> PortalSettings | None:
        """None: nothing was set."""

    async def logo(self, tenant: str) -> Logo | None: ...

    async def set_settings(
        self, settings: PortalSettings, *, logo: Logo | None, keeps_logo: bool
    ) -> PortalSettings:
        """Store the settings with this logo, or with the one that is stored.

        Raises Conflict while the tenant is being erased.
        """
