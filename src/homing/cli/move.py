"""``homing move``: move a whole installation from one database to another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from homing.cli.arguments import ConfigFlag, JsonFlag
from homing.cli.errors import Usage
from homing.cli.output import console, counted, plain, print_json, row_counts
from homing.server.settings import DATABASE_FILE, Settings, load_settings

if TYPE_CHECKING:
    from homing.store.move import Moved
    from homing.store.postgres import PostgresDb
    from homing.store.sqlite import SqliteDb

_FORMS = "sqlite:DIR or postgresql://…"


def move(
    *,
    source: Annotated[
        str | None,
        typer.Option("--from", help=f"{_FORMS}; default: SQLite in the data directory."),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--to", help=f"{_FORMS}; default: the setting database_url.")
    ] = None,
    config: ConfigFlag = None,
    json: JsonFlag = False,
) -> None:
    """Move a whole installation to another database, and verify it by counts and checksums.

    No server may use either database. An interrupted move continues where it stopped when it is
    started again; until it is finished no server starts on the target. After that no server starts
    on the source: its rows stay, with a mark that says where the installation is now.
    """
    import asyncio

    settings = load_settings({}, config=config)
    from_address = source or f"sqlite:{settings.database.data}"
    to_address = target or settings.database.url
    if not to_address:
        raise Usage("The target is missing: give --to, or set HOMING_DATABASE_URL.")
    if from_address == to_address:
        raise Usage("The source and the target are the same database.")
    moved = asyncio.run(_move(from_address, to_address, quiet=json))
    if json:
        print_json(moved)
        return
    _print(moved, settings)


async def _move(from_address: str, to_address: str, *, quiet: bool) -> Moved:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    from homing.store.move import move as move_rows

    source = await _open(from_address, must_exist=True)
    try:
        place = _place(to_address)
        target = await _open(to_address, must_exist=False)
        try:
            out = console(stderr=True)
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
            hidden = quiet or not out.is_terminal
            with Progress(*columns, console=out, disable=hidden, transient=True) as bar:
                task = bar.add_task("moving", total=None)
                return await move_rows(
                    source,
                    target,
                    lambda what, done, total: bar.update(
                        task, description=what, completed=done, total=total
                    ),
                    place=place,
                )
        finally:
            await target.close()
    finally:
        await source.close()


def _place(address: str) -> str:
    """The target as the source names it from then on: without a password."""
    from homing.store.postgres_refusals import shown

    if address.startswith("sqlite:"):
        return str(_file(address).absolute())
    return shown(address)


def _file(address: str) -> Path:
    file = Path(address.removeprefix("sqlite:"))
    return file if file.suffix == ".db" else file / DATABASE_FILE


async def _open(address: str, *, must_exist: bool) -> SqliteDb | PostgresDb:
    """A database that no server uses; raises Usage or DataInUse."""
    from homing.store.move import at_work
    from homing.store.postgres import PostgresDb
    from homing.store.sqlite import SqliteDb

    if address.startswith("sqlite:"):
        file = _file(address)
        if must_exist and not file.is_file():
            raise Usage(f"There is no database at {file}.")
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Usage(f"The directory {file.parent} cannot be used: {error.strerror}.") from None
        return await SqliteDb.open(file, moving=not must_exist, leaving=must_exist)
    if not address.startswith(("postgresql://", "postgres://")):
        raise Usage(f"A database must be given as {_FORMS}.")
    if found := await at_work(address):
        raise Usage(
            f"These processes use that PostgreSQL: {', '.join(found)}. Stop them first; a killed"
            " process disappears when its lease has ended."
        )
    return await PostgresDb.open(address, moving=not must_exist, leaving=must_exist)


def _print(moved: Moved, settings: Settings) -> None:
    rows = moved.rows
    out = console()
    out.print(
        f"Moved {counted(sum(rows.values()), 'row')} of {counted(len(rows), 'table')}: "
        f"{row_counts(rows)}.\n"
        "Verified: every row was read back from both databases; counts and checksums are equal.",
        soft_wrap=True,
    )
    out.print(
        f"The admin key stays in {plain(settings.database.data)}. No server starts on the old "
        "database any more: its pending deliveries would be sent twice.",
        style="dim",
        soft_wrap=True,
    )
