"""``homing subscribe``, ``unsubscribe``, ``subscriptions`` and ``rotate-secret``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from homing.cli.arguments import (
    AnyFlag,
    LimitFlag,
    OwnerFlag,
    SecretFlag,
    SubscriptionArgument,
    TenantFlag,
    TypesArgument,
    given,
    read_seconds,
)
from homing.cli.errors import Usage
from homing.cli.filters import FILTER_EXAMPLE, read_filters
from homing.cli.output import coloured, dim, fields, plain
from homing.cli.remote import Remote, remote_command

if TYPE_CHECKING:
    from rich.console import Console

    from homing.client import NewSubscription, RotatedSubscription, Subscription
    from homing.client.values import SubscriptionOptions


@remote_command
def subscribe(
    url: Annotated[str, typer.Argument(help="The URL that the events are sent to.")],
    types: TypesArgument = None,
    *,
    remote: Remote,
    tenant: OwnerFlag = None,
    body_format: Annotated[
        str | None, typer.Option("--format", help="standard, raw, cloudevents or workfront.")
    ] = None,
    token: Annotated[str | None, typer.Option(help="Sent as Authorization: Bearer TOKEN.")] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="'name: value', sent with each request; repeatable.")
    ] = None,
    secret: SecretFlag = None,
    policy: Annotated[str | None, typer.Option(help="The name of a retry policy.")] = None,
    deadline_ms: Annotated[
        int | None, typer.Option(help="How long a response may take; default: the policy's.")
    ] = None,
    rate_per_second: Annotated[
        float | None, typer.Option(help="The maximum number of attempts per second.")
    ] = None,
    description: Annotated[str | None, typer.Option(help="What it is for.")] = None,
    only: Annotated[
        list[str] | None, typer.Option("--filter", help=f"{FILTER_EXAMPLE}; repeatable.")
    ] = None,
    one_is_enough: AnyFlag = False,
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
    remote.show(lambda client: client.subscribe(url, types or ["*"], **options), _view_created)


def _headers(lines: list[str]) -> dict[str, str]:
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise Usage(f"--header {line!r} must be like 'name: value'.")
        headers[name.strip()] = value.strip()
    return headers


def _view_created(out: Console, made: NewSubscription) -> None:
    out.print(f"Subscribed: {plain(made.id)}")
    out.print(
        fields(
            (
                ("url", made.url),
                ("types", ", ".join(made.types)),
                ("endpoint", made.endpoint),
                ("secret", made.secret),
            )
        )
    )
    out.print(
        "Every request is signed with the secret. Keep it: it is not shown again.", style="dim"
    )


@remote_command
def unsubscribe(subscription: SubscriptionArgument, *, remote: Remote) -> None:
    """Delete a subscription: no attempt starts afterwards, pending deliveries are cancelled."""
    remote.do(
        lambda client: client.delete_subscription(subscription),
        document={"id": subscription, "deleted": True},
        sentence=f"Deleted {plain(subscription)}; its pending deliveries are cancelled.",
    )


@remote_command
def subscriptions(*, remote: Remote, tenant: TenantFlag = None, limit: LimitFlag = 50) -> None:
    """List subscriptions, newest first."""
    remote.list_items(
        lambda client: client.subscriptions(tenant=tenant),
        limit=limit,
        columns=("id", "tenant", "types", "url", "active", "description"),
        row=_row,
        empty="There are no subscriptions. `homing subscribe URL` creates one.",
    )


def _row(one: Subscription) -> tuple[object, ...]:
    active = coloured("enabled", text="yes") if one.active else coloured("cancelled", text="no")
    return one.id, one.tenant, ", ".join(one.types), one.url, active, dim(one.description)


@remote_command
def rotate_secret(
    subscription: SubscriptionArgument,
    *,
    remote: Remote,
    overlap: Annotated[
        str | None, typer.Option(help="How long the old secret is used as well; default: 24h.")
    ] = None,
    secret: SecretFlag = None,
) -> None:
    """Sign with a new secret; it is shown now and never again."""
    overlap_ms = None if overlap is None else round(read_seconds(overlap, "--overlap") * 1000)
    remote.show(
        lambda client: client.rotate_secret(subscription, secret=secret, overlap_ms=overlap_ms),
        _view_rotated,
    )


def _view_rotated(out: Console, rotated: RotatedSubscription) -> None:
    out.print(f"Rotated the secret of {plain(rotated.id)}")
    out.print(
        fields(
            (
                ("secret", rotated.secret),
                *((one.value, f"signs until {one.until}") for one in rotated.secrets if one.until),
            )
        )
    )
    out.print("Keep the secret: it is not shown again.", style="dim")
