"""``homing backup`` and ``homing restore``: copy the SQLite database to and from a file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from homing.cli.errors import Usage
from homing.cli.output import byte_size, clock_ms, console, plain, print_json, row_counts, span
from homing.errors import DataInUse
from homing.server.settings import ENCRYPTION_KEY_FILE, Settings, load_settings

if TYPE_CHECKING:
    from homing.store.backup import Copied, Progress

POSTGRES = (
    "This installation is on PostgreSQL: back it up with PostgreSQL's own tools, "
    "pg_dump --format=custom --file=homing.dump DATABASE_URL, and restore it with pg_restore."
)


def run_backup(file: Path, *, config: str | None, data: str | None, json: bool) -> None:
    """Never overwrites a file; a failed backup leaves none."""
    from homing.store.backup import copy_database

    settings = _settings(config, data)
    source = _database(settings)
    if not source.is_file():
        raise Usage(f"There is no database at {source}: name the data directory with --data.")
    if file.exists():
        raise Usage(f"{file} already exists: a backup overwrites nothing.")
    if not file.absolute().parent.is_dir():
        raise Usage(f"The directory {file.absolute().parent} does not exist.")
    began = clock_ms()
    copied = _with_progress_bar(
        "copying", lambda progress: copy_database(source, file, progress), json
    )
    _print("Backed up", source, copied, took_ms=clock_ms() - began, json=json)
    if not json:
        console().print(
            "The backup does not contain the keys. Back up secret.key separately: without it no "
            "token, secret or header can be read. Back up admin.key, too, or let the server make "
            "a new one.",
            style="dim",
        )


def run_restore(file: Path, *, config: str | None, data: str | None, json: bool) -> None:
    """Never overwrites a database, and needs the server to be stopped."""
    from homing.store.backup import check_copy, copy_database

    settings = _settings(config, data)
    target = _database(settings)
    if not file.is_file():
        raise Usage(f"There is no file {file}.")
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(target):
        existing = [name for name in (target, Path(f"{target}-wal")) if name.exists()]
        if existing:
            raise Usage(
                f"{existing[0]} already exists: a restore overwrites nothing. Move it away, or "
                "restore into an empty directory with --data."
            )
        check_copy(file)
        began = clock_ms()
        copied = _with_progress_bar(
            "restoring", lambda progress: copy_database(file, target, progress), json
        )
    _print("Restored", file, copied, took_ms=clock_ms() - began, json=json)
    if (
        not json
        and not settings.security.secret_key
        and not (target.parent / ENCRYPTION_KEY_FILE).exists()
    ):
        console().print(
            f"Copy {ENCRYPTION_KEY_FILE} into the same directory before you start a server.",
            style="dim",
        )


@contextlib.contextmanager
def _locked(database: Path) -> Iterator[None]:
    from homing.store.backup import unheld

    try:
        with unheld(database):
            yield
    except DataInUse as error:
        raise Usage(f"A server is using {database.parent}: stop it first. {error}") from None


def _settings(config: str | None, data: str | None) -> Settings:
    settings = load_settings({"data": data}, config=config)
    if settings.database.url:
        raise Usage(POSTGRES)
    return settings


def _database(settings: Settings) -> Path:
    return settings.database.file


def _with_progress_bar(name: str, work: Callable[[Progress], Copied], quiet: bool) -> Copied:
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as Bar

    out = console(stderr=True)
    columns = (TextColumn(name), BarColumn(), TaskProgressColumn())
    with Bar(*columns, console=out, disable=quiet or not out.is_terminal, transient=True) as bar:
        task = bar.add_task(name, total=None)
        return work(lambda done, total: bar.update(task, completed=done, total=total))


def _print(verb: str, source: Path, copied: Copied, *, took_ms: int, json: bool) -> None:
    if json:
        print_json(copied)
        return
    console().print(
        f"{verb} {plain(source)} to {plain(copied.file)}: {byte_size(copied.size_bytes)} in "
        f"{span(took_ms)}.\nVerified: every page is intact; it contains {row_counts(copied.rows)}.",
        soft_wrap=True,
    )
