"""``homing listen --pull`` and ``homing readers``: events that are read instead of sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from homing.cli.arguments import SubscriptionArgument
from homing.cli.output import clock_ms, console, note, plain, print_json, time_of
from homing.cli.remote import Remote, Target, no_server, remote_command

if TYPE_CHECKING:
    from homing_client import AsyncHoming, Reader, ReadEvent

_DESCRIPTION = "homing listen --pull"


def run_pull(
    target: Target,
    types: Sequence[str],
    *,
    tenant: str | None,
    count: int | None,
    keep: bool,
    json: bool,
) -> None:
    """Show events until Ctrl-C, SIGTERM or the last of ``count`` events."""
    import asyncio

    asyncio.run(_pull(target, types, tenant=tenant, count=count, keep=keep, json=json))


async def _pull(
    target: Target,
    types: Sequence[str],
    *,
    tenant: str | None,
    count: int | None,
    keep: bool,
    json: bool,
) -> None:
    from homing_client import AsyncHoming, NotTrusted, Unreachable

    async with AsyncHoming(target.url, target.key) as client:
        try:
            await client.ready()
        except (Unreachable, NotTrusted) as error:
            raise no_server(target.url, error) from None
        owner: Any = {} if tenant is None else {"tenant": tenant}
        made = await client.subscribe(None, types, description=_DESCRIPTION, **owner)
        if json:
            print_json({"subscription": made.id, "types": list(made.types)})
        else:
            shown = ", ".join(made.types)
            console().print(f"Reading {plain(made.id)}: {plain(shown)}", style="bold")
            end = "keeps the subscription" if keep else "deletes the subscription"
            console().print(f"  Ctrl-C ends it and {end}", style="dim")
        try:
            await _until_signal(_show_events(client, made.id, count=count, json=json))
        finally:
            if not keep:
                await client.delete_subscription(made.id)
                if not json:
                    note(f"Deleted the subscription {made.id}.")


async def _until_signal(work: Any) -> None:
    import asyncio
    import signal

    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise


async def _show_events(
    client: AsyncHoming, subscription_id: str, *, count: int | None, json: bool
) -> None:
    remaining = count
    async for event in client.stream(subscription_id):
        _show(event, json=json)
        if remaining is not None:
            remaining -= 1
            if remaining <= 0:
                return


def _show(event: ReadEvent, *, json: bool) -> None:
    if json:
        print_json(event)
        return
    import msgspec
    from rich.text import Text

    out = console()
    out.print(
        Text.assemble(
            (f"{time_of(clock_ms())} ", "dim"),
            (plain(event.type), "bold"),
            (f"  {plain(event.id)}", "dim"),
        ),
        soft_wrap=True,
    )
    out.print(Text(plain(msgspec.json.encode(event.data).decode())), soft_wrap=True)


@remote_command
def readers(
    subscription: SubscriptionArgument,
    *,
    remote: Remote,
    remove: Annotated[
        str | None, typer.Option(metavar="NAME", help="Remove this reader instead.")
    ] = None,
) -> None:
    """List who reads a subscription without a URL, and how far each reader is."""
    if remove is not None:
        remote.do(
            lambda client: client.remove_reader(subscription, remove),
            document={"subscription": subscription, "removed": remove},
            sentence=f"Removed the reader {plain(remove)}; "
            "read again, it begins with the oldest event.",
        )
        return
    remote.list_items(
        lambda client: iter(client.readers(subscription)),
        limit=16,
        columns=("reader", "not acknowledged", "created", "last acknowledged"),
        row=_row,
        empty="No reader has acknowledged an event of this subscription yet.",
    )


def _row(one: Reader) -> tuple[object, ...]:
    return one.name, one.lag, one.created_at, one.acked_at or "never"
