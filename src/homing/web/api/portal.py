"""The customer portal: make, list and revoke links; the name, logo, colours and framing sites."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from homing.app.portal import LooksPatch, PortalLinks, PortalLooks
from homing.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    StoreUnavailable,
    TooMany,
)
from homing.model import show_id
from homing.policy.portal import (
    LINK,
    LOGO_BYTES_MAX,
    NAME_CHARS_MAX,
    ORIGINS_MAX,
    SUBJECT_CHARS_MAX,
    LinkDraft,
    LinkState,
    PortalLink,
    PortalSettings,
    Theme,
)
from homing.web.operation import PAGE, TENANT, TENANT_ONE, Call, Operation
from homing.web.query import show_cursor
from homing.web.response import Response, json_response
from homing.web.schemas import Cursor, Time, silent
from homing.web.show import time_or_none, time_text

OPEN_PATH = "/portal/open/"

PortalRole = Literal["viewer", "manager"]


class PortalLinkIn(Struct, frozen=True, forbid_unknown_fields=True):
    """A link to make; every field is optional."""

    tenant: Annotated[
        str | None, Meta(description="The tenant; default: the key's tenant, or `default`.")
    ] = None
    role: Annotated[
        PortalRole,
        Meta(
            description="`viewer` reads; `manager` also creates, changes, tests and pauses "
            "endpoints and replays deliveries."
        ),
    ] = "viewer"
    subject: Annotated[
        str,
        Meta(
            description="Who gets the link, as your application names the person; the audit log "
            f"shows it. At most {SUBJECT_CHARS_MAX} characters."
        ),
    ] = ""
    open_within: Annotated[
        str | None,
        Meta(description="How long the link can be opened, like 5m; default 15m, at most 24h."),
    ] = None
    session: Annotated[
        str | None,
        Meta(description="How long the session lasts, like 1h; default 8h, at most 24h."),
    ] = None


class PortalLinkView(Struct, frozen=True, kw_only=True):
    """A link and its session, without secrets."""

    id: str
    tenant: str
    role: PortalRole
    subject: str
    state: Annotated[
        LinkState,
        Meta(
            description="`waiting`: can be opened; `open`: its session works; `expired`: nobody "
            "opened it in time; `ended`: the time of its session is over; `revoked`."
        ),
    ]
    made_by: Annotated[str, Meta(description="The name of the key or the person that made it.")]
    created_at: Time
    opens_until: Time
    opened_at: Time | None
    session_until: Time | None
    revoked_at: Time | None


class PortalLinkCreated(PortalLinkView, frozen=True, kw_only=True):
    """A new link with its URL, which is never shown again."""

    url: Annotated[str, Meta(description="Send one person there, or use it as the src of a frame.")]
    __repr__ = silent


class PortalLinkPage(Struct, frozen=True):
    """Newest first; links that ended more than a day ago are removed."""

    items: list[PortalLinkView]
    next_cursor: Cursor


_NAME = Meta(description=f"The name above the pages: at most {NAME_CHARS_MAX} characters.")
_ACCENT = Meta(
    description="The colour of links and buttons, like #2b50c8; empty: the default. Where text "
    "could not be read, a darker or lighter shade of it is used."
)
_HEADER = Meta(description="The background of the header, like #101318; empty: the default.")
_THEME = Meta(description="Light or dark pages; `auto` follows the viewer's system.")
_ORIGINS = Meta(
    description="The sites that may show the portal in a frame: at most "
    f"{ORIGINS_MAX} origins like https://app.example.com. None: no site may."
)


class PortalPatch(Struct, frozen=True, forbid_unknown_fields=True):
    """The settings to change."""

    name: Annotated[str | UnsetType, _NAME] = UNSET
    accent_color: Annotated[str | UnsetType, _ACCENT] = UNSET
    header_color: Annotated[str | UnsetType, _HEADER] = UNSET
    theme: Annotated[Theme | UnsetType, _THEME] = UNSET
    frame_ancestors: Annotated[list[str] | UnsetType, _ORIGINS] = UNSET
    logo: Annotated[
        str | UnsetType | None,
        Meta(
            description="A picture as a data URL (PNG, JPEG, GIF or WebP; at most "
            f"{LOGO_BYTES_MAX // 1024} KiB); null: no logo."
        ),
    ] = UNSET


class LogoView(Struct, frozen=True):
    """A logo without its content."""

    type: str
    bytes: int
    digest: Annotated[str, Meta(description="The first half of its SHA-256, in hexadecimal.")]


class PortalView(Struct, frozen=True, kw_only=True):
    """How the portal of a tenant looks, and who may frame it."""

    tenant: str
    name: Annotated[str, _NAME]
    accent_color: Annotated[str, _ACCENT]
    header_color: Annotated[str, _HEADER]
    theme: Annotated[Theme, _THEME]
    frame_ancestors: Annotated[list[str], _ORIGINS]
    logo: LogoView | None
    updated_at: Time | None


async def create(call: Call) -> Response:
    given = call.content(PortalLinkIn, empty=b"{}")
    draft = LinkDraft(given.role, given.subject, given.open_within, given.session)
    link, token = await call.app.portal_links.create(call.caller, draft, tenant=given.tenant)
    url = link_url(call.app.portal_links.public_url or call.site, token)
    view = PortalLinkCreated(**asdict(link_view(link, now=call.now)), url=url)
    return json_response(view, status=201)


def link_url(site: str, token: str) -> str:
    """The address that opens a link."""
    return f"{site}{OPEN_PATH}{token}"


async def list_links(call: Call) -> Response:
    query = call.query
    found, after = await call.app.portal_links.page(
        call.caller, tenant=query.tenant(), before_id=query.cursor(), limit=query.limit()
    )
    now = call.now
    return json_response(
        PortalLinkPage([link_view(it, now=now) for it in found], show_cursor(after))
    )


async def revoke(call: Call) -> Response:
    await call.app.portal_links.revoke(call.caller, call.number(LINK))
    return Response(204)


async def get(call: Call) -> Response:
    found = await call.app.portal_looks.get(call.caller, tenant=call.query.tenant())
    return json_response(_view(found))


async def change(call: Call) -> Response:
    given = call.content(PortalPatch)
    origins = given.frame_ancestors
    patch = LooksPatch(
        name=given.name,
        accent_color=given.accent_color,
        header_color=given.header_color,
        theme=given.theme,
        frame_ancestors=origins if isinstance(origins, UnsetType) else tuple(origins),
        logo=given.logo,
    )
    found = await call.app.portal_looks.change(call.caller, patch, tenant=call.query.tenant())
    return json_response(_view(found))


def link_view(link: PortalLink, *, now: int) -> PortalLinkView:
    return PortalLinkView(
        id=show_id(LINK, link.id),
        tenant=link.tenant,
        role="manager" if link.role == "manager" else "viewer",
        subject=link.subject,
        state=link.state(now),
        made_by=link.made_by,
        created_at=time_text(link.created_at),
        opens_until=time_text(link.opens_until),
        opened_at=time_or_none(link.opened_at),
        session_until=time_or_none(link.session_until),
        revoked_at=time_or_none(link.revoked_at),
    )


def _view(it: PortalSettings) -> PortalView:
    logo = LogoView(it.logo_type, it.logo_bytes, it.logo_digest) if it.logo_type else None
    return PortalView(
        tenant=it.tenant,
        name=it.name,
        accent_color=it.accent_color,
        header_color=it.header_color,
        theme=it.theme,
        frame_ancestors=list(it.frame_ancestors),
        logo=logo,
        updated_at=time_or_none(it.updated_at),
    )


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/portal-links",
        id="createPortalLink",
        use_case=PortalLinks.create,
        summary="Make a link to the customer portal; its URL is shown in this response only.",
        handler=create,
        status=201,
        request=PortalLinkIn,
        response=PortalLinkCreated,
        errors=(BadRequest, Conflict, Forbidden, Invalid, TooMany, StoreUnavailable),
    ),
    Operation(
        method="GET",
        path="/v1/portal-links",
        id="listPortalLinks",
        use_case=PortalLinks.page,
        summary="Links to the customer portal and their sessions, newest first.",
        handler=list_links,
        response=PortalLinkPage,
        params=(TENANT, *PAGE),
        errors=(Invalid,),
    ),
    Operation(
        method="DELETE",
        path="/v1/portal-links/{id}",
        id="revokePortalLink",
        use_case=PortalLinks.revoke,
        summary="Revoke a link: it and its session end at once, on other processes in a second.",
        handler=revoke,
        status=204,
        errors=(NotFound, StoreUnavailable),
    ),
    Operation(
        method="GET",
        path="/v1/portal",
        id="getPortal",
        use_case=PortalLooks.get,
        summary="How the customer portal of a tenant looks, and which sites may frame it.",
        handler=get,
        response=PortalView,
        params=(TENANT_ONE,),
        errors=(Invalid, NotFound),
    ),
    Operation(
        method="PATCH",
        path="/v1/portal",
        id="changePortal",
        use_case=PortalLooks.change,
        summary="Change the name, the logo, the colours or the framing sites of a portal.",
        handler=change,
        request=PortalPatch,
        response=PortalView,
        params=(TENANT_ONE,),
        errors=(BadRequest, Conflict, Forbidden, Invalid, StoreUnavailable),
    ),
)
