"""``homing keys``: make, list and revoke the keys of the API."""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from typing import Annotated

import typer

from homing.cli.output import console, dim, facts, nothing, plain, row, say_json, table
from homing.cli.subscriptions import LimitFlag
from homing.cli.where import JsonFlag, KeyFlag, ServerFlag, TenantFlag, connect

app = typer.Typer(name="keys", rich_markup_mode=None)


class RoleWord(StrEnum):
    """What a key is for."""

    ADMIN = "admin"
    PUBLISHER = "publisher"
    MANAGER = "manager"
    VIEWER = "viewer"


@app.callback(invoke_without_command=True)
def keys(
    context: typer.Context,
    *,
    tenant: TenantFlag = None,
    limit: LimitFlag = 50,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """List keys, newest first, revoked ones included."""
    if context.invoked_subcommand is None:
        list_keys(tenant=tenant, limit=limit, server=server, key=key, json=json)


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="What it is for.")],
    role: Annotated[RoleWord, typer.Argument(help="admin, publisher, manager or viewer.")],
    *,
    tenant: Annotated[
        str | None, typer.Option(help="Whose it is; default: default. An admin has none.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="RFC 3339, or from now like 90d; default: never.")
    ] = None,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """Make a key; it is shown now and never again."""
    with connect(server, key) as client:
        made = client.create_key(name, role.value, tenant=tenant, expires=expires)
    if json:
        say_json(made)
        return
    out = console()
    out.print(f"Made: {plain(made.id)}")
    out.print(
        facts(
            (
                ("name", made.name),
                ("role", made.role),
                ("tenant", made.tenant or "all"),
                ("expires", made.expires_at or "never"),
                ("key", made.key),
            )
        )
    )
    out.print("Keep the key: it is not shown again.", style="dim")


@app.command("list")
def list_keys(
    *,
    tenant: TenantFlag = None,
    limit: LimitFlag = 50,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """List keys, newest first, revoked ones included."""
    with connect(server, key) as client:
        found = list(islice(client.keys(tenant=tenant), limit + 1))
    if json:
        for one in found[:limit]:
            say_json(one)
        return
    if not found:
        nothing("There are no keys but the admin key. `homing keys create` makes one.")
        return
    made = table("id", "name", "role", "tenant", "last used", "expires", "revoked")
    for one in found[:limit]:
        row(
            made,
            one.id,
            one.name,
            one.role,
            one.tenant or "all",
            one.last_used_at or dim("never"),
            one.expires_at or dim("never"),
            one.revoked_at or dim("no"),
        )
    console().print(made)
    if len(found) > limit:
        nothing(f"… and more: --limit shows more than {limit}.")


@app.command("revoke")
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="Its id, like key_01k9x3w8z4g00.")],
    *,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """Revoke a key: it opens nothing any more."""
    with connect(server, key) as client:
        client.revoke_key(key_id)
    if json:
        say_json({"id": key_id, "revoked": True})
    else:
        console().print(f"Revoked {plain(key_id)}.")
