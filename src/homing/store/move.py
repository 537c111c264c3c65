"""Copies a whole installation from one database to another, of either kind.

Tables are read from the schema, so that tables of later schemas are included. Rows are copied in
the order of their primary key; each batch is one transaction, which also notes the progress, so a
move that was killed continues from there. Until everything is verified, by counts and by checksums
of every row read back from both sides, the target is marked as unfinished, and no server starts on
it. Then the source is marked as moved, and no server starts on the source any more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from homing.errors import BadSetting, HomingError
from homing.model import id_floor
from homing.store import acceptance
from homing.store.migrate import (
    MOVE_TABLE,
    MOVED,
    MOVED_TABLE,
    MOVING,
    Execute,
    RawSql,
    moved_to,
)
from homing.store.partitions import DAY_MS, PARTED, make_days
from homing.store.tx import Row

BATCH_ROWS = 2_000
DAYS_MAX = 4_000  # More days mean a wrong clock; their rows stay in the default partition.
HELD = ("subscription", "endpoint", "event", "pending", "history")

Progress = Callable[[str, int, int], None]  # the step, rows so far, rows in all

_MAKE = f"CREATE TABLE IF NOT EXISTS {MOVE_TABLE} (name text PRIMARY KEY, note text NOT NULL)"
_PLAN = ""  # the name of the note that holds the number of rows of each table


class Moved(Struct, frozen=True):
    """The rows and checksums of a verified move."""

    rows: dict[str, int]
    checksums: dict[str, str]


class NotTheSame(HomingError):
    """The copy differs from the original."""

    code = "not_the_same"


class _Note(Struct, frozen=True):
    """How far the copy of a table is; in MessagePack, which tells bytes from text in a key."""

    after: tuple[Any, ...] | None = None
    done: bool = False


async def move(
    source: RawSql,
    target: RawSql,
    progress: Progress,
    *,
    place: str = "another database",
    batch_rows: int = BATCH_ROWS,
) -> Moved:
    """Copy and verify; both databases have the current schema. Call it again to continue.

    ``place`` names the target to people who later look at the source. Raises BadSetting or
    NotTheSame.
    """
    if (earlier := await moved_to(source)) not in {None, place}:
        raise BadSetting(f"This installation was moved to {earlier} already: move it from there.")
    tables = await tables_of(source)
    others = await tables_of(target)
    for name, table in tables.items():
        if name not in others or set(others[name].columns) != set(table.columns):
            raise BadSetting(f"The table {name} is not the same on both sides.")
    plan = {name: await _count(source, table) for name, table in tables.items()}
    await _begin(target, others, plan)
    total = sum(plan.values())
    await _make_days(source, target, tables)
    carried = 0
    for name, table in tables.items():
        start = carried
        async for rows in _copy(source, target, table, others[name], batch_rows):
            carried += rows
            progress("moving", carried, total)
        carried = start + plan[name]
    moved = await _verify(source, target, tables, plan, progress)
    await _go_on_after(source, target)
    await source.raw(_mark_as_moved(source, place))
    await _fetch(target, f"DROP TABLE {MOVE_TABLE}")
    return moved


async def _go_on_after(source: RawSql, target: RawSql) -> None:
    """Let the target give only positions in the order of acceptance above those of the source."""
    ((last,),) = await _fetch(source, acceptance.LAST[source.dialect])
    await _fetch(target, acceptance.SET[target.dialect], last)


def _mark_as_moved(source: RawSql, place: str) -> Callable[[Execute], Any]:
    async def mark(run: Execute) -> None:
        if not await run(MOVED[source.dialect]):
            await run(f"CREATE TABLE {MOVED_TABLE} (place text NOT NULL)")
            await run(f"INSERT INTO {MOVED_TABLE} VALUES ({_sign(source)}1)", place)  # noqa: S608

    return mark


async def _begin(target: RawSql, tables: dict[str, Table], plan: dict[str, int]) -> None:
    """Refuse a target with other data, and a source that has changed since the last run."""
    text = json.dumps(plan, sort_keys=True)

    async def begin(run: Execute) -> None:
        known = None
        if await run(MOVING[target.dialect]):
            known = await run(f"SELECT note FROM {MOVE_TABLE} WHERE name = ''")  # noqa: S608
        if known:
            if known[0][0] != text:
                raise BadSetting(
                    "The source has changed since this move began. Begin anew with an empty target."
                )
            return
        for name in HELD:
            if await run(f"SELECT 1 FROM {name} LIMIT 1"):  # noqa: S608
                raise BadSetting(f"The target holds rows of {name} already: it must be empty.")
        await run(_MAKE)
        for table in tables.values():  # Rows that migrations inserted are copied from the source.
            await run(f"DELETE FROM {table.name}")  # noqa: S608
        await _write_note(target, run, _PLAN, text)

    await target.raw(begin)


async def _copy(
    source: RawSql, target: RawSql, table: Table, other: Table, batch_rows: int
) -> AsyncIterator[int]:
    """Copy the rows that are not there yet; yields the number of rows of each batch."""
    note = await _read_note(target, table.name)
    if note.done:
        return
    async for rows in _pages(source, table, batch_rows, after=note.after):
        last = tuple(rows[-1][table.columns.index(column)] for column in table.key)
        await target.raw(_write(target, table, other, rows, _Note(after=last)))
        yield len(rows)
    await target.raw(_write(target, table, other, [], _Note(done=True)))


def _write(
    target: RawSql, table: Table, other: Table, rows: list[Row], note: _Note
) -> Callable[[Execute], Any]:
    columns = ", ".join(table.columns)

    async def write(run: Execute) -> None:
        if rows and target.dialect == "postgres":
            types = dict(zip(other.columns, other.types, strict=True))
            arrays = (f"${n}::{types[name]}[]" for n, name in enumerate(table.columns, 1))
            await run(
                f"INSERT INTO {table.name} ({columns}) SELECT * FROM unnest({', '.join(arrays)})",  # noqa: S608
                *(list(column) for column in zip(*rows, strict=True)),
            )
        elif rows:
            marks = ", ".join(["?"] * len(table.columns))
            for row in rows:
                await run(f"INSERT INTO {table.name} ({columns}) VALUES ({marks})", *row)  # noqa: S608
        await _write_note(target, run, table.name, msgspec.msgpack.encode(note).hex())

    return write


async def _pages(
    db: RawSql, table: Table, batch_rows: int, *, after: tuple[Any, ...] | None = None
) -> AsyncIterator[list[Row]]:
    """All rows in the order of the primary key, a batch at a time."""
    columns, key = ", ".join(table.columns), ", ".join(table.key)
    sign = _sign(db)
    places = ", ".join(f"{sign}{n}" for n, _ in enumerate(table.key, 1))
    while True:
        where = "" if after is None else f" WHERE ({key}) > ({places})"
        text = f"SELECT {columns} FROM {table.name}{where} ORDER BY {key} LIMIT {batch_rows}"  # noqa: S608
        rows = await _fetch(db, text, *(after or ()))
        if not rows:
            return
        yield rows
        after = tuple(rows[-1][table.columns.index(column)] for column in table.key)


async def _verify(
    source: RawSql,
    target: RawSql,
    tables: dict[str, Table],
    plan: dict[str, int],
    progress: Progress,
) -> Moved:
    read, total = 0, 2 * sum(plan.values())
    rows: dict[str, int] = {}
    checksums: dict[str, str] = {}
    for name, table in tables.items():
        found = []
        for side in (source, target):
            count = checksum = 0
            async for page in _pages(side, table, BATCH_ROWS):
                count += len(page)
                checksum += sum(_row_sum(row) for row in page)
                read += len(page)
                progress("verifying", read, total)
            found.append((count, checksum % 2**64))
        if found[0] != found[1]:
            raise NotTheSame(
                f"{name}: {found[0][0]:,} rows, checksum {found[0][1]:016x}; the copy has "
                f"{found[1][0]:,} rows, checksum {found[1][1]:016x}."
            )
        rows[name], checksums[name] = found[0][0], f"{found[0][1]:016x}"
    return Moved(rows, checksums)


def _row_sum(row: Row) -> int:
    """A checksum of a row; sums do not depend on the order of rows, as collations differ."""
    packed = msgspec.msgpack.encode(row)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest())


async def _make_days(source: RawSql, target: RawSql, tables: dict[str, Table]) -> None:
    if target.dialect != "postgres":
        return
    wanted: list[tuple[str, int]] = []
    for name in PARTED:
        key = tables[name].key[0]
        day = id_floor(DAY_MS)
        found = await _fetch(source, f"SELECT DISTINCT {key} / {day} FROM {name}")  # noqa: S608
        if len(found) <= DAYS_MAX:
            wanted += [(name, int(row[0])) for row in found]
    await make_days(target, wanted)


async def _count(db: RawSql, table: Table) -> int:
    return int((await _fetch(db, f"SELECT count(*) FROM {table.name}"))[0][0])  # noqa: S608


async def _fetch(db: RawSql, text: str, *values: Any) -> list[Row]:
    return await db.raw(lambda run: run(text, *values))


async def _read_note(target: RawSql, name: str) -> _Note:
    text = f"SELECT note FROM {MOVE_TABLE} WHERE name = {_sign(target)}1"  # noqa: S608
    rows = await _fetch(target, text, name)
    return msgspec.msgpack.decode(bytes.fromhex(rows[0][0]), type=_Note) if rows else _Note()


async def _write_note(target: RawSql, run: Execute, name: str, note: str) -> None:
    sign = _sign(target)
    await run(
        f"INSERT INTO {MOVE_TABLE} (name, note) VALUES ({sign}1, {sign}2)"  # noqa: S608
        " ON CONFLICT (name) DO UPDATE SET note = excluded.note",
        name,
        note,
    )


def _sign(db: RawSql) -> str:
    return "$" if db.dialect == "postgres" else "?"


# --- the tables of an installation ----------------------------------------------------------

# These tables belong to the running processes, not to the installation.
_FILES = "plaintext_removal"  # about the files of one database
STAY = frozenset(
    (
        "migration",
        "acceptance",  # a sequence on PostgreSQL: the target goes on after it
        "batch_mark",
        "process",
        "lease",
        "topic_version",
        "clock_mark",
        "tenant_move_ready",  # of processes
        _FILES,
        MOVE_TABLE,
        MOVED_TABLE,
    )
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
    WHERE a.attrelid = $1::text::regclass AND a.attnum > 0 AND NOT a.attisdropped
    AND a.attgenerated = '' ORDER BY a.attnum
"""


class Table(NamedTuple):
    """A table with its columns and its primary key."""

    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    key: tuple[str, ...]


async def tables_of(db: RawSql) -> dict[str, Table]:
    """Every table that moves, by name."""
    lite = db.dialect == "sqlite"

    async def read(run: Execute) -> dict[str, Table]:
        names = [str(row[0]) for row in await run(_SQLITE_TABLES if lite else _POSTGRES_TABLES)]
        found = {}
        for name in sorted(set(names) - STAY):
            rows = await run(_SQLITE_COLUMNS if lite else _POSTGRES_COLUMNS, name)
            key = tuple(row[0] for row in sorted(rows, key=lambda row: row[2]) if row[2] > 0)
            assert key, f"the table {name} has no primary key"
            found[name] = Table(name, tuple(row[0] for row in rows), tuple(r[1] for r in rows), key)
        return found

    return await db.raw(read)
