"""``homing signing-keys``: show and rotate the Ed25519 keys of a tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from homing.cli.arguments import OwnerFlag, read_seconds
from homing.cli.output import fields, plain
from homing.cli.remote import Remote, remote_command

if TYPE_CHECKING:
    from rich.console import Console

    from homing_client import SigningKeys

app = typer.Typer(name="signing-keys", rich_markup_mode=None)


@app.callback(invoke_without_command=True)
@remote_command
def signing_keys(context: typer.Context, *, remote: Remote, tenant: OwnerFlag = None) -> None:
    """Show the public keys of a tenant, for subscriptions that are signed with Ed25519."""
    if context.invoked_subcommand is None:
        remote.show(lambda client: client.signing_keys(tenant=tenant), _view)


def _view(out: Console, found: SigningKeys) -> None:
    if not found.keys:
        out.print(
            f"{plain(found.tenant)} has no signing keys yet. "
            "The first subscription with --signature ed25519 makes one."
        )
        return
    out.print(fields((("tenant", found.tenant), ("JWK set", found.jwks))))
    out.print(
        fields(
            (one.value, f"signs until {one.until}" if one.until else "signs") for one in found.keys
        )
    )


@app.command("rotate")
@remote_command
def rotate(
    *,
    remote: Remote,
    tenant: OwnerFlag = None,
    overlap: Annotated[
        str | None, typer.Option(help="How long the old key signs as well; default: 24h.")
    ] = None,
) -> None:
    """Sign with a new key: all subscriptions of the tenant that are signed with Ed25519."""
    overlap_ms = None if overlap is None else round(read_seconds(overlap, "--overlap") * 1000)
    remote.show(
        lambda client: client.rotate_signing_keys(tenant=tenant, overlap_ms=overlap_ms), _view
    )
