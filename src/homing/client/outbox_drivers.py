"""One statement for every driver: who the connection belongs to is seen by its class's module."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

_POSTGRES = (
    "SELECT homing_publish(CAST({type} AS text), CAST({data} AS text), CAST({id} AS text),"
    " CAST({tenant} AS text), CAST(CAST({time} AS text) AS timestamptz))"
)
_SQLITE = "INSERT INTO homing_outbox ({columns}) VALUES ({marks}) RETURNING coalesce(id, made_id)"
_NAMES = ("type", "data", "id", "tenant", "time")


class Filled(Struct, frozen=True):
    """The values of one call, and the statement for them in each dialect and style."""

    values: Mapping[str, str | None]

    def statement(self, vendor: str, mark: str) -> tuple[str, list[str | None]]:
        """With positional parameters; ``mark`` may hold the place's number."""
        if vendor == "postgresql":
            marks = {name: mark.format(place) for place, name in enumerate(_NAMES, 1)}
            return _POSTGRES.format_map(marks), [self.values[name] for name in _NAMES]
        if vendor == "sqlite":
            names = self.given()
            text = _SQLITE.format(
                columns=", ".join(names),
                marks=", ".join(mark.format(place) for place, _ in enumerate(names, 1)),
            )
            return text, [self.values[name] for name in names]
        raise TypeError(f"there is no outbox for {vendor}: it takes PostgreSQL and SQLite")

    def named_statement(self, vendor: str) -> tuple[str, dict[str, str | None]]:
        """With ``:name`` parameters."""
        if vendor == "postgresql":
            return _POSTGRES.format_map({name: f":{name}" for name in _NAMES}), dict(self.values)
        _, values = self.statement(vendor, "?")
        names = self.given()
        marks = ", ".join(f":{name}" for name in names)
        text = _SQLITE.format(columns=", ".join(names), marks=marks)
        return text, dict(zip(names, values, strict=True))

    def given(self) -> list[str]:
        """On SQLite the table's defaults fill in what is not named."""
        return [name for name in _NAMES if self.values[name] is not None]


def send(conn: Any, filled: Filled) -> str | Awaitable[str]:
    """Write the row by this connection; raises TypeError for what is none."""
    for kind in type(conn).__mro__:
        way = _WAYS.get(kind.__module__.partition(".")[0])
        if way is not None:
            return way(conn, filled)
    raise TypeError(
        f"{type(conn).__module__}.{type(conn).__qualname__} is not a connection that is known here:"
        " psycopg, asyncpg, SQLAlchemy, Django, sqlite3 and apsw are"
    )


def _of_driver(conn: Any, method: str, wanted: str) -> Any:
    """The method, or what to give instead: a pool would publish in a transaction of its own."""
    found = getattr(conn, method, None)
    if found is None:
        raise TypeError(f"give {wanted}, not {type(conn).__name__}: its transaction is the point")
    return found


def _psycopg(conn: Any, filled: Filled) -> str | Awaitable[str]:
    rows = importlib.import_module("psycopg.rows")
    psycopg = importlib.import_module("psycopg")
    if isinstance(conn, psycopg.Cursor | psycopg.AsyncCursor):
        conn = conn.connection
    if not isinstance(conn, psycopg.Connection | psycopg.AsyncConnection):
        raise TypeError(f"give a psycopg connection, not {type(conn).__name__}")
    text, values = filled.statement("postgresql", "%s")

    async def awaited() -> str:
        async with conn.cursor(row_factory=rows.tuple_row) as cursor:
            await cursor.execute(text, values)
            return str((await cursor.fetchone())[0])

    if isinstance(conn, psycopg.AsyncConnection):
        return awaited()
    with conn.cursor(row_factory=rows.tuple_row) as cursor:
        cursor.execute(text, values)
        return str(cursor.fetchone()[0])


def _asyncpg(conn: Any, filled: Filled) -> Awaitable[str]:
    _of_driver(conn, "is_in_transaction", "a connection of asyncpg")
    text, values = filled.statement("postgresql", "${}")

    async def awaited() -> str:
        return str(await conn.fetchval(text, *values))

    return awaited()


def _sqlalchemy(conn: Any, filled: Filled) -> str | Awaitable[str]:
    sqlalchemy = importlib.import_module("sqlalchemy")
    orm = importlib.import_module("sqlalchemy.orm")
    if isinstance(conn, orm.Session | orm.scoped_session):
        return _sqlalchemy(conn.connection(), filled)
    if isinstance(conn, sqlalchemy.Connection):
        text, values = filled.named_statement(conn.dialect.name)
        return str(conn.execute(sqlalchemy.text(text), values).scalar_one())
    own = importlib.import_module("sqlalchemy.ext.asyncio")

    async def awaited() -> str:
        connection = conn if isinstance(conn, own.AsyncConnection) else await conn.connection()
        text, values = filled.named_statement(connection.dialect.name)
        return str((await connection.execute(sqlalchemy.text(text), values)).scalar_one())

    if isinstance(conn, own.AsyncConnection | own.AsyncSession | own.async_scoped_session):
        return awaited()
    raise TypeError(f"give a SQLAlchemy connection or session, not {type(conn).__name__}")


def _django(conn: Any, filled: Filled) -> str:
    cursor_of = _of_driver(conn, "cursor", "django.db.connection")
    text, values = filled.statement(conn.vendor, "%s")
    with cursor_of() as cursor:
        cursor.execute(text, values)
        return str(cursor.fetchone()[0])


def _sqlite3(conn: Any, filled: Filled) -> str:
    text, values = filled.statement("sqlite", "?")
    cursor = _of_driver(conn, "cursor", "a connection of sqlite3")()
    cursor.row_factory = None
    (row,) = cursor.execute(text, values).fetchall()
    return str(row[0])


def _apsw(conn: Any, filled: Filled) -> str:
    text, values = filled.statement("sqlite", "?")
    cursor = _of_driver(conn, "cursor", "a connection of apsw")()
    cursor.row_trace = None
    (row,) = cursor.execute(text, values).fetchall()
    return str(row[0])


_WAYS: Mapping[str, Callable[[Any, Filled], str | Awaitable[str]]] = {
    "psycopg": _psycopg,
    "asyncpg": _asyncpg,
    "sqlalchemy": _sqlalchemy,
    "django": _django,
    "sqlite3": _sqlite3,
    "apsw": _apsw,
}
