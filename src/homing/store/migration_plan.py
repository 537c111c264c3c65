"""What a migration will do to a database, read from its statements; nothing is changed or locked.

Each statement of a missing migration becomes a step: which table, about how many rows are read or
written, and whether it holds a lock for a moment or for as long as it reads rows. A statement that
renames or removes something makes the migration one that processes of the version before cannot run
beside.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

from homing.errors import BadSetting, StoreUnavailable
from homing.store.connect import connect
from homing.store.migrate import MOVED, MOVED_TABLE, Migration, check_not_newer, migrations
from homing.store.postgres_refusals import CONNECTION_ERRORS, refusal_text
from homing.store.sqlite import BUSY_MS, sqlite_reason
from homing.store.tx import Dialect

ROWS_PER_S = 300_000  # read for an index or written anew, on a small machine: for a rough time
CONNECT_WITHIN_S = 5.0


class Step(Struct, frozen=True):
    """One statement: what it does to which table."""

    text: str
    table: str
    rows: int = 0  # about how many are read or written; 0: none that are there already
    breaks_old: bool = False  # Processes of the version before need what it renames or removes.


class PlannedMigration(Struct, frozen=True):
    """A missing migration."""

    number: int
    name: str
    steps: tuple[Step, ...]

    @property
    def rows(self) -> int:
        return sum(step.rows for step in self.steps)


class Plan(Struct, frozen=True):
    """The schema of a database, the newest schema, and the migrations between them."""

    database: str
    schema: int  # 0: an empty database
    newest: int
    migrations: tuple[PlannedMigration, ...] = ()

    @property
    def old_processes_may_run(self) -> bool:
        """Whether servers of the version before may go on during and after the upgrade."""
        return not any(step.breaks_old for it in self.migrations for step in it.steps)

    @property
    def locked_s(self) -> float:
        """Roughly how long writes to one table wait."""
        return max((it.rows / ROWS_PER_S for it in self.migrations), default=0.0)


# --- reading a statement --------------------------------------------------------------------

# A form of statements, what it does, whether it reads the rows of its table, and whether processes
# of the version before fail after it.
_FORMS: tuple[tuple[str, str, bool, bool], ...] = (
    (r"CREATE TABLE (?:IF NOT EXISTS )?@.*", "creates the table {0}", False, False),
    (
        r"CREATE (?:UNIQUE )?INDEX (?:IF NOT EXISTS )?@ ON (?:ONLY )?@.*",
        "builds the index {0} on {1}",
        True,
        False,
    ),
    (r"CREATE SEQUENCE @.*", "creates the sequence {0}", False, False),
    (r"ALTER TABLE @ ADD COLUMN @ .* STORED", "adds the column {1} to {0}", True, False),
    (r"ALTER TABLE @ ADD COLUMN @.*", "adds the column {1} to {0}", False, False),
    (r"ALTER TABLE @ RENAME COLUMN @ TO @.*", "renames {0}.{1} to {2}", False, True),
    (r"ALTER TABLE @ RENAME TO @.*", "renames the table {0} to {1}", False, True),
    (r"ALTER TABLE @ DROP COLUMN @.*", "removes the column {1} of {0}", False, True),
    (r"DROP TABLE (?:IF EXISTS )?@.*", "removes the table {0}", False, True),
    (r"ALTER (?:TABLE|INDEX) @ .*", "changes {0}", False, False),
    (r"CREATE (?:OR REPLACE )?FUNCTION @.*", "creates the function {0}", False, False),
    (r"DROP INDEX (?:IF EXISTS )?@.*", "removes the index {0}", False, False),
    (r"(?:WITH .*?)?INSERT INTO @.*", "adds rows to {0}", False, False),
    (r"UPDATE @.*", "writes rows of {0} anew", True, False),
    (r"DELETE FROM @.*", "removes rows of {0}", True, False),
)
_STEPS = tuple(
    (re.compile(form.replace("@", r'"?(\w+)"?'), re.IGNORECASE), text, reads, breaks)
    for form, text, reads, breaks in _FORMS
)


def read_step(statement: str) -> tuple[str, str, bool, bool]:
    """What a statement does, to which table, whether it reads its rows, whether it breaks old."""
    text = " ".join(statement.split())
    for form, words, reads, breaks in _STEPS:
        if (found := form.fullmatch(text)) is not None:
            names = found.groups()
            on_table = words.startswith("builds the index")
            return words.format(*names), names[1] if on_table else names[0], reads, breaks
    return f"runs: {text[:60]}", "", False, False


def _planned(migration: Migration, rows: dict[str, int], new: set[str]) -> PlannedMigration:
    steps = []
    for statement in migration.statements:
        text, table, reads, breaks = read_step(statement)
        if text.startswith("creates the table"):
            new.add(table)
        touched = rows.get(table, 0) if reads and table not in new else 0
        steps.append(Step(text, table, touched, breaks and table not in new))
    return PlannedMigration(migration.number, migration.name, tuple(steps))


def plan_of(dialect: Dialect, database: str, applied: Iterable[int], rows: dict[str, int]) -> Plan:
    """The plan for a database with these migrations and rows; raises BadSetting."""
    applied, known = set(applied), migrations(dialect)
    check_not_newer(applied, known)
    new: set[str] = set()
    missing = [it for it in known if it.number not in applied]
    return Plan(
        database=database,
        schema=max(applied, default=0),
        newest=known[-1].number,
        migrations=tuple(_planned(it, rows, new) for it in missing),
    )


# --- reading a database ---------------------------------------------------------------------


def plan_sqlite(file: Path) -> Plan:
    """Raises StoreUnavailable or BadSetting."""
    name = str(file)
    if not file.exists():
        return plan_of("sqlite", name, (), {})
    if not file.is_file():
        raise BadSetting(f"{name} must be a file, not a directory.")
    try:
        connection = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            connection.set_busy_timeout(BUSY_MS)
            return _read_sqlite(connection, name)
        finally:
            connection.close()
    except apsw.Error as error:
        raise StoreUnavailable(f"{file}: {sqlite_reason(error)}") from error


def _read_sqlite(connection: apsw.Connection, name: str) -> Plan:
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    there = {str(row[0]) for row in tables}
    if list(connection.execute(MOVED["sqlite"])):
        _was_moved(str(connection.execute(f"SELECT place FROM {MOVED_TABLE}").get))  # noqa: S608
    applied: list[int] = []
    if "migration" in there:
        applied = [int(str(row[0])) for row in connection.execute("SELECT number FROM migration")]
    elif there:
        raise BadSetting(f"{name} is not a database of Homing.")
    # A count reads the whole table: only those that a step reads are counted.
    read = {
        step[1]
        for it in migrations("sqlite")
        if it.number not in applied
        for step in map(read_step, it.statements)
        if step[2]
    }
    rows = {
        table: int(str(connection.execute(f'SELECT count(*) FROM "{table}"').get))  # noqa: S608
        for table in sorted(read & there)
    }
    return plan_of("sqlite", name, applied, rows)


_POSTGRES_ROWS = """
    SELECT coalesce(parent.relname, c.relname)::text, sum(greatest(c.reltuples, 0))::bigint
    FROM pg_class c
    LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
    LEFT JOIN pg_class parent ON parent.oid = i.inhparent
    WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
    GROUP BY 1
