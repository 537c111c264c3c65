"""``homing endpoints``: list URLs with their health; show, enable or freeze one."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from homing.cli.arguments import (
    CodeFlag,
    EndpointArgument,
    FailureFlag,
    LimitFlag,
    Outcome,
    State,
    TenantFlag,
    given,
)
from homing.cli.errors import Failed
from homing.cli.output import (
    add_row,
    ago,
    coloured,
    counted,
    dim,
    fields,
    plain,
    response_text,
    sentence,
    span,
    table,
)
from homing.cli.remote import Remote, remote_command

if TYPE_CHECKING:
    from rich.console import Console

    from homing_client import AttemptLine, Endpoint, EndpointDetail, Homing
    from homing_client.values import EndpointAttemptsWhere, EndpointsWhere

SCAN_LIMIT = 100_000

app = typer.Typer(name="endpoints", rich_markup_mode=None)


@app.callback(invoke_without_command=True)
@remote_command
def endpoints(
    context: typer.Context,
    *,
    remote: Remote,
    state: Annotated[State | None, typer.Option(help="Only in this state.")] = None,
    tenant: TenantFlag = None,
    limit: LimitFlag = 50,
) -> None:
    """List endpoints with their health; or show, enable or freeze one."""
    if context.invoked_subcommand is not None:
        return
    where: EndpointsWhere = given(tenant=tenant, state=state)  # type: ignore[assignment]
    remote.list_items(
        lambda client: client.endpoints(**where),
        limit=limit,
        columns=(
            "id",
            "state",
            "since",
            "attempts",
            "failed",
            "in a row",
            "tenant",
            "url",
            "cause",
        ),
        right=("attempts", "failed", "in a row"),
        row=_row,
        empty="There are no such endpoints.",
    )


def _row(one: Endpoint) -> tuple[object, ...]:
    counters = {counter.name: counter.value for counter in one.counters}
    return (
        one.id,
        coloured(one.state),
        dim(ago(one.since)),
        f"{counters.get('attempts', 0):,}",
        f"{counters.get('failure_percent', 0)} %",
        f"{counters.get('consecutive_failures', 0):,}",
        one.tenant,
        one.url,
        coloured("failed", text=one.causes[0].title) if one.causes else "",
    )


@app.command()
@remote_command
def show(endpoint: EndpointArgument, *, remote: Remote, tenant: TenantFlag = None) -> None:
    """Show one: its state with the reason, its counters, and how many deliveries wait for it."""
    remote.show(lambda client: client.endpoint(endpoint_id(client, endpoint, tenant)), _view)


@app.command()
@remote_command
def attempts(
    endpoint: EndpointArgument,
    *,
    remote: Remote,
    outcome: Annotated[
        Outcome | None, typer.Option(help="Only with this outcome.", show_default=False)
    ] = None,
    failure: FailureFlag = None,
    code: CodeFlag = None,
    since: Annotated[
        str | None, typer.Option(help="Started since: RFC 3339, or a duration back like 2h.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Started before this time; like --since.")
    ] = None,
    tenant: TenantFlag = None,
    limit: LimitFlag = 50,
) -> None:
    """List its attempts, newest first."""
    where: EndpointAttemptsWhere = given(  # type: ignore[assignment]
        outcome=outcome, failure=failure, code=code, since=since, until=until
    )
    remote.list_items(
        lambda client: client.endpoint_attempts(endpoint_id(client, endpoint, tenant), **where),
        limit=limit,
        columns=("when", "response", "took", "#", "lane", "decided", "type", "delivery", ""),
        right=("took", "#"),
        row=_attempt_row,
        empty="There are no such attempts.",
    )


def _attempt_row(one: AttemptLine) -> tuple[object, ...]:
    return (
        ago(one.started_at),
        response_text(one),
        f"{one.total_us / 1000:.0f} ms",
        one.number,
        one.lane,
        coloured(one.decided),
        one.type,
        one.delivery,
        dim(one.detail),
    )


@app.command()
@remote_command
def enable(endpoint: EndpointArgument, *, remote: Remote, tenant: TenantFlag = None) -> None:
    """Enable it from any state: its counters are reset, overdue deliveries are sent."""
    remote.show(lambda client: client.enable_endpoint(endpoint_id(client, endpoint, tenant)), _view)


@app.command()
@remote_command
def freeze(endpoint: EndpointArgument, *, remote: Remote, tenant: TenantFlag = None) -> None:
    """Freeze it: nothing is attempted until it is enabled."""
    remote.show(lambda client: client.freeze_endpoint(endpoint_id(client, endpoint, tenant)), _view)


def endpoint_id(client: Homing, text: str, tenant: str | None) -> str:
    """The id of the endpoint with this URL; an id is returned as it is."""
    if "://" not in text:
        return text
    where: EndpointsWhere = given(tenant=tenant)  # type: ignore[assignment]
    urls = {text, text + "/"}
    found = [one for one in islice(client.endpoints(**where), SCAN_LIMIT) if one.url in urls]
    match found:
        case [one]:
            return one.id
        case []:
            raise Failed(f"No endpoint has the URL {plain(text)}: `homing endpoints` lists them.")
        case _:
            tenants = ", ".join(sorted(one.tenant for one in found))
            raise Failed(f"Several tenants have this URL ({tenants}): choose one with --tenant.")


def _view(out: Console, one: EndpointDetail) -> None:
    out.print(sentence(one.sentence, one.sentence_parts), style="bold", soft_wrap=True)
    waiting = (
        f"{one.waiting:,}+ deliveries" if one.waiting_more else counted(one.waiting, "delivery")
    )
    out.print(
        fields(
            (
                ("id", one.id),
                ("url", one.url),
                ("tenant", one.tenant),
                ("state", coloured(one.state)),
                ("waiting", waiting),
                ("next probe", ago(one.next_probe_at)),
                ("paused until", ago(one.hold_until)),
                ("last success", ago(one.last_success_at)),
                ("first attempt", ago(one.first_attempt_at)),
            )
        )
    )
    if one.causes:
        causes = table(
            "cause", "since", "last", "attempts", "deliveries", right=("attempts", "deliveries")
        )
        in_all = sum(it.attempts for it in one.causes)
        for cause in one.causes:
            add_row(
                causes,
                coloured("failed", text=cause.title),
                ago(cause.first_seen),
                dim(ago(cause.last_seen)),
                f"{cause.attempts:,} ({round(100 * cause.attempts / in_all)} %)",
                f"{cause.deliveries:,}",
            )
        out.print()
        out.print(causes)
    counters = table("counter", "value", "limit", "", right=("value", "limit"))
    for counter in one.counters:
        is_time = counter.name.endswith("_ms")
        add_row(
            counters,
            counter.name.removesuffix("_ms"),
            span(counter.value) if is_time else f"{counter.value:,}",
            "" if counter.limit is None else span(counter.limit) if is_time else counter.limit,
            dim(counter.meaning),
        )
    out.print()
    out.print(counters)
    if one.transitions:
        out.print()
        changes = table("changed", "to", "why")
        for change in one.transitions:
            add_row(changes, dim(ago(change.at)), coloured(change.after), change.sentence)
        out.print(changes)
