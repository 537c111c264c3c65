"""Upgrades a database to the newest schema: numbered files, each in one transaction.

A file's number is recorded in the transaction that applies it, so a migration may be interrupted
at any point and started again, and two processes may start at once: the second waits, sees the
number and has nothing to do. A file that has been released is never changed.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, Protocol, TypeVar

from homing.errors import BadSetting
from homing.store.tx import Dialect, Row

T = TypeVar("T")

Execute = Callable[..., Awaitable[list[Row]]]  # (sql, *values): one statement

_RECORD: dict[Dialect, str] = {
    "sqlite": "CREATE TABLE IF NOT EXISTS migration (number INTEGER PRIMARY KEY,"
    " name TEXT NOT NULL, applied_at INTEGER NOT NULL)",
    "postgres": "CREATE TABLE IF NOT EXISTS migration (number bigint PRIMARY KEY,"
    " name text NOT NULL, applied_at bigint NOT NULL)",
}
_NOW: dict[Dialect, str] = {
    "sqlite": "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
    "postgres": "(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
}
MOVE_TABLE = "move_progress"  # exists while `homing move` copies into a database
MOVING: dict[Dialect, str] = {
    "sqlite": f"SELECT 1 FROM sqlite_schema WHERE name = '{MOVE_TABLE}'",  # noqa: S608
    "postgres": f"SELECT 1 WHERE to_regclass('{MOVE_TABLE}') IS NOT NULL",
}
MOVED_TABLE = "moved_away"  # in a database whose installation `homing move` has moved: where to
MOVED: dict[Dialect, str] = {
    "sqlite": f"SELECT 1 FROM sqlite_schema WHERE name = '{MOVED_TABLE}'",  # noqa: S608
    "postgres": f"SELECT 1 WHERE to_regclass('{MOVED_TABLE}') IS NOT NULL",
}
_MIGRATED: dict[Dialect, str] = {
    "sqlite": "SELECT 1 FROM sqlite_schema WHERE name = 'migration'",
    "postgres": "SELECT 1 WHERE to_regclass('migration') IS NOT NULL",
}
# Held to the end of the transaction: two processes migrate one after the other.
_POSTGRES_LOCK = "SELECT pg_advisory_xact_lock(7239140551)"


class Migration(NamedTuple):
    """A numbered schema file."""

    number: int
    name: str
    statements: tuple[str, ...]


class RawSql(Protocol):
    """A database that runs raw SQL in one transaction."""

    dialect: Dialect

    async def raw(self, operation: Callable[[Execute], Awaitable[T]]) -> T: ...


def split(script: str) -> tuple[str, ...]:
    """The statements of a script; each ends with a semicolon at the end of a line."""
    plain = re.sub(r"--[^\n]*", "", script)
    return tuple(part.strip() for part in re.split(r";[ \t]*(?:\n|$)", plain) if part.strip())


@cache
def migrations(dialect: Dialect) -> tuple[Migration, ...]:
    """The schema files of one kind of database, in order."""
    folder = files("homing.store") / "schema" / dialect
    found = []
    for file in folder.iterdir():
        if file.name.endswith(".sql"):
            number, _, name = file.name.removesuffix(".sql").partition("_")
            found.append(Migration(int(number), name, split(file.read_text(encoding="utf-8"))))
    return tuple(sorted(found))


async def migrate(
    db: RawSql, *, moving: bool = False, leaving: bool = False, as_is: bool = False
) -> None:
    """Apply missing migrations; raises BadSetting if the database is newer, half moved or left.

    Only ``homing move`` may open a database that is not complete yet (``moving``), or one whose
    installation has been moved away (``leaving``). With ``as_is`` nothing is applied: raises
    BadSetting if a migration is missing, too.
    """
    known = migrations(db.dialect)
    if as_is:
        await _check_current(db, known)
    if not leaving and (place := await moved_to(db)) is not None:
        raise BadSetting(
            f"This installation was moved to {place}: serve that database. Served here, too, its"
            " pending deliveries would be sent twice."
        )
    unfinished = await db.raw(lambda execute: execute(MOVING[db.dialect]))
    if unfinished and not moving:
        raise BadSetting(
            "An installation is being moved into this database and is not complete:"
            " finish the move with `homing move`."
        )
    applied = await db.raw(_applied(db.dialect))
    check_not_newer(applied, known)
    for migration in known:
        if migration.number not in applied:
            await db.raw(_apply(migration, db.dialect))


async def _check_current(db: RawSql, known: tuple[Migration, ...]) -> None:
    """Raises BadSetting unless the database has exactly the schema of this version of Homing."""

    async def read(execute: Execute) -> set[int]:
        if not await execute(_MIGRATED[db.dialect]):
            return set()
        return {row[0] for row in await execute("SELECT number FROM migration")}

    applied = await db.raw(read)
    check_not_newer(applied, known)
    if not applied:
        raise BadSetting("The database has no schema yet: start a server on it once.")
    if missing := [it.number for it in known if it.number not in applied]:
        raise BadSetting(
            f"The database has schema {max(applied)}, and this version of Homing has"
            f" {known[-1].number} ({len(missing)} missing): upgrade the installation first."
        )


def check_not_newer(applied: Iterable[int], known: tuple[Migration, ...]) -> None:
    """Raises BadSetting if a newer version of Homing has migrated the database."""
    newest, here = known[-1].number, max(applied, default=0)
    if here > newest:
        raise BadSetting(
            f"A newer version of Homing has upgraded the database to schema {here}; this version"
            f" knows only up to {newest}. Start the newer version, or restore the backup from"
            " before the upgrade."
        )


async def moved_to(db: RawSql) -> str | None:
    """Where the installation of this database was moved to; None: it is here."""

    async def read(execute: Execute) -> str | None:
        if not await execute(MOVED[db.dialect]):
            return None
        return str((await execute(f"SELECT place FROM {MOVED_TABLE}"))[0][0])  # noqa: S608

    return await db.raw(read)


async def _lock(execute: Execute, dialect: Dialect) -> None:
    if dialect == "postgres":
        await execute(_POSTGRES_LOCK)


def _applied(dialect: Dialect) -> Callable[[Execute], Awaitable[set[int]]]:
    async def read(execute: Execute) -> set[int]:
        await _lock(execute, dialect)
        await execute(_RECORD[dialect])
        return {row[0] for row in await execute("SELECT number FROM migration")}

    return read


def _apply(migration: Migration, dialect: Dialect) -> Callable[[Execute], Awaitable[None]]:
    sign = "?" if dialect == "sqlite" else "$"
    known = f"SELECT number FROM migration WHERE number = {sign}1"  # noqa: S608
    record = f"INSERT INTO migration VALUES ({sign}1, {sign}2, {_NOW[dialect]})"  # noqa: S608

    async def apply(execute: Execute) -> None:
        await _lock(execute, dialect)
        if await execute(known, migration.number):
            return  # Another process has applied it.
        for statement in migration.statements:
            await execute(statement)
        values: tuple[Any, ...] = (migration.number, migration.name)
        await execute(record, *values)

    return apply
