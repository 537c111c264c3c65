"""Commands that run on this machine: their flags. Each imports its implementation when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from homing.cli.arguments import (
    ConfigFlag,
    DatabaseFlag,
    DataFlag,
    JsonFlag,
    KeyFlag,
    OwnerFlag,
    ServerFlag,
    TypesArgument,
    read_seconds,
)
from homing.cli.errors import Usage


def demo(
    *,
    speed: Annotated[
        int, typer.Option(min=1_000, max=100_000, help="The divisor of all times.")
    ] = 5_000,
    json: JsonFlag = False,
) -> None:
    """Show all states of a URL in two minutes, with a server, three receivers and traffic."""
    from homing.cli.demo.run import run_demo

    run_demo(speed=speed, json=json)


_PULL_RULE = (
    "With --pull no request is sent to this machine: "
    "leave out --port, --host, --url, --fail, --rate, --for and --slow."
)


def listen(
    types: TypesArgument = None,
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port to listen on; 0 takes a free one.")
    ] = 0,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    url: Annotated[
        str | None,
        typer.Option(help="The URL to subscribe, if the server reaches it under another one."),
    ] = None,
    tenant: OwnerFlag = None,
    fail: Annotated[
        int | None,
        typer.Option(min=300, max=599, help="Respond with this status, like 503, instead of 204."),
    ] = None,
    rate: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="The share of requests that --fail and --slow affect."),
    ] = 1.0,
    duration: Annotated[
        str | None,
        typer.Option("--for", help="How long --fail and --slow apply, like 2m; default: always."),
    ] = None,
    slow: Annotated[str | None, typer.Option(help="Respond after this time, like 3s.")] = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="Stop after this many requests; default: at Ctrl-C.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Do not delete the subscription at the end.")
    ] = False,
    pull: Annotated[
        bool,
        typer.Option("--pull", help="Read the events from the server: it need not reach a URL."),
    ] = False,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """Receive events here: subscribe, verify and show each request, unsubscribe at the end."""
    from homing.cli.listener import Behaviour, Listener
    from homing.cli.pull import run_pull
    from homing.cli.remote import find_server

    if pull:
        if (port, host, rate) != (0, "127.0.0.1", 1.0) or any((url, fail, duration, slow)):
            raise Usage(_PULL_RULE)
        target = find_server(server, key)
        run_pull(target, types or ["*"], tenant=tenant, count=count, keep=keep, json=json)
        return
    behaviour = Behaviour(
        fail=fail,
        rate=rate,
        for_s=None if duration is None else read_seconds(duration, "--for"),
        slow_s=0.0 if slow is None else read_seconds(slow, "--slow"),
    )
    listener = Listener(find_server(server, key), behaviour, count=count, json=json)
    listener.run(types=types or ["*"], host=host, port=port, url=url, tenant=tenant, keep=keep)


def relay(
    *,
    database: DatabaseFlag = None,
    config: ConfigFlag = None,
    server: ServerFlag = None,
    key: KeyFlag = None,
    metrics: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help="Serve /metrics on this port of 127.0.0.1."),
    ] = None,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="Stop when no row waits.")
    ] = False,
) -> None:
    """Publish the rows that are committed to an application's outbox, until SIGTERM.

    Any number of relays may run at once. A relay that is killed loses no row and publishes none
    twice.
    """
    from homing.cli.relay import run_relay

    run_relay(
        database=database,
        config=config,
        server=server,
        key=key,
        metrics_port=metrics,
        until_empty=until_empty,
    )


def doctor(
    *,
    config: ConfigFlag = None,
    data: DataFlag = None,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """Check settings, store, clock, disk, server and backlog; say what is wrong and what to do."""
    from homing.cli.doctor import run_doctor

    if not run_doctor(config=config, data=data, server=server, key=key, json=json):
        raise typer.Exit(1)


def backup(
    file: Annotated[Path, typer.Argument(help="The file to write; it must not exist yet.")],
    *,
    config: ConfigFlag = None,
    data: DataFlag = None,
    json: JsonFlag = False,
) -> None:
    """Copy the SQLite database to a file and verify the copy; the server may be running."""
    from homing.cli.backup import run_backup

    run_backup(file, config=config, data=data, json=json)


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `homing backup FILE` has written.")],
    *,
    config: ConfigFlag = None,
    data: DataFlag = None,
    json: JsonFlag = False,
) -> None:
    """Copy a backup into an empty data directory and verify it; nothing is overwritten."""
    from homing.cli.backup import run_restore

    run_restore(file, config=config, data=data, json=json)


def reference(
    directory: Annotated[Path, typer.Argument(help="The directory to write to.")] = Path(
        "docs/reference"
    ),
) -> None:
    """Write the reference pages that are generated from the code."""
    from homing.cli.reference import write_pages

    for path in write_pages(directory):
        print(path)
