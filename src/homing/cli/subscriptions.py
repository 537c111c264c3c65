"""``homing subscribe``, ``unsubscribe``, ``subscriptions`` and ``rotate-secret``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

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
from homing.cli.output import coloured, dim, fields, past_events, plain
from homing.cli.remote import Remote, remote_command
from homing.cli.subscription_options import field_facts, read_fields, with_field_options
from homing.model import SPEC

if TYPE_CHECKING:
    from rich.console import Console

    from homing_client import NewSubscription, RotatedSubscription, Subscription
    from homing_client.subscription import SubscriptionOptions


@remote_command
@with_field_options
def subscribe(
    url: Annotated[str, typer.Argument(help=SPEC["url"].sentence)],
    types: TypesArgument = None,
    *,
    remote: Remote,
    tenant: OwnerFlag = None,
    secret: SecretFlag = None,
    one_is_enough: AnyFlag = False,
    pull: Annotated[
        bool,
        typer.Option("--pull", help="Without a URL: all arguments are types, events are read."),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Start in the past: events accepted since a time, or like 7d back from now.",
        ),
    ] = None,
    per_second: Annotated[
        int | None,
        typer.Option(help="With --from: deliveries of past events per second; default: 100."),
    ] = None,
    **fields: Any,
) -> None:
    """Create a subscription; its secret is shown now and never again."""
    if pull:
        url, types = "", [url, *(types or ())]
    options: SubscriptionOptions = given(  # type: ignore[assignment]
        tenant=tenant,
        secret=secret,
        filter_connector="OR" if one_is_enough else None,
        **read_fields(fields),
    )
    remote.show(
        lambda client: client.subscribe(
            url, types or ["*"], since=since, per_second=per_second, **options
        ),
        _view_created,
    )


_SIGNED = {
    "hmac": "Every request is signed with the secret. Keep it: it is not shown again.",
    "ed25519": "Every request is signed with the signing key of the tenant: give receivers the "
    "public key. The secret is for a change to hmac or both; it is not shown again.",
    "both": "Every request is signed with the secret and with the signing key of the tenant. Keep "
    "the secret: it is not shown again.",
}


def _view_created(out: Console, made: NewSubscription) -> None:
    out.print(f"Subscribed: {plain(made.id)}")
    out.print(
        fields(
            (
                *field_facts(made),
                *((("endpoint", made.endpoint), ("secret", made.secret)) if made.url else ()),
                *(("public key", one.value) for one in made.public_keys),
            )
        )
    )
    _view_receiver(out, made)
    if not made.url:
        path = f"GET /v1/subscriptions/{plain(made.id)}/events"
        out.print(f"Its events are not sent: read them with {path}.", style="dim")
        return
    if made.backfill is not None:
        found = past_events(made.backfill.count, exact=made.backfill.exact)
        out.print(f"The job {plain(made.backfill.id)} delivers {found}.")
    out.print(_SIGNED[made.signature], style="dim")


def _view_receiver(out: Console, one: Subscription) -> None:
    """Why the subscription gets no events, if its receiver is the reason."""
    it = one.receiver
    if one.unverified:
        why = f" {plain(it.problem)}" if it is not None and it.problem else ""
        out.print(
            f"It gets no events yet: the receiver has not proved that it owns the URL.{why} "
            f"Once it can, run `homing verify {plain(one.id)}`.",
            style="yellow",
        )
    elif it is not None and it.gone_at is not None:
        out.print(f"Its receiver responded with 410 at {plain(it.gone_at)}.", style="yellow")


@remote_command
def verify(subscription: SubscriptionArgument, *, remote: Remote) -> None:
    """Ask the receiver of a subscription to prove that it owns the URL."""
    remote.show(lambda client: client.verify_subscription(subscription), _view_verified)


def _view_verified(out: Console, one: Subscription) -> None:
    if one.unverified:
        _view_receiver(out, one)
    else:
        out.print(f"Verified: {plain(one.id)} gets events.")


@remote_command
def pause(subscription: SubscriptionArgument, *, remote: Remote) -> None:
    """Pause a subscription: its deliveries wait, and their windows do not run, until it is resumed.

    Events are accepted as before. Nothing is dropped before the retention ends.
    """
    remote.show(lambda client: client.pause_subscription(subscription), _view_paused)


@remote_command
def resume(subscription: SubscriptionArgument, *, remote: Remote) -> None:
    """End the pause of a subscription: due times and windows have moved by its length."""
    remote.show(lambda client: client.resume_subscription(subscription), _view_paused)


def _view_paused(out: Console, one: Subscription) -> None:
    if one.paused_since is None:
        out.print(f"Resumed: the deliveries of {plain(one.id)} are sent.")
        return
    out.print(
        f"Paused: the deliveries of {plain(one.id)} wait since {plain(one.paused_since)}. "
        f"`homing resume {plain(one.id)}` ends the pause."
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
        empty="There are no subscriptions. "
        "`homing subscribe https://example.com/hook '*'` creates one.",
    )


def _row(one: Subscription) -> tuple[object, ...]:
    active = coloured("enabled", text="yes") if one.active else coloured("cancelled", text="no")
    if one.receiver is not None and one.receiver.gone_at is not None:
        active = coloured("cancelled", text="no (410)")
    elif one.unverified:
        active = coloured("cancelled", text="unverified")
    elif one.active and one.paused_since is not None:
        active = coloured("pending", text="paused")
    return (
        one.id,
        one.tenant,
        ", ".join(one.types),
        one.url or dim("read"),
        active,
        dim(one.description),
    )


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
