"""``homing lost-commits``: what a failover of the database has lost, and its confirmation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from homing.cli.output import plain
from homing.cli.remote import Remote, remote_command

if TYPE_CHECKING:
    from rich.console import Console

    from homing_client import LostCommits

app = typer.Typer(name="lost-commits", rich_markup_mode=None, no_args_is_help=True)


@app.command("list")
@remote_command
def list_losses(*, remote: Remote) -> None:
    """Show what may be missing after failovers that lost commits, until it is confirmed."""
    remote.show(lambda client: client.lost_commits(), _view)


def _view(out: Console, found: LostCommits) -> None:
    if not found.items:
        out.print("No lost commits.")
    for one in found.items:
        out.print(f"{one.noticed_at}  {plain(one.missing)}")
    if found.holding:
        out.print("Events are refused until you confirm: homing lost-commits confirm")


@app.command("confirm")
@remote_command
def confirm(*, remote: Remote) -> None:
    """Confirm all losses; events that were refused because of them are accepted again."""
    remote.show(lambda client: client.confirm_lost_commits(), _confirmed)


def _confirmed(out: Console, found: LostCommits) -> None:
    if not found.items:
        out.print("There was nothing to confirm.")
    for one in found.items:
        out.print(f"Confirmed: {plain(one.missing)}")
