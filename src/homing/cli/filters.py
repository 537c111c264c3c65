"""``homing filters``: try them, change a subscription's, and see why an event did not match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from msgspec import Raw

from homing.cli.output import console, nothing, plain, row, say_json, table
from homing.cli.trouble import Usage
from homing.cli.where import JsonFlag, KeyFlag, ServerFlag, TenantFlag, connect, given

if TYPE_CHECKING:
    from homing.client.filters import TryOn

app = typer.Typer(name="filters", no_args_is_help=True, rich_markup_mode=None)

FilterArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILTER]...",
        help='JSON, like \'{"field": "data.amount", "op": "gt", "value": 100}\'.',
    ),
]
AnyFlag = Annotated[bool, typer.Option("--any", help="One filter is enough (OR); default: all.")]


def read_filters(texts: list[str]) -> list[dict[str, Any]]:
    """Each text a filter, or a list of them; their values as they were written."""
    found: list[dict[str, Any]] = []
    for text in texts:
        try:
            one = msgspec.json.decode(text, type=dict[str, Raw] | list[dict[str, Raw]])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Usage(f"{text!r} is not a filter: {error}.") from None
        found += [one] if isinstance(one, dict) else one
    return found


@app.command(name="try", short_help="Try filters on data or an event.")
def try_filters(
    filters: FilterArgument = None,
    *,
    data: Annotated[str | None, typer.Option(help="JSON, to try them on.")] = None,
    event: Annotated[str | None, typer.Option(help="The id of an event to try them on.")] = None,
    event_type: Annotated[
        str | None, typer.Option("--type", help="Try them on the newest event of this type.")
    ] = None,
    one_is_enough: AnyFlag = False,
    tenant: Annotated[str | None, typer.Option(help="Whose event.")] = None,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """Try filters on data, an event, or else the newest event; says which condition decided."""
    if data is not None:
        try:
            msgspec.json.decode(data, type=msgspec.Raw)
        except msgspec.DecodeError as error:
            raise Usage(f"--data is not JSON: {error}.") from None
    on: TryOn = given(  # type: ignore[assignment]
        data=None if data is None else msgspec.Raw(data.encode()),
        event=event,
        type=event_type,
        filter_connector="OR" if one_is_enough else None,
    )
    with connect(server, key) as client:
        tried = client.try_filters(read_filters(filters or []), tenant=tenant, **on)
    if json:
        say_json(tried)
        return
    out = console()
    out.print(plain(tried.sentence), soft_wrap=True)
    for one in tried.conditions:
        mark = "✓" if one.holds else "✗"
        style = "" if one.decided else "dim"
        out.print(f"  {mark} {plain(one.sentence)}", style=style, soft_wrap=True)


@app.command(name="set", short_help="Change a subscription's filters in place.")
def set_filters(
    subscription: Annotated[str, typer.Argument(help="Its id, like sub_01k9x3w8z4g00.")],
    filters: FilterArgument = None,
    *,
    one_is_enough: AnyFlag = False,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """Replace a subscription's filters (with none: remove them); nothing is lost or doubled."""
    with connect(server, key) as client:
        changed = client.change_subscription(
            subscription,
            filters=read_filters(filters or []),
            filter_connector="OR" if one_is_enough else "AND",
        )
    if json:
        say_json(changed)
        return
    joined = f", joined by {changed.filter_connector}" if len(changed.filters) > 1 else ""
    count = len(changed.filters)
    told = f"{count} filter{'' if count == 1 else 's'}{joined}" if count else "no filters"
    console().print(f"{plain(changed.id)} has {told}.")


@app.command(short_help="Why an event did not go to a subscription.")
def why(
    event: Annotated[str, typer.Argument(help="The id of an event.")],
    *,
    tenant: TenantFlag = None,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """Why an event did not go to each of the other subscriptions of its tenant."""
    with connect(server, key) as client:
        found = client.event(event, tenant=tenant)
    if json:
        for one in found.unmatched:
            say_json(one)
        return
    if not found.unmatched:
        nothing("There are no subscriptions that it did not go to.")
        return
    made = table("subscription", "url", "why not")
    for one in found.unmatched:
        row(made, one.subscription, one.url, one.reason)
    console().print(made)
    if found.unmatched_more:
        nothing("… and older subscriptions, which are not looked at here.")
