"""The tables of an installation, as its database tells them."""

from __future__ import annotations

from typing import NamedTuple

import asyncpg

from homing.errors import StoreUnavailable
from homing.store.migrate import MOVE_TABLE, Execute, Ground

# What belongs to the processes that run on a database, not to the installation.
_FILES = "plaintext_removal"  # about the files of one database
STAY = frozenset(
    ("migration", "batch_mark", "process", "lease", "news", "clock_mark", _FILES, MOVE_TABLE)
)

_SQLITE_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
_SQLITE_COLUMNS = "SELECT name, type, pk FROM pragma_table_info(?1) ORDER BY cid"
_POSTGRES_TABLES = """
    SELECT relname::text FROM pg_class
    WHERE relkind IN ('r', 'p') AND NOT relispartition
    AND relnamespace = current_schema()::regnamespace
"""
_POSTGRES_COLUMNS = """
    SELECT a.attname::text, format_type(a.atttypid, a.atttypmod),
           coalesce(array_position(i.indkey::smallint[], a.attnum) + 1, 0)
    FROM pg_attribute a LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
    WHERE a.attrelid = $1::text::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


# Behind a pooler a session has no name of ours: the heartbeat tells.
_PROCESSES = """
    SELECT name FROM process
    WHERE expires_at > (extract(epoch FROM clock_timestamp()) * 1000)::bigint ORDER BY id
"""
_SESSIONS = """
    SELECT DISTINCT application_name FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'homing%'
    AND pid <> pg_backend_pid()
"""


class Table(NamedTuple):
    """A table with its columns and its primary key."""

    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    key: tuple[str, ...]


async def tables_of(ground: Ground) -> dict[str, Table]:
    """Every table that moves, by name."""
    lite = ground.dialect == "sqlite"

    async def look(run: Execute) -> dict[str, Table]:
        names = [str(row[0]) for row in await run(_SQLITE_TABLES if lite else _POSTGRES_TABLES)]
        found = {}
        for name in sorted(set(names) - STAY):
            rows = await run(_SQLITE_COLUMNS if lite else _POSTGRES_COLUMNS, name)
            key = tuple(row[0] for row in sorted(rows, key=lambda row: row[2]) if row[2] > 0)
            assert key, f"the table {name} has no primary key"
            found[name] = Table(name, tuple(row[0] for row in rows), tuple(r[1] for r in rows), key)
        return found

    return await ground.raw(look)


async def at_work(dsn: str) -> list[str]:
    """The processes of Homing in this PostgreSQL, by their heartbeats; else by their sessions."""
    try:
        connection = await asyncpg.connect(dsn, timeout=5, statement_cache_size=0)
        try:
            if await connection.fetchval("SELECT to_regclass('process') IS NOT NULL"):
                found = [str(row[0]) for row in await connection.fetch(_PROCESSES)]
                if found:
                    return found
            return [str(row[0]) for row in await connection.fetch(_SESSIONS)]
        finally:
            await connection.close(timeout=5)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise StoreUnavailable(f"PostgreSQL: {type(error).__name__}.") from error
