"""``homing subscribe``, ``unsubscribe`` and ``subscriptions``."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from homing.cli.filters import AnyFlag, read_filters
from homing.cli.output import console, dim, facts, nothing, plain, row, say_json, table, word
from homing.cli.trouble import Usage
from homing.cli.where import JsonFlag, KeyFlag, ServerFlag, TenantFlag, connect, given

if TYPE_CHECKING:
    from homing.client import Subscription
    from homing.client.values import SubscriptionOptions

LimitFlag = Annotated[int, typer.Option("--limit", min=1, help="How many at most, newest first.")]


def subscribe(
    url: Annotated[str, typer.Argument(help="Where the events go.")],
    types: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TYPES]...", help="order.paid, order.*, or * for all (default)."),
    ] = None,
    *,
    tenant: Annotated[str | None, typer.Option(help="Whose events; default: default.")] = None,
    body_format: Annotated[
        str | None, typer.Option("--format", help="standard, raw, cloudevents or workfront.")
    ] = None,
    token: Annotated[str | None, typer.Option(help="Sent as Authorization: Bearer TOKEN.")] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="'name: value', sent with each request; repeatable.")
    ] = None,
    secret: Annotated[
        str | None, typer.Option(help="whsec_…, to sign with; default: a new one is made.")
    ] = None,
    policy: Annotated[str | None, typer.Option(help="A retry policy by its name.")] = None,
    deadline_ms: Annotated[
        int | None, typer.Option(help="How long an answer may take; default: the policy's.")
    ] = None,
    rate_per_second: Annotated[
        float | None, typer.Option(help="Attempts a second at most; the others wait their turn.")
    ] = None,
    description: Annotated[str | None, typer.Option(help="What it is for.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            help='JSON, like \'{"field": "data.amount", "op": "gt", "value": 100}\'; repeatable.',
        ),
    ] = None,
    one_is_enough: AnyFlag = False,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """Create a subscription; its secret is shown now and never again."""
    options: SubscriptionOptions = given(  # type: ignore[assignment]
        tenant=tenant,
        format=body_format,
        token=token,
        headers=_headers(header) if header else None,
        secret=secret,
        policy=policy,
        deadline_ms=deadline_ms,
        rate_per_second=rate_per_second,
        description=description,
        filters=read_filters(only) if only else None,
        filter_connector="OR" if one_is_enough else None,
    )
    with connect(server, key) as client:
        made = client.subscribe(url, types or ["*"], **options)
    if json:
        say_json(made)
        return
    out = console()
    out.print(f"Subscribed: {plain(made.id)}")
    out.print(
        facts(
            (
                ("url", made.url),
                ("types", ", ".join(made.types)),
                ("endpoint", made.endpoint),
                ("secret", made.secret),
            )
        )
    )
    out.print("The secret signs every request. Keep it: it is not shown again.", style="dim")


def _headers(lines: list[str]) -> dict[str, str]:
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise Usage(f"--header {line!r} must be like 'name: value'.")
        headers[name.strip()] = value.strip()
    return headers


def unsubscribe(
    subscription: Annotated[str, typer.Argument(help="Its id, like sub_01k9x3w8z4g00.")],
    *,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """Delete a subscription: no attempt starts any more, what is pending is cancelled."""
    with connect(server, key) as client:
        client.delete_subscription(subscription)
    if json:
        say_json({"id": subscription, "deleted": True})
    else:
        console().print(f"Deleted {plain(subscription)}; what was pending is cancelled.")


def subscriptions(
    *,
    tenant: TenantFlag = None,
    limit: LimitFlag = 50,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """List subscriptions, newest first."""
    with connect(server, key) as client:
        found = list(islice(client.subscriptions(tenant=tenant), limit + 1))
    show(found, limit, json=json)


def show(found: list[Subscription], limit: int, *, json: bool) -> None:
    """As lines of JSON, or as a table."""
    if json:
        for one in found[:limit]:
            say_json(one)
        return
    if not found:
        nothing("There are no subscriptions. `homing subscribe URL` makes one.")
        return
    made = table("id", "tenant", "types", "url", "active", "description")
    for one in found[:limit]:
        active = word("enabled") if one.active else word("cancelled")
        active.plain = "yes" if one.active else "no"
        row(made, one.id, one.tenant, ", ".join(one.types), one.url, active, dim(one.description))
    console().print(made)
    more(found, limit)


def more(found: list[object] | list[Subscription], limit: int) -> None:
    """Say that a list goes on."""
    if len(found) > limit:
        nothing(f"… and more: --limit shows more than {limit}.")
