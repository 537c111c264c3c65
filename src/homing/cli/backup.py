"""``homing backup`` and ``homing restore``: the SQLite database as one verified file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from homing.cli.output import clock_ms, console, plain, say_json, span
from homing.cli.trouble import Usage
from homing.errors import DataInUse
from homing.server.settings import ENCRYPTION_KEY_FILE, Settings, load_settings

if TYPE_CHECKING:
    from homing.store.backup import Copied, Progress

POSTGRES = (
    "This installation is on PostgreSQL, where the tools of the database do it, online and better: "
    "pg_dump --format=custom --file=homing.dump DATABASE_URL, and pg_restore for the way back."
)


def run_backup(file: Path, *, config: str | None, data: str | None, json: bool) -> None:
    """Refuses to overwrite; leaves nothing where it fails."""
    from homing.store.backup import copy_database

    settings = _settings(config, data)
    source = _database(settings)
    if not source.exists():
        raise Usage(f"There is no database at {source}: name the data directory with --data.")
    if file.exists():
        raise Usage(f"{file} is already there: a backup overwrites nothing.")
    if not file.absolute().parent.is_dir():
        raise Usage(f"The directory {file.absolute().parent} is not there.")
    began = clock_ms()
    copied = _with_bar("copying", lambda progress: copy_database(source, file, progress), json)
    _say("Backed up", source, copied, took_ms=clock_ms() - began, json=json)
    if not json:
        console().print(
            "The keys are not in it. Keep secret.key apart: without it no token, secret or header "
            "can be read. Keep admin.key, too, or let a new one be made.",
            style="dim",
        )


def run_restore(file: Path, *, config: str | None, data: str | None, json: bool) -> None:
    """Refuses to overwrite, and while a server holds the data."""
    from homing.store.backup import copy_database, look_into

    settings = _settings(config, data)
    target = _database(settings)
    if not file.is_file():
        raise Usage(f"There is no file {file}.")
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _free(target):
        there = [name for name in (target, Path(f"{target}-wal")) if name.exists()]
        if there:
            raise Usage(
                f"{there[0]} is already there: a restore overwrites nothing. Move it away, or "
                "restore into an empty directory with --data."
            )
        look_into(file)
        began = clock_ms()
        copied = _with_bar(
            "restoring", lambda progress: copy_database(file, target, progress), json
        )
    _say("Restored", file, copied, took_ms=clock_ms() - began, json=json)
    if (
        not json
        and not settings.security.secret_key
        and not (target.parent / ENCRYPTION_KEY_FILE).exists()
    ):
        console().print(
            f"Put {ENCRYPTION_KEY_FILE} beside it before you start a server.", style="dim"
        )


@contextlib.contextmanager
def _free(database: Path) -> Iterator[None]:
    from homing.store.backup import unheld

    try:
        with unheld(database):
            yield
    except DataInUse as error:
        raise Usage(f"A server is at work on {database.parent}: stop it first. {error}") from None


def _settings(config: str | None, data: str | None) -> Settings:
    settings = load_settings({"data": data}, config=config)
    if settings.database.url:
        raise Usage(POSTGRES)
    return settings


def _database(settings: Settings) -> Path:
    return settings.database.file


def _with_bar(name: str, work: Callable[[Progress], Copied], quiet: bool) -> Copied:
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as Bar

    out = console(stderr=True)
    columns = (TextColumn(name), BarColumn(), TaskProgressColumn())
    with Bar(*columns, console=out, disable=quiet or not out.is_terminal, transient=True) as bar:
        task = bar.add_task(name, total=None)
        return work(lambda done, total: bar.update(task, completed=done, total=total))


def _say(verb: str, source: Path, copied: Copied, *, took_ms: int, json: bool) -> None:
    if json:
        say_json(copied)
        return
    rows = copied.rows
    console().print(
        f"{verb} {plain(source)} to {plain(copied.file)}: {size(copied.size_bytes)} in "
        f"{span(took_ms)}.\nVerified: every page is whole, and it holds {rows['event']:,} events, "
        f"{rows['pending']:,} pending and {rows['history']:,} finished deliveries, "
        f"{rows['attempt']:,} attempts, {rows['subscription']:,} subscriptions.",
        soft_wrap=True,
    )


def size(count: int) -> str:
    """``640 bytes``, ``12.3 MB``."""
    for limit, unit in ((1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count} bytes"
