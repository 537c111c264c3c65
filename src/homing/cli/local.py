"""Commands of this machine: the demo, the doctor, backup and restore."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from homing.cli.serve import ConfigFlag
from homing.cli.where import JsonFlag, KeyFlag, ServerFlag

DataFlag = Annotated[
    str | None, typer.Option("--data", metavar="DIR", help="The data directory; default: as set.")
]


def demo(
    *,
    speed: Annotated[
        int, typer.Option(min=1_000, max=100_000, help="What all times are divided by.")
    ] = 5_000,
    json: JsonFlag = False,
) -> None:
    """Show the whole life of a URL in two minutes: a server, three receivers and traffic."""
    from homing.cli.demo.run import run_demo

    run_demo(speed=speed, json=json)


def doctor(
    *,
    config: ConfigFlag = None,
    data: DataFlag = None,
    server: ServerFlag = None,
    key: KeyFlag = None,
    json: JsonFlag = False,
) -> None:
    """Look at settings, store, clock, disk, server and backlog: what is wrong, what to do."""
    from homing.cli.doctor import run_doctor

    if not run_doctor(config=config, data=data, server=server, key=key, json=json):
        raise typer.Exit(1)


def backup(
    file: Annotated[Path, typer.Argument(help="Where the copy goes; it must not be there yet.")],
    *,
    config: ConfigFlag = None,
    data: DataFlag = None,
    json: JsonFlag = False,
) -> None:
    """Copy the SQLite database to a file, while the server runs or not, and verify the copy."""
    from homing.cli.backup import run_backup

    run_backup(file, config=config, data=data, json=json)


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `homing backup` has made.")],
    *,
    config: ConfigFlag = None,
    data: DataFlag = None,
    json: JsonFlag = False,
) -> None:
    """Put a backup into an empty data directory, verified; nothing is overwritten."""
    from homing.cli.backup import run_restore

    run_restore(file, config=config, data=data, json=json)


def reference(
    directory: Annotated[Path, typer.Argument(help="Where the pages go.")] = Path("docs/reference"),
) -> None:
    """Write the reference pages that are made from the code."""
    from homing.cli.reference import write_pages

    for path in write_pages(directory):
        print(path)
