"""The customer portal: links that let a person see one tenant, and how each tenant's portal looks.

An application makes a link with its key and shows it to one of its users. Whoever opens the link
has a session of the link's tenant and role; the session and the key are checked at every request.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from msgspec import UNSET, Struct, UnsetType, structs

from homing.app.access import MANAGERS, NO_TENANT, READERS, Caller, use_case
from homing.app.options import AppOptions
from homing.engine.portal import Portal
from homing.errors import FieldProblem, Forbidden, Invalid, NotFound, PortalClosed
from homing.languages.sentences import say
from homing.policy.admission import tenant_problem
from homing.policy.audit import Who
from homing.policy.portal import (
    ROLES,
    LinkDraft,
    LinkState,
    Logo,
    PortalDraft,
    PortalLink,
    PortalSettings,
    Theme,
    TokenText,
    Use,
    check_link,
    check_logo,
    check_settings,
    read_token,
    write_token,
)
from homing.ports.audit import acting

OPEN = "portal_links.open"
UNKNOWN = say("This link is not valid.")
ENDINGS = {
    LinkState.OPEN: say("This link was opened already, and a link works only once."),
    LinkState.ENDED: say("This session has ended, because its time is over."),
    LinkState.EXPIRED: say("This link was not opened in time."),
    LinkState.REVOKED: say("This access was withdrawn."),
}


class PortalSession(NamedTuple):
    """An open session: its link, and the caller with which use cases are called."""

    link: PortalLink
    caller: Caller


class PortalLinks:
    """The links of all tenants and their sessions."""

    def __init__(self, portal: Portal, options: AppOptions) -> None:
        self._portal, self._now = portal, options.now
        self.public_url = options.public_url
        # Signs links and sessions; changing the admin key therefore ends all of them.
        self.key = hmac.digest(options.admin_key.encode(), b"homing customer portal", "sha256")
        # Counts a changing call of a tenant; raises TooMany.
        self.on_change: Callable[[str], None] | None = None
        # Raises TenantMoved if another installation serves this tenant.
        self.check_tenant: Callable[[str], None] | None = None

    @use_case(MANAGERS, changes=True)
    async def create(
        self, caller: Caller, draft: LinkDraft, *, tenant: str | None
    ) -> tuple[PortalLink, str]:
        """A new link and its token, which is not stored.

        Raises Invalid, Forbidden for another tenant or a higher role, TooMany, or Conflict.
        """
        owner = caller.tenant_or_default(tenant)
        caller.must_write(owner)
        terms, problems = check_link(draft)
        problems += tenant_problem(owner)
        if terms is None or problems:
            raise Invalid(problems=tuple(problems))
        if caller.role not in ROLES[terms.role]:
            raise Forbidden(
                say(
                    "A key with the role {role} makes no {other} links.",
                    role=caller.role.value,
                    other=terms.role.value,
                )
            )
        link, secret = await self._portal.create(
            owner, terms, made_by=caller.by, key_id=caller.key_id
        )
        return link, write_token(self.key, Use.LINK, link.id, secret)

    @use_case(READERS)
    async def page(
        self, caller: Caller, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[PortalLink], int | None]:
        """A page, newest first, and the next ``before_id``."""
        return await self._portal.page(
            tenant=caller.scope(tenant), before_id=before_id, limit=limit
        )

    @use_case(MANAGERS, changes=True)
    async def revoke(self, caller: Caller, link_id: int) -> None:
        """Revokes a link and ends its session at once; raises NotFound."""
        link = await self._portal.link(link_id)
        if link is None or not caller.sees(link.tenant):
            raise NotFound(say("There is no such portal link."))
        await self._portal.revoke(link_id)

    # --- for people who have a link, and no key ------------------------------------------------

    async def look(self, token: str) -> PortalLink:
        """The link of a token that can be opened now; raises PortalClosed."""
        return (await self._waiting(token))[0]

    async def open(self, token: str, source: str) -> tuple[PortalLink, str]:
        """Opens a link: the link, and the text of its session. Raises PortalClosed."""
        link, given = await self._waiting(token)
        with acting(Who(link.caller_name, None, link.tenant, source), OPEN):
            opened = await self._portal.open(link, given.hash)
        if opened is None:  # Somebody else was quicker.
            raise self._closed(await self._portal.link(link.id) or link)
        link, secret = opened
        return link, write_token(self.key, Use.SESSION, link.id, secret)

    async def _waiting(self, token: str) -> tuple[PortalLink, TokenText]:
        given = read_token(self.key, Use.LINK, token)
        link = None if given is None else await self._portal.link(given.link_id)
        if given is None or link is None or not given.fits(link.hash):
            raise PortalClosed(UNKNOWN)
        if not await self._portal.key_works(link):
            raise PortalClosed(ENDINGS[LinkState.REVOKED], tenant=link.tenant)
        if link.state(self._now()) is not LinkState.WAITING:
            raise self._closed(link)
        return link, given

    async def session_of(self, text: str, source: str = "") -> PortalSession:
        """The session of the text that ``open`` returned; raises PortalClosed."""
        given = read_token(self.key, Use.SESSION, text)
        link = None if given is None else await self._portal.session(given.link_id)
        if given is None or link is None or not given.fits(link.session_hash):
            raise PortalClosed(say("There is no open session."))
        if link.state(self._now()) is not LinkState.OPEN:
            raise self._closed(link)
        if not await self._portal.key_works(link):
            raise PortalClosed(ENDINGS[LinkState.REVOKED], tenant=link.tenant)
        caller = Caller(
            link.caller_name,
            link.role,
            link.tenant,
            address=source,
            on_change=self.on_change,
            check_tenant=self.check_tenant,
            lives=partial(self.session_of, text),
        )
        return PortalSession(link, caller)

    @use_case(READERS, changes=True, counted=False)  # Everybody may always leave.
    async def leave(self, _caller: Caller, link: PortalLink) -> None:
        """Ends the caller's own session in all processes."""
        await self._portal.revoke(link.id)

    def _closed(self, link: PortalLink) -> PortalClosed:
        return PortalClosed(ENDINGS[link.state(self._now())], tenant=link.tenant)


