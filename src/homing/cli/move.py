"""``homing move``: a whole installation from one database to another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from homing.cli.output import console, plain, say_json
from homing.cli.serve import ConfigFlag
from homing.cli.trouble import Usage
from homing.cli.where import JsonFlag
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
    """Carry a whole installation to another database, and verify it by counts and checksums.

    No server may be at work on either side. Interrupted, it goes on where it was when it is started
    again; until it is finished no server starts on the target. The source stays as it is.
    """
    import asyncio

    settings = load_settings({}, config=config)
    origin = source or f"sqlite:{settings.database.data}"
    goal = target or settings.database.url
    if not goal:
        raise Usage("Where to? Give --to, or HOMING_DATABASE_URL.")
    if origin == goal:
        raise Usage("Both sides are the same database.")
    moved = asyncio.run(_move(origin, goal, quiet=json))
    if json:
        say_json(moved)
        return
    _say(moved, settings)


async def _move(origin: str, goal: str, *, quiet: bool) -> Moved:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    from homing.store.move import move as carry

    source = await _opened(origin, must_exist=True)
    try:
        target = await _opened(goal, must_exist=False)
        try:
            out = console(stderr=True)
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
            hidden = quiet or not out.is_terminal
            with Progress(*columns, console=out, disable=hidden, transient=True) as bar:
                task = bar.add_task("moving", total=None)
                return await carry(
                    source,
                    target,
                    lambda what, done, total: bar.update(
                        task, description=what, completed=done, total=total
                    ),
                )
        finally:
            await target.close()
    finally:
        await source.close()


async def _opened(address: str, *, must_exist: bool) -> SqliteDb | PostgresDb:
    """A database that nobody else is at work on; raises Usage or DataInUse."""
    from homing.store.move_tables import at_work
    from homing.store.postgres import PostgresDb
    from homing.store.sqlite import SqliteDb

    if address.startswith("sqlite:"):
        file = Path(address.removeprefix("sqlite:"))
        if file.suffix != ".db":
            file /= DATABASE_FILE
        if must_exist and not file.exists():
            raise Usage(f"There is no database at {file}.")
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return await SqliteDb.open(file, moving=not must_exist)
    if not address.startswith(("postgresql://", "postgres://")):
        raise Usage(f"A database is given as {_FORMS}.")
    if found := await at_work(address):
        raise Usage(
            f"At work on that PostgreSQL: {', '.join(found)}. Stop them first; one that was killed"
            " is gone when its lease has ended."
        )
    return await PostgresDb.open(address, moving=not must_exist)


def _say(moved: Moved, settings: Settings) -> None:
    rows = moved.rows
    out = console()
    out.print(
        f"Moved {sum(rows.values()):,} rows of {len(rows)} tables: {rows['event']:,} events, "
        f"{rows['pending']:,} pending and {rows['history']:,} finished deliveries, "
        f"{rows['attempt']:,} attempts, {rows['subscription']:,} subscriptions.\n"
        "Verified: every row was read back from both sides; counts and checksums are the same.",
        soft_wrap=True,
    )
    out.print(
        f"The admin key stays in {plain(settings.database.data)}. Never serve the old database "
        "again: what is pending there would be sent twice.",
        style="dim",
        soft_wrap=True,
    )
