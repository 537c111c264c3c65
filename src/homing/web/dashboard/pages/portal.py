"""The customer portal of a tenant: its name, logo, colours and framing sites, and its links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from homing.app.portal import LooksPatch, PortalLinks, PortalLooks
from homing.errors import Invalid
from homing.languages.sentences import say
from homing.policy.keys import Role
from homing.policy.portal import (
    LINK,
    LOGO_BYTES_MAX,
    NAME_CHARS_MAX,
    SUBJECT_CHARS_MAX,
    LinkDraft,
    PortalSettings,
    Theme,
)
from homing.web.api.portal import link_url
from homing.web.dashboard.request import Page, PageRequest, Shown, is_secure
from homing.web.query import show_cursor
from homing.web.response import Response

ROWS = 50
_HERE = "/customer-portal"
_FIELDS = ("name", "accent_color", "header_color", "theme")


async def show(request: PageRequest) -> Shown:
    looks = await request.app.portal_looks.get(request.caller, tenant=request.query.tenant())
    return await _page(request, looks, _texts(looks), "")


def _texts(looks: PortalSettings) -> dict[str, str]:
    return {
        **{name: str(getattr(looks, name)) for name in _FIELDS},
        "frame_ancestors": "\n".join(looks.frame_ancestors),
    }


async def _page(
    request: PageRequest,
    looks: PortalSettings,
    texts: Mapping[str, str],
    problem: str,
    *,
    status: int = 200,
) -> Shown:
    before_id = request.query.cursor()
    links, after = await request.app.portal_links.page(
        request.caller, tenant=looks.tenant, before_id=before_id, limit=ROWS
    )
    secret, headers = request.one_time_secret()
    cursor = show_cursor(after)
    values: dict[str, Any] = {
        "looks": looks,
        "texts": texts,
        "problem": problem,
        "secret": secret,
        "links": [(it, it.state(request.now)) for it in links],
        "themes": list(Theme),
        "name_max": NAME_CHARS_MAX,
        "subject_max": SUBJECT_CHARS_MAX,
        "logo_kib": LOGO_BYTES_MAX // 1024,
        "first": before_id is None,
        "older": "" if cursor is None else f"?tenant={looks.tenant}&cursor={cursor}",
    }
    return request.show("customer_portal.html", status=status, headers=headers, **values)


def _at(tenant: str) -> str:
    return f"{_HERE}?tenant={tenant}"


async def change(request: PageRequest) -> Shown | Response:
    tenant = request.field("tenant") or None
    logo: str | UnsetType | None = request.field("logo") or UNSET
    if request.field("remove_logo") == "on":
        logo = None
    patch = LooksPatch(
        **{name: request.field(name) for name in _FIELDS},
        frame_ancestors=tuple(request.field("frame_ancestors").split()),
        logo=logo,
    )
    try:
        looks = await request.app.portal_looks.change(request.caller, patch, tenant=tenant)
    except Invalid as error:
        if request.is_partial:
            raise
        before = await request.app.portal_looks.get(request.caller, tenant=tenant)
        problem = request.reasons(error.problems)
        return await _page(request, before, request.form(), problem, status=422)
    return request.done(say("Saved."), to=_at(looks.tenant))


async def create(request: PageRequest) -> Response:
    draft = LinkDraft(
        request.field("role") or Role.VIEWER,
        request.field("subject"),
        request.field("open_within") or None,
        request.field("session") or None,
    )
    link, token = await request.app.portal_links.create(
        request.caller, draft, tenant=request.field("tenant") or None
    )
    host = request.headers.get(b"host", b"").decode("latin-1")
    site = f"{'https' if is_secure(request.headers) else 'http'}://{host}"
    url = link_url(request.app.portal_links.public_url or site, token)
    return request.done(say("Link made."), to=_at(link.tenant), secret=url)


async def revoke(request: PageRequest) -> Response:
    await request.app.portal_links.revoke(request.caller, request.number(LINK))
    to = _at(request.field("tenant")) if request.field("tenant") else _HERE
    return request.done(say("Link revoked: it and its session have ended."), to=to)


PAGES = (
    Page(path=_HERE, handler=show, use_case=PortalLooks.get),
    Page(path=_HERE, handler=change, method="POST", use_case=PortalLooks.change),
    Page(path=f"{_HERE}/links", handler=create, method="POST", use_case=PortalLinks.create),
    Page(
        path=f"{_HERE}/links/{{id}}/revoke",
        handler=revoke,
        method="POST",
        use_case=PortalLinks.revoke,
    ),
)