class LooksPatch(Struct, frozen=True, kw_only=True):
    """New values of some settings; ``logo`` is a data URL, or None for no logo."""

    name: str | UnsetType = UNSET
    accent_color: str | UnsetType = UNSET
    header_color: str | UnsetType = UNSET
    theme: str | UnsetType = UNSET
    frame_ancestors: tuple[str, ...] | UnsetType = UNSET
    logo: str | UnsetType | None = UNSET


class PortalLooks:
    """The name, the logo and the colours of each tenant's portal, and who may frame it."""

    def __init__(self, portal: Portal, now: Callable[[], int]) -> None:
        self._portal, self._now = portal, now

    @use_case(READERS)
    async def get(self, caller: Caller, *, tenant: str | None) -> PortalSettings:
        """The settings of a tenant, by default the caller's; raises NotFound for another one."""
        owner = caller.scope_one(tenant)
        if owner == NO_TENANT:
            raise NotFound(say("There is no such tenant."))
        return await self._portal.settings(owner)

    @use_case(MANAGERS, changes=True)
    async def change(
        self, caller: Caller, patch: LooksPatch, *, tenant: str | None
    ) -> PortalSettings:
        """Changes the given settings; raises Invalid, Forbidden, or Conflict."""
        owner = caller.tenant_or_default(tenant)
        caller.must_write(owner)
        before = await self._portal.settings(owner)
        draft = PortalDraft(
            **{
                name: getattr(before, name) if given is UNSET else given
                for name in PortalDraft.__struct_fields__
                for given in (getattr(patch, name),)
            }
        )
        checked, problems = check_settings(draft)
        problems += tenant_problem(owner)
        logo: Logo | None = None
        if isinstance(patch.logo, str):
            logo, reason = check_logo(patch.logo)
            if reason:
                problems.append(FieldProblem("logo", reason))
        if problems:
            raise Invalid(problems=tuple(problems))
        values = structs.asdict(checked) | {"theme": Theme(checked.theme)}
        settings = PortalSettings(tenant=owner, updated_at=self._now(), **values)
        return await self._portal.set_settings(settings, logo=logo, keeps_logo=patch.logo is UNSET)

    # --- for the pages of the portal ------------------------------------------------------------

    async def of(self, tenant: str) -> PortalSettings:
        """The settings with which a page of the portal is shown."""
        return await self._portal.settings(tenant)

    async def logo(self, tenant: str, digest: str) -> Logo:
        """The logo of a tenant; raises NotFound if it has another one now, or none."""
        logo = await self._portal.logo(tenant)
        if logo is None or logo.digest != digest:
            raise NotFound(say("There is no such logo."))
        return logo
