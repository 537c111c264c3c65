"""``homing deliveries``: where each one is, why, and what happens next."""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from homing.cli.endpoints import endpoint_id
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
    table,
    word,
)
from homing.cli.subscriptions import LimitFlag
from homing.cli.trouble import Failed
from homing.cli.where import JsonFlag, KeyFlag, ServerFlag, TenantFlag, connect, given

if TYPE_CHECKING:
    from rich.text import Text

    from homing.client import Attempt, AttemptLine, Delivery, DeliveryDetail, Homing
    from homing.client.values import DeliveriesWhere

app = typer.Typer(name="deliveries", rich_markup_mode=None)


class StatusWord(StrEnum):
    """Of a delivery."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DROPPED = "dropped"
    CANCELLED = "cancelled"


DeliveryArgument = Annotated[
    str,
    typer.Argument(
        metavar="DELIVERY", help="Its id, like dlv_01k9x3w8z4g00, or that of its event."
    ),
]
StatusFlag = Annotated[StatusWord | None, typer.Option(help="Only in this status.")]
EndpointFlag = Annotated[str | None, typer.Option(help="Only to this endpoint: ep_…, or its URL.")]
SubscriptionFlag = Annotated[str | None, typer.Option(help="Only of this subscription (sub_…).")]
TypeFlag = Annotated[str | None, typer.Option("--type", help="Only of events of this type.")]
SinceFlag = Annotated[
    str | None, typer.Option(help="Accepted since: RFC 3339, or back from now like 2h.")
]


UntilFlag = Annotated[str | None, typer.Option(help="Accepted before; like --since.")]
EventFlag = Annotated[str | None, typer.Option(help="Only of this event.")]
UrlFlag = Annotated[str | None, typer.Option(help="Only to URLs that hold this text.")]


class ReasonWord(StrEnum):
    """Why a delivery was dropped or cancelled."""

    EXHAUSTED = "exhausted"
    EXPIRED = "expired"
    BY_PERSON = "by_person"
    SUBSCRIPTION_DELETED = "subscription_deleted"


ReasonFlag = Annotated[ReasonWord | None, typer.Option(help="Only with this reason.")]


@app.callback(invoke_without_command=True)
def deliveries(
    context: typer.Context,
    *,
    status: StatusFlag = None,
    reason: ReasonFlag = None,
    endpoint: EndpointFlag = None,
    subscription: SubscriptionFlag = None,
    event: EventFlag = None,
    event_type: TypeFlag = None,
    url: UrlFlag = None,
    since: SinceFlag = None,
    until: UntilFlag = None,
    expiring_within: Annotated[
        str | None, typer.Option(help="Pending ones whose window ends within, like 6h.")
    ] = None,
    tenant: TenantFlag = None,
    limit: LimitFlag = 50,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
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
        since=since,
        until=until,
        expiring_within=expiring_within,
        tenant=tenant,
    )
    with connect(server, key) as client:
        if endpoint is not None:
            where["endpoint"] = endpoint_id(client, endpoint, tenant)
        found = list(islice(client.deliveries(**where), limit + 1))
    if json:
        for one in found[:limit]:
            say_json(one)
        return
    if not found:
        nothing("There are no such deliveries.")
        return
    _list(found[:limit])
    if len(found) > limit:
        nothing(f"… and more: --limit shows more than {limit}.")


@app.command()
def show(
    delivery: DeliveryArgument,
    *,
    tenant: TenantFlag = None,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """Show one: its attempts, the retries ahead, and why it is where it is."""
    with connect(server, key) as client:
        found = client.delivery(delivery_id(client, delivery, tenant))
    detail(found, json=json)


@app.command()
def cancel(
    delivery: DeliveryArgument,
    *,
    tenant: TenantFlag = None,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """Cancel a pending delivery."""
    with connect(server, key) as client:
        found = client.cancel_delivery(delivery_id(client, delivery, tenant))
    detail(found, json=json)


def delivery_id(client: Homing, text: str, tenant: str | None) -> str:
    """The only delivery of an event; an id of a delivery is taken as it is."""
    if text.startswith("dlv_"):
        return text
    made = client.event(text, tenant=tenant).deliveries
    if len(made) == 1:
        return made[0].id
    if not made:
        raise Failed(f"The event {plain(text)} has no deliveries: no subscription wanted it.")
    raise Failed(
        f"The event {plain(text)} has several deliveries: "
        f"`homing deliveries --event {plain(text)}` lists them."
    )


# --- showing --------------------------------------------------------------------------------


def status_word(one: Delivery) -> Text:
    """In its colour; pending and never attempted is nothing to look at yet."""
    text = word(one.status)
    if one.status == "pending" and not one.attempts_made:
        text.style = ""
    return text


def answer_word(attempt: Attempt | AttemptLine) -> Text:
    """The status code, or why there was none, in the colour of the outcome."""
    text = word(attempt.outcome)
    text.plain = plain(attempt.code if attempt.code is not None else attempt.failure or "–")
    return text


def _list(found: list[Delivery]) -> None:
    now = clock_ms()
    made = table("id", "status", "accepted", "attempts", "next", "type", "url", right=("attempts",))
    for one in found:
        row(
            made,
            one.id,
            status_word(one),
            dim(ago(one.accepted_at, now=now)),
            one.attempts_made,
            ago(one.due_at, now=now) if one.due_at else dim(one.reason or ""),
            one.type,
            one.url,
        )
    console().print(made)


def detail(one: DeliveryDetail, *, json: bool) -> None:
    """One delivery, whole."""
    if json:
        say_json(one)
        return
    out, now = console(), clock_ms()
    out.print(plain(one.explanation), style="bold", soft_wrap=True)
    out.print(
        facts(
            (
                ("id", one.id),
                ("status", status_word(one)),
                ("event", f"{one.event} ({one.type})"),
                ("url", one.url),
                ("endpoint", one.endpoint),
                ("subscription", one.subscription),
                ("webhook-id", one.webhook_id if one.webhook_id != one.id else None),
                ("tenant", one.tenant),
                ("accepted", ago(one.accepted_at, now=now)),
                ("finished", ago(one.finished_at, now=now)),
            )
        )
    )
    if one.attempts:
        made = table("#", "when", "lane", "answer", "took", "decided", "", right=("#", "took"))
        for attempt in one.attempts:
            row(
                made,
                attempt.number,
                dim(ago(attempt.started_at, now=now)),
                attempt.lane,
                answer_word(attempt),
                f"{attempt.phases.total_us / 1000:.0f} ms",
                word(attempt.decided),
                dim(attempt.detail),
            )
        out.print()
        out.print(made)
    if one.schedule:
        ahead = ", ".join(f"{step.n} {ago(step.due_at, now=now)}" for step in one.schedule)
        out.print()
        out.print(f"Retries ahead: {ahead}.", style="dim", soft_wrap=True)
