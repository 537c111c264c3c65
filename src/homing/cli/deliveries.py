"""``homing deliveries``: list deliveries; show or cancel one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from homing.cli.arguments import (
    CodeFlag,
    DeliveryArgument,
    EndpointFlag,
    EventFlag,
    FailureFlag,
    FinishedSinceFlag,
    LimitFlag,
    ReasonFlag,
    SinceFlag,
    StatusFlag,
    SubscriptionFlag,
    TenantFlag,
    TypeFlag,
    UntilFlag,
    UrlFlag,
    given,
)
from homing.cli.endpoints import endpoint_id
from homing.cli.errors import Failed
from homing.cli.output import (
    add_row,
    ago,
    coloured,
    dim,
    fields,
    plain,
    response_text,
    sentence,
    table,
)
from homing.cli.remote import Remote, remote_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.text import Text

    from homing_client import Delivery, DeliveryDetail, Homing
    from homing_client.values import DeliveriesWhere

app = typer.Typer(name="deliveries", rich_markup_mode=None)


@app.callback(invoke_without_command=True)
@remote_command
def deliveries(
    context: typer.Context,
    *,
    remote: Remote,
    status: StatusFlag = None,
    reason: ReasonFlag = None,
    endpoint: EndpointFlag = None,
    subscription: SubscriptionFlag = None,
    event: EventFlag = None,
    event_type: TypeFlag = None,
    url: UrlFlag = None,
    failure: FailureFlag = None,
    code: CodeFlag = None,
    since: SinceFlag = None,
    until: UntilFlag = None,
    finished_since: FinishedSinceFlag = None,
    expiring_within: Annotated[
        str | None, typer.Option(help="Pending ones whose retry window ends within, like 6h.")
    ] = None,
    tenant: TenantFlag = None,
    limit: LimitFlag = 50,
) -> None:
    """List deliveries, pending and finished, newest first; or show or cancel one."""
    if context.invoked_subcommand is not None:
        return
    where: DeliveriesWhere = given(  # type: ignore[assignment]
        status=status,
        reason=reason,
        subscription=subscription,
        event=event,
        type=event_type,
        url=url,
        failure=failure,
        code=code,
        since=since,
        until=until,
        finished_since=finished_since,
        expiring_within=expiring_within,
        tenant=tenant,
    )

    def fetch(client: Homing) -> Iterator[Delivery]:
        if endpoint is not None:
            where["endpoint"] = endpoint_id(client, endpoint, tenant)
        return client.deliveries(**where)

    remote.list_items(
        fetch,
        limit=limit,
        columns=("id", "status", "accepted", "attempts", "next", "type", "url", "last failure"),
        right=("attempts",),
        row=_row,
        empty="There are no such deliveries.",
    )


def _row(one: Delivery) -> tuple[object, ...]:
    return (
        one.id,
        _status(one),
        dim(ago(one.accepted_at)),
        one.attempts_made,
        ago(one.due_at) if one.due_at else dim(one.reason or ""),
        one.type,
        one.url,
        coloured("failed", text=one.last_failure.title) if one.last_failure else "",
    )


@app.command()
@remote_command
def show(delivery: DeliveryArgument, *, remote: Remote, tenant: TenantFlag = None) -> None:
    """Show one: its attempts, the retries ahead, and an explanation of its status."""
    remote.show(
        lambda client: client.delivery(delivery_id(client, delivery, tenant)), view_delivery
    )


@app.command("try")
@remote_command
def try_now(delivery: DeliveryArgument, *, remote: Remote, tenant: TenantFlag = None) -> None:
    """Make the next retry of a pending delivery now."""
    remote.show(
        lambda client: client.try_delivery(delivery_id(client, delivery, tenant)), view_delivery
    )


@app.command()
@remote_command
def cancel(delivery: DeliveryArgument, *, remote: Remote, tenant: TenantFlag = None) -> None:
    """Cancel a pending delivery."""
    remote.show(
        lambda client: client.cancel_delivery(delivery_id(client, delivery, tenant)), view_delivery
    )


def delivery_id(client: Homing, text: str, tenant: str | None) -> str:
    """The id of an event's only delivery; a delivery's id is returned as it is."""
    if text.startswith("dlv_"):
        return text
    found = client.event(text, tenant=tenant).deliveries
    if len(found) == 1:
        return found[0].id
    if not found:
        raise Failed(f"The event {plain(text)} has no deliveries: no subscription matched it.")
    raise Failed(
        f"The event {plain(text)} has several deliveries: "
        f"`homing deliveries --event {plain(text)}` lists them."
    )


# --- printing -------------------------------------------------------------------------------


def _status(one: Delivery) -> Text:
    """In its colour; a pending delivery without attempts needs no colour yet."""
    text = coloured(one.status)
    if one.status == "pending" and not one.attempts_made:
        text.style = ""
    return text


def view_delivery(out: Console, one: DeliveryDetail) -> None:
    explanation = sentence(one.explanation, one.explanation_parts)
    out.print(explanation, style="bold", soft_wrap=True)
    out.print(
        fields(
            (
                ("id", one.id),
                ("status", _status(one)),
                ("event", f"{one.event} ({one.type})"),
                ("url", one.url),
                ("endpoint", one.endpoint),
                ("subscription", one.subscription),
                ("webhook-id", one.webhook_id if one.webhook_id != one.id else None),
                ("tenant", one.tenant),
                ("accepted", ago(one.accepted_at)),
                ("finished", ago(one.finished_at)),
                ("last failure", one.last_failure.title if one.last_failure else None),
            )
        )
    )
    if one.attempts:
        attempts = table(
            "#", "when", "lane", "response", "took", "decided", "", right=("#", "took")
        )
        for attempt in one.attempts:
            add_row(
                attempts,
                attempt.number,
                dim(ago(attempt.started_at)),
                attempt.lane,
                response_text(attempt),
                f"{attempt.phases.total_us / 1000:.0f} ms",
                coloured(attempt.decided),
                dim(attempt.detail),
            )
        out.print()
        out.print(attempts)
    if one.schedule:
        ahead = ", ".join(f"{step.n} {ago(step.due_at)}" for step in one.schedule)
        out.print()
        out.print(f"Retries ahead: {ahead}.", style="dim", soft_wrap=True)
