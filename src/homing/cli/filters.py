"""``homing filters``: try filters, set those of a subscription, see why an event did not match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from msgspec import Raw

from homing.cli.arguments import AnyFlag, SubscriptionArgument, TenantFlag, given
from homing.cli.errors import Usage
from homing.cli.output import counted, note, plain, print_list
from homing.cli.remote import Remote, remote_command

if TYPE_CHECKING:
    from rich.console import Console

    from homing_client import FilterResult, Subscription
    from homing_client.values import FilterInput

app = typer.Typer(name="filters", no_args_is_help=True, rich_markup_mode=None)

FILTER_EXAMPLE = 'JSON, like \'{"field": "data.amount", "op": "gt", "value": 100}\''
FilterArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[FILTER]...", help=f"{FILTER_EXAMPLE}.")
]


def read_filters(texts: list[str]) -> list[dict[str, Any]]:
    """The filters in these texts, each a filter or a list of them; values stay as written."""
    found: list[dict[str, Any]] = []
    for text in texts:
        try:
            one = msgspec.json.decode(text, type=dict[str, Raw] | list[dict[str, Raw]])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Usage(f"{text!r} is not a filter: {error}.") from None
        found += [one] if isinstance(one, dict) else one
    return found


@app.command(name="try", short_help="Try filters on data or an event.")
@remote_command
def try_filters(
    filters: FilterArgument = None,
    *,
    remote: Remote,
    data: Annotated[str | None, typer.Option(help="Try them on this JSON.")] = None,
    event: Annotated[str | None, typer.Option(help="Try them on the event with this id.")] = None,
    event_type: Annotated[
        str | None, typer.Option("--type", help="Try them on the newest event of this type.")
    ] = None,
    one_is_enough: AnyFlag = False,
    tenant: Annotated[str | None, typer.Option(help="The tenant of the event.")] = None,
) -> None:
    """Try filters on data, an event, or the newest event, and show which condition decided."""
    if data is not None:
        try:
            msgspec.json.decode(data, type=msgspec.Raw)
        except msgspec.DecodeError as error:
            raise Usage(f"--data is not JSON: {error}.") from None
    on: FilterInput = given(  # type: ignore[assignment]
        data=None if data is None else msgspec.Raw(data.encode()),
        event=event,
        type=event_type,
        filter_connector="OR" if one_is_enough else None,
    )
    wanted = read_filters(filters or [])
    remote.show(lambda client: client.try_filters(wanted, tenant=tenant, **on), _view_result)


def _view_result(out: Console, result: FilterResult) -> None:
    out.print(plain(result.sentence), soft_wrap=True)
    for one in result.conditions:
        mark = "✓" if one.holds else "✗"
        style = "" if one.decided else "dim"
        out.print(f"  {mark} {plain(one.sentence)}", style=style, soft_wrap=True)


@app.command(name="set", short_help="Replace a subscription's filters.")
@remote_command
def set_filters(
    subscription: SubscriptionArgument,
    filters: FilterArgument = None,
    *,
    remote: Remote,
    one_is_enough: AnyFlag = False,
) -> None:
    """Replace a subscription's filters, or remove them all; no event is lost or sent twice."""
    wanted = read_filters(filters or [])
    connector = "OR" if one_is_enough else "AND"
    remote.show(
        lambda client: client.change_subscription(
            subscription, filters=wanted, filter_connector=connector
        ),
        _view_changed,
    )


def _view_changed(out: Console, changed: Subscription) -> None:
    count = len(changed.filters)
    joined = f", joined by {changed.filter_connector}" if count > 1 else ""
    out.print(
        f"{plain(changed.id)} has {counted(count, 'filter') if count else 'no filters'}{joined}."
    )


@app.command(short_help="Show why an event did not match.")
@remote_command
def why(
    event: Annotated[str, typer.Argument(help="The id of an event.")],
    *,
    remote: Remote,
    tenant: TenantFlag = None,
) -> None:
    """Show for each subscription that an event was not delivered to why it did not match."""
    with remote.connect() as client:
        found = client.event(event, tenant=tenant)
    print_list(
        found.unmatched,
        columns=("subscription", "url", "why not"),
        row=lambda one: (one.subscription, one.url, one.reason),
        empty="The event matched every subscription of its tenant.",
        json=remote.json,
    )
    if found.unmatched_more and not remote.json:
        note("… and older subscriptions, which are not checked.")
