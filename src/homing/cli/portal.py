"""``homing portal`` and ``homing portal-link``: the looks and the links of the customer portal."""

from __future__ import annotations

import base64
import mimetypes
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from homing.cli.arguments import LimitFlag, OwnerFlag, TenantFlag
from homing.cli.errors import Usage
from homing.cli.output import dim, fields, plain
from homing.cli.remote import Remote, remote_command

if TYPE_CHECKING:
    from rich.console import Console

    from homing_client import NewPortalLink, Portal, PortalLink

app = typer.Typer(name="portal", rich_markup_mode=None)
links = typer.Typer(name="portal-link", rich_markup_mode=None)


class Role(StrEnum):
    """What a person may do in the portal."""

    VIEWER = "viewer"
    MANAGER = "manager"


class Theme(StrEnum):
    """Light or dark pages."""

    AUTO = "auto"
    LIGHT = "light"
    DARK = "dark"


# --- links ----------------------------------------------------------------------------------


@links.callback(invoke_without_command=True)
@remote_command
def portal_links(
    context: typer.Context, *, remote: Remote, tenant: TenantFlag = None, limit: LimitFlag = 50
) -> None:
    """List links to the customer portal, newest first; or make or revoke one."""
    if context.invoked_subcommand is None:
        _list(remote, tenant, limit)


@links.command("create")
@remote_command
def create(
    *,
    remote: Remote,
    tenant: OwnerFlag = None,
    role: Annotated[
        Role, typer.Option(help="viewer looks; manager also changes endpoints and sends again.")
    ] = Role.VIEWER,
    subject: Annotated[
        str, typer.Option(help="Who gets the link; the audit log shows this name.")
    ] = "",
    open_within: Annotated[
        str | None, typer.Option(help="How long it can be opened; default 15m, at most 24h.")
    ] = None,
    session: Annotated[
        str | None, typer.Option(help="How long its session lasts; default 8h, at most 24h.")
    ] = None,
) -> None:
    """Make a link to the customer portal: it works once, and it is shown now and never again."""
    remote.show(
        lambda client: client.create_portal_link(
            tenant=tenant,
            role=role.value,
            subject=subject,
            open_within=open_within,
            session=session,
        ),
        _view_created,
    )


def _view_created(out: Console, made: NewPortalLink) -> None:
    out.print(f"Created: {plain(made.id)}")
    out.print(
        fields(
            (
                ("tenant", made.tenant),
                ("role", made.role),
                ("subject", made.subject or "none"),
                ("open until", made.opens_until),
                ("url", made.url),
            )
        )
    )


@links.command("list")
@remote_command
def list_links(*, remote: Remote, tenant: TenantFlag = None, limit: LimitFlag = 50) -> None:
    """List links to the customer portal and their sessions, newest first."""
    _list(remote, tenant, limit)


def _list(remote: Remote, tenant: str | None, limit: int) -> None:
    remote.list_items(
        lambda client: client.portal_links(tenant=tenant),
        limit=limit,
        columns=("id", "tenant", "role", "subject", "state", "made by", "ends"),
        row=_row,
        empty="There are no portal links. `homing portal-link create` makes one.",
    )


def _row(one: PortalLink) -> tuple[object, ...]:
    return (
        one.id,
        one.tenant,
        one.role,
        one.subject or dim("none"),
        one.state,
        one.made_by,
        one.revoked_at or one.session_until or one.opens_until,
    )


@links.command("revoke")
@remote_command
def revoke(
    link_id: Annotated[str, typer.Argument(metavar="ID", help="Its id, like plk_01k9x3w8z4g00.")],
    *,
    remote: Remote,
) -> None:
    """Revoke a link to the customer portal: it and its session end at once."""
    remote.do(
        lambda client: client.revoke_portal_link(link_id),
        document={"id": link_id, "revoked": True},
        sentence=f"Revoked {plain(link_id)}.",
    )


# --- looks ----------------------------------------------------------------------------------


@app.callback(invoke_without_command=True)
@remote_command
def portal(context: typer.Context, *, remote: Remote, tenant: OwnerFlag = None) -> None:
    """Show how the customer portal of a tenant looks, and which sites may frame it."""
    if context.invoked_subcommand is None:
        remote.show(lambda client: client.portal(tenant=tenant), _view)


def _view(out: Console, found: Portal) -> None:
    logo = found.logo
    out.print(
        fields(
            (
                ("tenant", found.tenant),
                ("name", found.name or "none"),
                ("accent colour", found.accent_color or "default"),
                ("header colour", found.header_color or "default"),
                ("theme", found.theme),
                ("logo", f"{logo.type}, {logo.bytes:,} bytes" if logo else "none"),
                ("frame ancestors", " ".join(found.frame_ancestors) or "none"),
            )
        )
    )


@app.command("set")
@remote_command
def change(
    *,
    remote: Remote,
    tenant: OwnerFlag = None,
    name: Annotated[str | None, typer.Option(help="The name above the pages.")] = None,
    accent_color: Annotated[
        str | None, typer.Option(help="Of links and buttons, like #2b50c8; empty: the default.")
    ] = None,
    header_color: Annotated[
        str | None, typer.Option(help="Of the header, like #101318; empty: the default.")
    ] = None,
    theme: Annotated[Theme | None, typer.Option(help="Light or dark pages.")] = None,
    frame_ancestor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="A site that may show the portal in a frame, like https://app.example.com; may be "
            "given again. Empty: no site.",
        ),
    ] = None,
    logo: Annotated[
        str | None, typer.Option(metavar="FILE", help="A picture; empty: no logo.")
    ] = None,
) -> None:
    """Change how the customer portal of a tenant looks; what is not given stays."""
    origins = None if not frame_ancestor else [it for it in frame_ancestor if it]
    picture = None if logo is None else _data_url(logo)
    remote.show(
        lambda client: client.change_portal(
            tenant=tenant,
            name=name,
            accent_color=accent_color,
            header_color=header_color,
            theme=None if theme is None else theme.value,
            frame_ancestors=origins,
            logo=picture,
        ),
        _view,
    )


def _data_url(file: str) -> str:
    """The file as a data URL; empty for no file. The server checks what it is."""
    if not file:
        return ""
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise Usage(f"Cannot read {file}: {error.strerror}.") from error
    kind = mimetypes.guess_type(file)[0] or "application/octet-stream"
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
