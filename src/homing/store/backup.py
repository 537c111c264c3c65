"""Copies of the SQLite file: made while a server writes to it, and verified.

The copy is read page by page in one read transaction of WAL, so it shows one moment of the
database, however long it takes and whatever is committed meanwhile. It is made in small steps, so
the server's commits do not wait for it. Then the copy is checked: its pages (``integrity_check``)
and the number of rows of every table.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import apsw
from msgspec import Struct

from homing.errors import StoreUnavailable
from homing.store.sqlite import BUSY_MS, Lock, sqlite_reason

STEP_PAGES = 1_000  # of 4 KiB
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
_TABLES_OF_HOMING = frozenset(("migration", "event", "pending", "history"))

Progress = Callable[[int, int], None]  # pages copied, pages in all


class Copied(Struct, frozen=True):
    """The contents of a verified copy."""

    file: str
    size_bytes: int
    rows: dict[str, int]  # by table


class BadCopy(StoreUnavailable):
    """The copy is not complete."""

    code = "bad_copy"


def copy_database(source: Path, target: Path, progress: Progress) -> Copied:
    """A verified copy under a new name; raises StoreUnavailable and then leaves no file."""
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    try:
        try:
            expected = _copy(source, draft, progress)
            found = check_copy(draft)
        except apsw.Error as error:
            raise StoreUnavailable(f"{source}: {sqlite_reason(error)}") from error
        if expected != found:
            raise BadCopy("The copy holds other rows than the original.")
        size = draft.stat().st_size
        _give_name(draft, target)
    except OSError as error:
        raise StoreUnavailable(f"{target}: {error.strerror}.") from error
    finally:
        for name in (draft, *_beside(draft)):
            name.unlink(missing_ok=True)
    return Copied(str(target), size, found)


def check_copy(file: Path) -> dict[str, int]:
    """The number of rows by table, after a check of every page; raises BadCopy."""
    with _checked(file), _opened(file, readonly=True) as connection:
        try:
            problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
            if problems != ["ok"]:
                raise BadCopy(problems[0])
            return _counts(connection)
        except (apsw.NotADBError, apsw.CorruptError):
            raise BadCopy("It is not a database, or it is damaged.") from None


@contextlib.contextmanager
def _checked(file: Path) -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise BadCopy(f"{file}: {sqlite_reason(error)}") from error


@contextlib.contextmanager
def unheld(database: Path) -> Iterator[None]:
    """Hold the lock of the database; raises DataInUse if another process has it."""
    lock = Lock(Path(f"{database}.lock"))
    try:
        yield
    finally:
        lock.release()


def _copy(source: Path, draft: Path, progress: Progress) -> dict[str, int]:
    with _opened(source, readonly=True) as original, _opened(draft) as copy:
        original.execute("BEGIN")  # The counts and the pages are of one snapshot.
        expected = _counts(original)
        with copy.backup("main", original, "main") as backup:
            while not backup.done:
                backup.step(STEP_PAGES)
                progress(backup.page_count - backup.remaining, backup.page_count)
        original.execute("COMMIT")
        # Without a write-ahead log the copy is a single file.
        copy.pragma("journal_mode", "delete")
    return expected


@contextlib.contextmanager
def _opened(file: Path, *, readonly: bool = False) -> Iterator[apsw.Connection]:
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    if readonly:
        flags = apsw.SQLITE_OPEN_READONLY
    else:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = apsw.Connection(str(file), flags=flags)
    try:
        connection.set_busy_timeout(BUSY_MS)
        yield connection
    finally:
        connection.close()


def _counts(connection: apsw.Connection) -> dict[str, int]:
    """The number of rows of every table; the schema may be an older one."""
    tables = [str(row[0]) for row in connection.execute(_TABLES)]
    if not {*tables} >= _TABLES_OF_HOMING:
        raise BadCopy("It is not a database of Homing.")
    return {
        table: cast("int", connection.execute(f'SELECT count(*) FROM "{table}"').get)  # noqa: S608
        for table in tables
    }


def _give_name(draft: Path, target: Path) -> None:
    """Sync the draft and rename it; an existing file is not overwritten."""
    descriptor = os.open(draft, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.link(draft, target)
    descriptor = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _beside(file: Path) -> tuple[Path, ...]:
    return tuple(file.with_name(file.name + end) for end in ("-wal", "-shm", "-journal"))
