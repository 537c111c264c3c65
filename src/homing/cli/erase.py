"""``homing erase``: erase an event, events by a payload field, or a whole tenant."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from homing.cli.arguments import TenantFlag
from homing.cli.errors import Usage
from homing.cli.output import console, note, plain, print_json
from homing.cli.remote import Remote, remote_command

if TYPE_CHECKING:
    from homing_client import Erasure, Homing

POLL_S = 0.2


@remote_command
def erase(
    event: Annotated[str | None, typer.Argument(help="The id of one event.")] = None,
    *,
    remote: Remote,
    field: Annotated[
        str | None,
        typer.Option(help="Events with this value, like data.customer.id:4711, if it is indexed."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--everything", help="All that the tenant of --tenant has.")
    ] = False,
    tenant: TenantFlag = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until it is removed from the files.")
    ] = True,
) -> None:
    """Erase data for good: from then on nothing of it is shown or sent. There is no way back."""
    if sum((event is not None, field is not None, everything)) != 1:
        raise Usage("Give the id of an event, or --field PATH:VALUE, or --everything --tenant.")
    if everything and tenant is None:
        raise Usage("Name the tenant that is erased with --tenant.")
    if not yes:
        _ask(event, field, tenant)
    with remote.connect() as client:
        if event is not None:
            done = [client.erase_event(event, tenant=tenant)]
        elif field is not None:
            done = _erase_field(client, field, tenant)
        else:
            assert tenant is not None
            done = [client.erase_tenant(tenant)]
        if wait:
            done = [_finished(client, one) for one in done]
    if remote.json:
        print_json(done[0] if len(done) == 1 else done)
        return
    for one in done:
        _show(one)


def _erase_field(client: Homing, field: str, tenant: str | None) -> list[Erasure]:
    """Erase all events with this value, as many calls as it takes."""
    path, colon, value = field.partition(":")
    if not (path and colon and value):
        raise Usage("--field needs a path and a value, like data.customer.id:4711.")
    done = [client.erase_field(path, value, tenant=tenant)]
    while done[-1].more:
        done.append(client.erase_field(path, value, tenant=tenant))
    return done


def _ask(event: str | None, field: str | None, tenant: str | None) -> None:
    whose = f"the tenant {tenant}" if tenant else "your tenant"
    if event is not None:
        what = f"the event {event} of {whose} with its deliveries"
    elif field is not None:
        what = f"all events of {whose} with {field} and their deliveries"
    else:
        what = f"everything of {whose}: events, deliveries, subscriptions, endpoints and keys"
    if not sys.stdin.isatty():
        raise Usage(f"This erases {what}: give --yes, as there is no terminal to ask.")
    typer.confirm(f"Erase {what}? There is no way back.", abort=True)


def _finished(client: Homing, one: Erasure) -> Erasure:
    while one.state == "running":
        time.sleep(POLL_S)
        one = client.erasure(one.id)
    return one


def _show(one: Erasure) -> None:
    events = "1 event" if one.events == 1 else f"{one.events:,} events"
    rows = "1 delivery" if one.deliveries == 1 else f"{one.deliveries:,} deliveries"
    pending = f", {one.cancelled:,} of them pending" if one.cancelled else ""
    console().print(f"{plain(one.id)}: {events} and {rows}{pending} erased.")
    if one.state == "running":
        note("Nothing of it is shown or sent; its removal from the files goes on.")
