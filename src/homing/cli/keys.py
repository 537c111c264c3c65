"""``homing keys``: create, list and revoke API keys."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from homing.cli.arguments import LimitFlag, TenantFlag
from homing.cli.output import dim, fields, plain
from homing.cli.remote import Remote, remote_command

if TYPE_CHECKING:
    from rich.console import Console

    from homing_client import Key, NewKey

app = typer.Typer(name="keys", rich_markup_mode=None)


class Role(StrEnum):
    """What a key allows."""

    ADMIN = "admin"
    PUBLISHER = "publisher"
    MANAGER = "manager"
    VIEWER = "viewer"
    METRICS = "metrics"


@app.callback(invoke_without_command=True)
@remote_command
def keys(
    context: typer.Context,
    *,
    remote: Remote,
    tenant: TenantFlag = None,
    limit: LimitFlag = 50,
) -> None:
    """List API keys, newest first, including revoked ones; or create or revoke one."""
    if context.invoked_subcommand is None:
        _list(remote, tenant, limit)


@app.command("create")
@remote_command
def create(
    name: Annotated[str, typer.Argument(help="What it is for.")],
    role: Annotated[Role, typer.Argument(help="admin, publisher, manager, viewer or metrics.")],
    *,
    remote: Remote,
    tenant: Annotated[
        str | None,
        typer.Option(help='Its tenant; default: "default". Admin and metrics keys have none.'),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="RFC 3339, or a duration from now like 90d; default: never.")
    ] = None,
) -> None:
    """Create an API key; it is shown now and never again."""
    remote.show(
        lambda client: client.create_key(name, role.value, tenant=tenant, expires=expires),
        _view_created,
    )


def _view_created(out: Console, made: NewKey) -> None:
    out.print(f"Created: {plain(made.id)}")
    out.print(
        fields(
            (
                ("name", made.name),
                ("role", made.role),
                ("tenant", _tenant_of(made)),
                ("expires", made.expires_at or "never"),
                ("key", made.key),
            )
        )
    )
    out.print("Keep the key: it is not shown again.", style="dim")


@app.command("list")
@remote_command
def list_keys(*, remote: Remote, tenant: TenantFlag = None, limit: LimitFlag = 50) -> None:
    """List API keys, newest first, including revoked ones."""
    _list(remote, tenant, limit)


def _list(remote: Remote, tenant: str | None, limit: int) -> None:
    remote.list_items(
        lambda client: client.keys(tenant=tenant),
        limit=limit,
        columns=("id", "name", "role", "tenant", "last used", "expires", "revoked"),
        row=_row,
        empty="There are no keys besides the admin key. "
        "`homing keys create billing publisher` creates one.",
    )


def _tenant_of(key: Key) -> str:
    """An admin key is valid for every tenant; a metrics key reads no tenant's data."""
    return key.tenant or ("none" if key.role == "metrics" else "all")


def _row(one: Key) -> tuple[object, ...]:
    return (
        one.id,
        one.name,
        one.role,
        _tenant_of(one),
        one.last_used_at or dim("never"),
        one.expires_at or dim("never"),
        one.revoked_at or dim("no"),
    )


@app.command("revoke")
@remote_command
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="Its id, like key_01k9x3w8z4g00.")],
    *,
    remote: Remote,
) -> None:
    """Revoke an API key: the server refuses it from now on."""
    remote.do(
        lambda client: client.revoke_key(key_id),
        document={"id": key_id, "revoked": True},
        sentence=f"Revoked {plain(key_id)}.",
    )
