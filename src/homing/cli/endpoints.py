"""``homing endpoints``: URLs with their health, and what a person may do about it."""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from homing.cli.output import (
    ago,
    clock_ms,
    console,
    dim,
    facts,
    nothing,
    plain,
    row,
    say_json,
    span,
    table,
    word,
)
from homing.cli.subscriptions import LimitFlag
from homing.cli.trouble import Failed
from homing.cli.where import JsonFlag, KeyFlag, ServerFlag, TenantFlag, connect, given

if TYPE_CHECKING:
    from homing.client import Endpoint, EndpointDetail, Homing
    from homing.client.values import EndpointsWhere

LOOKED_AT_MOST = 100_000

app = typer.Typer(name="endpoints", rich_markup_mode=None)


class StateWord(StrEnum):
    """Of an endpoint."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    FROZEN = "frozen"


EndpointArgument = Annotated[
    str, typer.Argument(metavar="ENDPOINT", help="Its id, like ep_01k9x3w8z4g00, or its URL.")
]


@app.callback(invoke_without_command=True)
def endpoints(
    context: typer.Context,
    *,
    state: Annotated[StateWord | None, typer.Option(help="Only in this state.")] = None,
    tenant: TenantFlag = None,
    limit: LimitFlag = 50,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """List endpoints with their health; or show, enable or freeze one."""
    if context.invoked_subcommand is not None:
        return
    where: EndpointsWhere = given(tenant=tenant, state=state)  # type: ignore[assignment]
    with connect(server, key) as client:
        found = list(islice(client.endpoints(**where), limit + 1))
    if json:
        for one in found[:limit]:
            say_json(one)
        return
    if not found:
        nothing("There are no such endpoints.")
        return
    _list(found[:limit])
    if len(found) > limit:
        nothing(f"… and more: --limit shows more than {limit}.")


@app.command()
def show(
    endpoint: EndpointArgument,
    *,
    tenant: TenantFlag = None,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """Show one: since when and why it is in its state, and what waits for it."""
    with connect(server, key) as client:
        found = client.endpoint(endpoint_id(client, endpoint, tenant))
    _detail(found, json=json)


@app.command()
def enable(
    endpoint: EndpointArgument,
    *,
    tenant: TenantFlag = None,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """Enable it from any state; its counters start again, what is overdue goes."""
    with connect(server, key) as client:
        found = client.enable_endpoint(endpoint_id(client, endpoint, tenant))
    _detail(found, json=json)


@app.command()
def freeze(
    endpoint: EndpointArgument,
    *,
    tenant: TenantFlag = None,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """Freeze it: nothing is attempted until it is enabled."""
    with connect(server, key) as client:
        found = client.freeze_endpoint(endpoint_id(client, endpoint, tenant))
    _detail(found, json=json)


def endpoint_id(client: Homing, text: str, tenant: str | None) -> str:
    """The id behind a URL; an id is taken as it is."""
    if "://" not in text:
        return text
    where: EndpointsWhere = given(tenant=tenant)  # type: ignore[assignment]
    looked_at = islice(client.endpoints(**where), LOOKED_AT_MOST)
    wanted = {text, text + "/"}
    found = [one for one in looked_at if one.url in wanted]
    match found:
        case [one]:
            return one.id
        case []:
            raise Failed(f"No endpoint has the URL {plain(text)}: `homing endpoints` lists them.")
        case _:
            tenants = ", ".join(sorted(one.tenant for one in found))
            raise Failed(f"Several tenants have this URL ({tenants}): say whose with --tenant.")


# --- showing --------------------------------------------------------------------------------


def _counter(endpoint: Endpoint, name: str) -> int:
    return next((one.value for one in endpoint.counters if one.name == name), 0)


def _list(found: list[Endpoint]) -> None:
    now = clock_ms()
    made = table(
        "id", "state", "since", "attempts", "failed", "in a row", "tenant", "url",
        right=("attempts", "failed", "in a row"),
    )  # fmt: skip
    for one in found:
        row(
            made,
            one.id,
            word(one.state),
            dim(ago(one.since, now=now)),
            f"{_counter(one, 'attempts'):,}",
            f"{_counter(one, 'failure_percent')} %",
            f"{_counter(one, 'consecutive_failures'):,}",
            one.tenant,
            one.url,
        )
    console().print(made)


def _detail(one: EndpointDetail, *, json: bool) -> None:
    if json:
        say_json(one)
        return
    out, now = console(), clock_ms()
    out.print(plain(one.sentence), style="bold", soft_wrap=True)
    waiting = f"{one.waiting:,}{'+' if one.waiting_more else ''} deliveries"
    out.print(
        facts(
            (
                ("id", one.id),
                ("url", one.url),
                ("tenant", one.tenant),
                ("state", word(one.state)),
                ("waiting", waiting),
                ("next probe", ago(one.next_probe_at, now=now)),
                ("paused for", ago(one.hold_until, now=now)),
                ("last success", ago(one.last_success_at, now=now)),
                ("first attempt", ago(one.first_attempt_at, now=now)),
            )
        )
    )
    limits = table("counter", "is", "limit", "", right=("is", "limit"))
    for counter in one.counters:
        is_time = counter.name.endswith("_ms")
        row(
            limits,
            counter.name.removesuffix("_ms"),
            span(counter.value) if is_time else f"{counter.value:,}",
            "" if counter.limit is None else span(counter.limit) if is_time else counter.limit,
            dim(counter.meaning),
        )
    out.print()
    out.print(limits)
    if one.transitions:
        out.print()
        changes = table("changed", "to", "why")
        for change in one.transitions:
            row(changes, dim(ago(change.at, now=now)), word(change.after), change.sentence)
        out.print(changes)
