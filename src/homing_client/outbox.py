"""Publish in your own transaction: the event exists if and only if that transaction commits.

    from homing_client import outbox

    with connection.transaction():
        pay(connection, invoice=17)
        outbox.publish(connection, "invoice.paid", {"invoice": 17})

``homing outbox install`` creates the table ``homing_outbox`` in the application's database, and a
relay publishes the committed rows. ``publish`` takes connections of psycopg, asyncpg, SQLAlchemy
(also sessions), Django, sqlite3 and apsw; with an asynchronous one it returns an awaitable. The
driver is recognized by the module of the connection's class, so none of them is imported before it
is used.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Protocol, overload

import msgspec
from msgspec import Struct

_POSTGRES = "SELECT homing_publish({arguments})"
_SQLITE = "INSERT INTO homing_outbox ({columns}) VALUES ({marks}) RETURNING coalesce(id, made_id)"
_NAMES = ("type", "data", "id", "tenant", "time", "key")  # in the order of homing_publish()


class AsyncConnection(Protocol):
    """A connection or session whose methods are awaited."""

    async def execute(self, *args: Any, **kwargs: Any) -> Any: ...


@overload
def publish(
    conn: AsyncConnection,
    type: str,
    data: Any,
    *,
    id: str | None = None,
    tenant: str | None = None,
    time: str | datetime | None = None,
    key: str | None = None,
) -> Awaitable[str]: ...


@overload
def publish(
    conn: Any,
    type: str,
    data: Any,
    *,
    id: str | None = None,
    tenant: str | None = None,
    time: str | datetime | None = None,
    key: str | None = None,
) -> str: ...


def publish(
    conn: Any,
    type: str,  # noqa: A002
    data: Any,
    *,
    id: str | None = None,  # noqa: A002
    tenant: str | None = None,
    time: str | datetime | None = None,
    key: str | None = None,
) -> str | Awaitable[str]:
    """Write the event into the outbox, in the current transaction of ``conn``; returns its id.

    ``data`` is any value that msgspec writes as JSON; ``msgspec.Raw`` is sent byte for byte. The
    database refuses what Homing would refuse (a wrong type or id, more than 1 MiB) with the
    driver's own error. Without ``id`` a new one is made; ``time`` defaults to now. ``key`` is the
    object that the event is about, by which subscriptions may ask for order.
    """
    values: Mapping[str, str | None] = {
        "type": type,
        "data": msgspec.json.encode(data).decode(),
        "id": id,
        "tenant": tenant,
        "time": _time(time),
        "key": key,
    }
    return _write(conn, _Statement(values))


def _time(time: str | datetime | None) -> str | None:
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ValueError("the time has no time zone: give it a tzinfo")
        return time.isoformat()
    return time


# --- drivers --------------------------------------------------------------------------------


class _Statement(Struct, frozen=True):
    """The values of one call, and the SQL statement that writes them."""

    values: Mapping[str, str | None]

    def positional(self, vendor: str, mark: str) -> tuple[str, list[str | None]]:
        """With positional parameters; ``mark`` may contain ``{}`` for the parameter's number."""
        names = self._names(vendor)
        marks = {name: mark.format(place) for place, name in enumerate(names, 1)}
        return _text(vendor, marks), [self.values[name] for name in names]

    def named(self, vendor: str) -> tuple[str, dict[str, str | None]]:
        """With ``:name`` parameters."""
        names = self._names(vendor)
        marks = {name: f":{name}" for name in names}
        return _text(vendor, marks), {name: self.values[name] for name in names}

    def _names(self, vendor: str) -> list[str]:
        """The values to give: on SQLite the table's defaults fill in the others.

        A key that is None is left out everywhere: an outbox of an older version takes none.
        """
        needed = ("type", "data", "id", "tenant", "time") if vendor == "postgresql" else ()
        return [name for name in _NAMES if name in needed or self.values[name] is not None]


def _text(vendor: str, marks: Mapping[str, str]) -> str:
    """The statement, with the mark of each parameter by its name; raises TypeError."""
    if vendor == "postgresql":
        casts = {name: f"CAST({mark} AS text)" for name, mark in marks.items()}
        casts["time"] = f"CAST({casts['time']} AS timestamptz)"
        return _POSTGRES.format(arguments=", ".join(casts.values()))
    if vendor == "sqlite":
        return _SQLITE.format(columns=", ".join(marks), marks=", ".join(marks.values()))
    raise TypeError(f"the outbox supports PostgreSQL and SQLite, not {vendor}")


