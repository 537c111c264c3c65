"""``homing find``: find deliveries, events, subscriptions, endpoints and types by one text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from homing.cli.arguments import TenantFlag
from homing.cli.output import add_row, ago, coloured, dim, note, plain, table
from homing.cli.remote import Remote, remote_command

if TYPE_CHECKING:
    from rich.console import Console

    from homing_client import SearchResult


@remote_command
def find(
    text: Annotated[
        str,
        typer.Argument(
            help="An id, an event id, a URL or a part of it, an event type, or a payload field "
            "like data.invoice.id:4711."
        ),
    ],
    *,
    remote: Remote,
    tenant: TenantFlag = None,
) -> None:
    """Find deliveries, events, subscriptions, endpoints and event types by one text."""
    remote.show(lambda client: client.search(text, tenant=tenant), _view)


def _view(out: Console, found: SearchResult) -> None:
    if found.items:
        made = table("kind", "id", "status", "at", "tenant", "")
        for one in found.items:
            status = coloured(one.status or "")
            add_row(made, one.kind, one.id, status, dim(ago(one.at)), one.tenant, one.title)
        out.print(made)
    else:
        note("Nothing was found.")
    if found.more:
        note(f"There are more: these are the first {len(found.items)}.")
    for sentence in found.notes:
        note(plain(sentence))
    if found.examples:
        note("These texts find something:")
        made = table("", "")
        for example in found.examples:
            add_row(made, example.q, dim(example.finds))
        out.print(made)
