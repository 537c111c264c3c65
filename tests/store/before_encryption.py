"""Databases from before secrets were encrypted, and a search for plain text on disk.

Subscriptions are created, changed and deleted in plain text, so that old text lies in live rows, in
free pages, in the gaps of pages and in the write-ahead log.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import asyncpg
from msgspec.structs import replace

from homing.model import Secret, Subscription
from homing.store import rows
from homing.store.migrate import migrations
from homing.store.postgres import PostgresDb
from homing.store.sqlite import SqliteDb
from store.build import NOW, Maker

BEFORE = 7  # the migration that brought encryption
COUNT = 24
WORD = "planted"
_KEEP, _CHANGE, _DELETE = range(3)


def connect(place: str) -> Any:
    """A connection to a database whose schema may be old."""
    if place.startswith("postgresql"):
        return PostgresDb(place)
    return SqliteDb(place, threads=False, lock=None)


def subscription(number: int, word: str = WORD) -> Subscription:
    """A subscription with a long token (for overflow pages), a secret and a header value."""
    make = Maker()
    at = make.endpoint(f"https://{number}.example/")
    return replace(
        make.subscription(at),
        id=number,
        secrets=(Secret(f"whsec_{word}_secret_{number}"),),
        token=f"{word}_token_{number}_" + "t" * (6_000 if number % 4 == 0 else 40),
        headers=(("x-key", f"{word}_header_{number}"),),
    )


async def make(place: str) -> None:
    """Write a database with the schema from before encryption and leave it open, as a kill does."""
    db = connect(place)
    sign = "?" if db.dialect == "sqlite" else "$"
    old = [it for it in migrations(db.dialect) if it.number < BEFORE]

    async def schema(run: Any) -> None:
        await run(
            "CREATE TABLE migration (number bigint PRIMARY KEY, name text NOT NULL,"
            " applied_at bigint NOT NULL)"
            if db.dialect == "postgres"
            else "CREATE TABLE migration (number INTEGER PRIMARY KEY, name TEXT NOT NULL,"
            " applied_at INTEGER NOT NULL)"
        )
        for it in old:
            for statement in it.statements:
                await run(statement)
            values = (it.number, it.name, NOW - 400 * 86_400_000)
            await run(f"INSERT INTO migration VALUES ({sign}1, {sign}2, {sign}3)", *values)

    await db.raw(schema)

    async def write(sub: Subscription) -> None:
        row = dict(zip(rows.COLUMNS["subscription"], rows.subscription_row(sub), strict=True))
        del row["settings"]
        row["connector"] = row.pop("filter_connector")
        marks = ", ".join(f"{sign}{n}" for n in range(1, len(row) + 1))
        text = f"INSERT INTO subscription ({', '.join(row)}) VALUES ({marks})"
        await db.raw(lambda run: run(text, *row.values()))

    for number in range(1, COUNT + 1):
        await write(subscription(number))
    for number in range(1, COUNT + 1):
        fate = number % 3
        if fate != _KEEP:
            text = f"DELETE FROM subscription WHERE id = {number}"
            await db.raw(lambda run, text=text: run(text))
        if fate == _CHANGE:
            await write(subscription(number, "planted_later"))
    if db.dialect == "postgres":
        await db.close()


def make_and_die(place: str) -> None:
    """Write the database in a process that is killed, so that SQLite's log stays."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            asyncio.run(make(place))
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def found_in(folder: Path) -> list[str]:
    """The files of a folder that contain a planted secret."""
    return [it.name for it in folder.iterdir() if it.is_file() and WORD.encode() in it.read_bytes()]


async def files_of(dsn: str) -> list[Path]:
    """The files of the subscriptions of a PostgreSQL, with their long values and indexes."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("CHECKPOINT")
        folder = Path(await connection.fetchval("SHOW data_directory"))
        found = await connection.fetch(
            "WITH own AS (SELECT oid, reltoastrelid FROM pg_class"
            "             WHERE oid = 'subscription'::regclass)"
            " SELECT pg_relation_filepath(oid) FROM own"
            " UNION ALL SELECT pg_relation_filepath(reltoastrelid) FROM own WHERE reltoastrelid > 0"
            " UNION ALL SELECT pg_relation_filepath(indexrelid) FROM pg_index, own"
            "           WHERE indrelid IN (own.oid, own.reltoastrelid)"
        )
        return [folder / row[0] for row in found]
    finally:
        await connection.close()


def found_in_files(files: list[Path]) -> list[str]:
    return [it.name for it in files if it.exists() and WORD.encode() in it.read_bytes()]