def _write(conn: Any, statement: _Statement) -> str | Awaitable[str]:
    """Write the row through this connection; raises TypeError for an unknown kind."""
    for kind in type(conn).__mro__:
        write = _WRITERS.get(kind.__module__.partition(".")[0])
        if write is not None:
            return write(conn, statement)
    raise TypeError(
        f"{type(conn).__module__}.{type(conn).__qualname__} is not a supported connection:"
        " use one of psycopg, asyncpg, SQLAlchemy, Django, sqlite3 or apsw"
    )


def _of_driver(conn: Any, method: str, wanted: str) -> Any:
    """The connection's method; a pool, which would use a transaction of its own, is refused."""
    found = getattr(conn, method, None)
    if found is None:
        raise TypeError(
            f"pass {wanted}, not {type(conn).__name__}: the event belongs to its transaction"
        )
    return found


def _psycopg(conn: Any, statement: _Statement) -> str | Awaitable[str]:
    rows = importlib.import_module("psycopg.rows")
    psycopg = importlib.import_module("psycopg")
    if isinstance(conn, psycopg.Cursor | psycopg.AsyncCursor):
        conn = conn.connection
    if not isinstance(conn, psycopg.Connection | psycopg.AsyncConnection):
        raise TypeError(f"pass a psycopg connection, not {type(conn).__name__}")
    text, values = statement.positional("postgresql", "%s")

    async def awaited() -> str:
        async with conn.cursor(row_factory=rows.tuple_row) as cursor:
            await cursor.execute(text, values)
            return str((await cursor.fetchone())[0])

    if isinstance(conn, psycopg.AsyncConnection):
        return awaited()
    with conn.cursor(row_factory=rows.tuple_row) as cursor:
        cursor.execute(text, values)
        return str(cursor.fetchone()[0])


def _asyncpg(conn: Any, statement: _Statement) -> Awaitable[str]:
    _of_driver(conn, "is_in_transaction", "a connection of asyncpg")
    text, values = statement.positional("postgresql", "${}")

    async def awaited() -> str:
        return str(await conn.fetchval(text, *values))

    return awaited()


def _sqlalchemy(conn: Any, statement: _Statement) -> str | Awaitable[str]:
    sqlalchemy = importlib.import_module("sqlalchemy")
    orm = importlib.import_module("sqlalchemy.orm")
    if isinstance(conn, orm.Session | orm.scoped_session):
        return _sqlalchemy(conn.connection(), statement)
    if isinstance(conn, sqlalchemy.Connection):
        text, values = statement.named(conn.dialect.name)
        return str(conn.execute(sqlalchemy.text(text), values).scalar_one())
    sa_asyncio = importlib.import_module("sqlalchemy.ext.asyncio")

    async def awaited() -> str:
        connection = (
            conn if isinstance(conn, sa_asyncio.AsyncConnection) else await conn.connection()
        )
        text, values = statement.named(connection.dialect.name)
        return str((await connection.execute(sqlalchemy.text(text), values)).scalar_one())

    if isinstance(
        conn, sa_asyncio.AsyncConnection | sa_asyncio.AsyncSession | sa_asyncio.async_scoped_session
    ):
        return awaited()
    raise TypeError(f"pass a SQLAlchemy connection or session, not {type(conn).__name__}")


def _django(conn: Any, statement: _Statement) -> str:
    cursor_of = _of_driver(conn, "cursor", "django.db.connection")
    text, values = statement.positional(conn.vendor, "%s")
    with cursor_of() as cursor:
        cursor.execute(text, values)
        return str(cursor.fetchone()[0])


def _sqlite3(conn: Any, statement: _Statement) -> str:
    text, values = statement.positional("sqlite", "?")
    cursor = _of_driver(conn, "cursor", "a connection of sqlite3")()
    cursor.row_factory = None
    (row,) = cursor.execute(text, values).fetchall()
    return str(row[0])


def _apsw(conn: Any, statement: _Statement) -> str:
    text, values = statement.positional("sqlite", "?")
    cursor = _of_driver(conn, "cursor", "a connection of apsw")()
    cursor.row_trace = None
    (row,) = cursor.execute(text, values).fetchall()
    return str(row[0])


_WRITERS: Mapping[str, Callable[[Any, _Statement], str | Awaitable[str]]] = {
    "psycopg": _psycopg,
    "asyncpg": _asyncpg,
    "sqlalchemy": _sqlalchemy,
    "django": _django,
    "sqlite3": _sqlite3,
    "apsw": _apsw,
}
