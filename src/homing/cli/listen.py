"""``homing listen``: a receiver for trying things, which can be told to misbehave."""

from __future__ import annotations

from typing import Annotated

import typer

from homing.cli.where import JsonFlag, KeyFlag, ServerFlag


def listen(
    types: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TYPES]...", help="order.paid, order.*, or * for all (default)."),
    ] = None,
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Where it listens; 0 takes a free one.")
    ] = 0,
    host: Annotated[str, typer.Option(help="The address it listens on.")] = "127.0.0.1",
    url: Annotated[
        str | None,
        typer.Option(help="The URL to subscribe, where the server sees it under another one."),
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Whose events; default: default.")] = None,
    fail: Annotated[
        int | None,
        typer.Option(min=300, max=599, help="Answer with this status instead of 204, like 503."),
    ] = None,
    rate: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="To this part of the requests, like 0.5.")
    ] = 1.0,
    duration: Annotated[
        str | None,
        typer.Option("--for", help="Misbehave for this time, like 2m, and be good afterwards."),
    ] = None,
    slow: Annotated[str | None, typer.Option(help="Answer only after this time, like 3s.")] = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="End after so many requests; default: Ctrl-C.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the subscription in place at the end.")
    ] = False,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """Receive events here: subscribe, verify and show each request; unsubscribe at the end."""
    from homing.cli.duration import read_seconds
    from homing.cli.listening import Listener, Manners
    from homing.cli.where import find

    manners = Manners(
        fail=fail,
        rate=rate,
        for_s=None if duration is None else read_seconds(duration, "--for"),
        slow_s=0.0 if slow is None else read_seconds(slow, "--slow"),
    )
    listener = Listener(find(server, key), manners, count=count, json=json)
    listener.run(types=types or ["*"], host=host, port=port, url=url, tenant=tenant, keep=keep)