"""


async def plan_postgres(url: str, *, shown: str) -> Plan:
    """Raises StoreUnavailable or BadSetting."""
    return await _with_connection(url, lambda connection: _read_postgres(connection, shown))


async def _with_connection(url: str, read: Callable[[Any], Awaitable[Plan]]) -> Plan:
    try:
        connection = await connect(
            url, within_s=CONNECT_WITHIN_S, command_timeout=30, statement_cache_size=0
        )
        try:
            return await read(connection)
        finally:
            await connection.close(timeout=CONNECT_WITHIN_S)
    except CONNECTION_ERRORS as error:
        raise StoreUnavailable(refusal_text(error, url)) from error


async def _read_postgres(connection: Any, shown: str) -> Plan:
    if await connection.fetchval(MOVED["postgres"]):
        _was_moved(await connection.fetchval(f"SELECT place FROM {MOVED_TABLE}"))  # noqa: S608
    applied: list[int] = []
    if await connection.fetchval("SELECT to_regclass('migration') IS NOT NULL"):
        applied = [int(row[0]) for row in await connection.fetch("SELECT number FROM migration")]
    rows = {str(row[0]): int(row[1]) for row in await connection.fetch(_POSTGRES_ROWS)}
    return plan_of("postgres", shown, applied, rows)


def _was_moved(place: str) -> None:
    raise BadSetting(f"This installation was moved to {place}: upgrade that database.")
