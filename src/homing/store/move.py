"""Carries a whole installation from one database to another, of whichever kind.

Tables are found, not listed, so that one added by a later schema goes along. Rows go in the order
of their primary key, a batch in one transaction with the note how far it is: killed at any point,
the move goes on from there. Until all is verified, by counts and by checksums of every row read
back from both sides, the target says that it is not finished and no server starts on it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from msgspec import Struct

from homing.errors import BadSetting, HomingError
from homing.model import id_floor
from homing.store.migrate import MOVE_TABLE, MOVING, Execute, Ground
from homing.store.move_tables import Table, tables_of
from homing.store.partitions import DAY_MS, PARTED, make_days
from homing.store.tx import Row

BATCH_ROWS = 2_000
DAYS_MOST = 4_000  # More are no days but a clock gone wrong; such rows lie in the default part.
HELD = ("subscription", "endpoint", "event", "pending", "history")

Progress = Callable[[str, int, int], None]  # what is done, rows so far, rows in all

_MAKE = f"CREATE TABLE IF NOT EXISTS {MOVE_TABLE} (name text PRIMARY KEY, note text NOT NULL)"
_PLAN = ""  # the name of the note that holds the number of rows of each table


class Moved(Struct, frozen=True):
    """What a verified move has carried."""

    rows: dict[str, int]
    checksums: dict[str, str]


class NotTheSame(HomingError):
    """The copy differs from the original."""

    code = "not_the_same"


class _Note(Struct, frozen=True):
    """How far a table is."""

    after: tuple[Any, ...] | None = None
    done: bool = False


async def move(
    source: Ground, target: Ground, progress: Progress, *, batch_rows: int = BATCH_ROWS
) -> Moved:
    """Both have the current schema. Raises BadSetting or NotTheSame; going on is calling again."""
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
        async for rows in _carry(source, target, table, others[name], batch_rows):
            carried += rows
            progress("moving", carried, total)
        carried = start + plan[name]
    moved = await _verify(source, target, tables, plan, progress)
    await _fetch(target, f"DROP TABLE {MOVE_TABLE}")
    return moved


async def _begin(target: Ground, tables: dict[str, Table], plan: dict[str, int]) -> None:
    """Refuse a target with data of its own, and a source that has changed since the last time."""
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
        for table in tables.values():  # What migrations put there comes with the source.
            await run(f"DELETE FROM {table.name}")  # noqa: S608
        await _write_note(target, run, _PLAN, text)

    await target.raw(begin)


async def _carry(
    source: Ground, target: Ground, table: Table, other: Table, batch_rows: int
) -> AsyncIterator[int]:
    """The rows that are not there yet; how many went with each batch."""
    note = await _read_note(target, table.name)
    if note.done:
        return
    async for rows in _pages(source, table, batch_rows, after=note.after):
        last = tuple(rows[-1][table.columns.index(column)] for column in table.key)
        await target.raw(_write(target, table, other, rows, _Note(after=last)))
        yield len(rows)
    await target.raw(_write(target, table, other, [], _Note(done=True)))


def _write(
    target: Ground, table: Table, other: Table, rows: list[Row], note: _Note
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
        await _write_note(target, run, table.name, msgspec.json.encode(note).decode())

    return write


async def _pages(
    ground: Ground, table: Table, batch_rows: int, *, after: tuple[Any, ...] | None = None
) -> AsyncIterator[list[Row]]:
    """All rows in the order of the primary key, a batch at a time."""
    columns, key = ", ".join(table.columns), ", ".join(table.key)
    sign = _sign(ground)
    places = ", ".join(f"{sign}{n}" for n, _ in enumerate(table.key, 1))
    while True:
        where = "" if after is None else f" WHERE ({key}) > ({places})"
        text = f"SELECT {columns} FROM {table.name}{where} ORDER BY {key} LIMIT {batch_rows}"  # noqa: S608
        rows = await _fetch(ground, text, *(after or ()))
        if not rows:
            return
        yield rows
        after = tuple(rows[-1][table.columns.index(column)] for column in table.key)


async def _verify(
    source: Ground,
    target: Ground,
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
    """Summed up over a table it says the same in whatever order: collations differ."""
    packed = msgspec.msgpack.encode(row)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest())


async def _make_days(source: Ground, target: Ground, tables: dict[str, Table]) -> None:
    if target.dialect != "postgres":
        return
    wanted: list[tuple[str, int]] = []
    for name in PARTED:
        key = tables[name].key[0]
        day = id_floor(DAY_MS)
        found = await _fetch(source, f"SELECT DISTINCT {key} / {day} FROM {name}")  # noqa: S608
        if len(found) <= DAYS_MOST:
            wanted += [(name, int(row[0])) for row in found]
    await make_days(target, wanted)


async def _count(ground: Ground, table: Table) -> int:
    return int((await _fetch(ground, f"SELECT count(*) FROM {table.name}"))[0][0])  # noqa: S608


async def _fetch(ground: Ground, text: str, *values: Any) -> list[Row]:
    return await ground.raw(lambda run: run(text, *values))


async def _read_note(target: Ground, name: str) -> _Note:
    text = f"SELECT note FROM {MOVE_TABLE} WHERE name = {_sign(target)}1"  # noqa: S608
    rows = await _fetch(target, text, name)
    return msgspec.json.decode(rows[0][0], type=_Note) if rows else _Note()


async def _write_note(target: Ground, run: Execute, name: str, note: str) -> None:
    sign = _sign(target)
    await run(
        f"INSERT INTO {MOVE_TABLE} (name, note) VALUES ({sign}1, {sign}2)"  # noqa: S608
        " ON CONFLICT (name) DO UPDATE SET note = excluded.note",
        name,
        note,
    )


def _sign(ground: Ground) -> str:
    return "$" if ground.dialect == "postgres" else "?"
