"""``homing_client.outbox.publish`` by every driver: committed is one row, rolled back is none."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import msgspec
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from homing.store.outbox import sqlite_path
from homing_client import outbox
from outbox.application import application, libpq

BYTES = msgspec.Raw(b'{"b":  1, "a": 2}')
KINDS_SYNC = ("psycopg", "psycopg-dicts", "connection", "session", "scoped", "sqlite3", "apsw")
KINDS_SQLITE = ("lite-connection", "lite-session")


def alchemy(address: str, driver: str) -> sqlalchemy.URL:
    if address.startswith("sqlite:"):
        return sqlalchemy.make_url(f"sqlite:///{sqlite_path(address)}")
    return sqlalchemy.make_url(address).set(drivername=f"postgresql+{driver}")


@contextmanager
def opened(kind: str, pg: str, lite: str) -> Iterator[Any]:
    """A connection of this kind, with a transaction that ``commit`` or ``rollback`` ends."""
    match kind:
        case "psycopg":
            yield psycopg.connect(libpq(pg))
        case "psycopg-dicts":
            yield psycopg.connect(libpq(pg), row_factory=dict_row)
        case "sqlite3":
            one = sqlite3.connect(sqlite_path(lite))
            one.row_factory = sqlite3.Row
            yield one
        case "apsw":
            two = apsw.Connection(str(sqlite_path(lite)))
            two.execute("BEGIN")
            yield two
        case _:
            address = lite if kind.startswith("lite") else pg
            url = alchemy(libpq(address), "psycopg")
            engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
            if kind.endswith("connection"):
                yield engine.connect()
            elif kind == "scoped":
                yield scoped_session(sessionmaker(engine))
            else:
                yield Session(engine)


def end(conn: Any, word: str) -> None:
    if isinstance(conn, apsw.Connection):
        conn.execute(word)
    else:
        getattr(conn, word)()
    conn.close()


@pytest.mark.parametrize("kind", [*KINDS_SYNC, *KINDS_SQLITE])
async def test_a_row_is_there_only_if_the_transaction_commits(
    kind: str, postgres_app: str, sqlite_app: str
) -> None:
    address = sqlite_app if kind in {"sqlite3", "apsw", *KINDS_SQLITE} else postgres_app
    with application(address) as one:
        for word, rows in (("rollback", 0), ("commit", 1)):
            with opened(kind, postgres_app, sqlite_app) as conn:
                key = outbox.publish(conn, "invoice.paid", BYTES, tenant="acme")
                assert one.rows() == []
                end(conn, word)
            assert len(one.rows()) == rows
        assert one.rows() == [(key, "invoice.paid", bytes(BYTES).decode(), None)]


@pytest.mark.parametrize("kind", ["asyncpg", "psycopg", "connection", "session", "scoped"])
async def test_the_same_for_connections_that_are_awaited(kind: str, postgres_app: str) -> None:
    with application(postgres_app) as one:
        for word, rows in (("rollback", 0), ("commit", 1)):
            conn, finish, close = await awaited(kind, postgres_app)
            key = await outbox.publish(conn, "invoice.paid", BYTES, tenant="acme")
            assert one.rows() == []
            await finish[word]()
            await close()
            assert len(one.rows()) == rows
        assert one.rows() == [(key, "invoice.paid", bytes(BYTES).decode(), None)]


async def awaited(kind: str, address: str) -> tuple[Any, dict[str, Any], Any]:
    conn: Any
    if kind == "asyncpg":
        conn = await asyncpg.connect(address)
        transaction = conn.transaction()
        await transaction.start()
        return (
            conn,
            {"commit": transaction.commit, "rollback": transaction.rollback},
            conn.close,
        )
    if kind == "psycopg":
        conn = await psycopg.AsyncConnection.connect(libpq(address), row_factory=dict_row)
    else:
        schema = address.rpartition("=")[2]
        url = alchemy(address, "asyncpg").difference_update_query(["search_path"])
        engine = create_async_engine(
            url,
            poolclass=sqlalchemy.NullPool,
            connect_args={"server_settings": {"search_path": schema}},
        )
        if kind == "connection":
            conn = await engine.connect()
        elif kind == "session":
            conn = AsyncSession(engine)
        else:
            from asyncio import current_task

            from sqlalchemy.ext.asyncio import async_sessionmaker

            conn = async_scoped_session(async_sessionmaker(engine), scopefunc=current_task)
    return conn, {"commit": conn.commit, "rollback": conn.rollback}, conn.close


async def test_id_and_time_are_the_callers_if_given(postgres_app: str, sqlite_app: str) -> None:
    at = datetime(2025, 1, 31, 12, tzinfo=UTC)
    with (
        psycopg.connect(libpq(postgres_app)) as pg,
        sqlite3.connect(sqlite_path(sqlite_app)) as lite,
    ):
        for conn in (pg, lite):
            assert outbox.publish(conn, "a", 1, id="mine", time=at) == "mine"
            assert outbox.publish(conn, "a", {"n": 1}, id="other") == "other"
            outbox.publish(conn, "a", None)
    lite.close()
    for address, written in (
        (postgres_app, "2025-01-31T12:00:00.000000Z"),
        (sqlite_app, "2025-01-31T12:00:00+00:00"),
    ):
        with application(address) as one:
            times = one.run("SELECT time, data FROM homing_outbox ORDER BY number")
        assert times[:2] == [(written, "1"), (None, '{"n":1}')]


async def test_what_is_no_connection_is_refused(postgres_app: str) -> None:
    pool = asyncpg.create_pool(postgres_app, min_size=0)
    engine = sqlalchemy.create_engine("sqlite://")
    for wrong in (pool, engine, "a text", object()):
        with pytest.raises(TypeError):
            outbox.publish(wrong, "a", 1)
    with pytest.raises(ValueError, match="zone"):
        outbox.publish(object(), "a", 1, time=datetime(2025, 1, 31))
    mysql = sqlalchemy.create_mock_engine("mysql://", executor=None)
    with pytest.raises(TypeError):
        outbox.publish(mysql, "a", 1)


async def test_a_bad_call_raises_the_drivers_own_error(postgres_app: str, sqlite_app: str) -> None:
    with (
        psycopg.connect(libpq(postgres_app)) as pg,
        pytest.raises(psycopg.errors.InvalidParameterValue, match="type must be"),
    ):
        outbox.publish(pg, "not a type", 1)
    lite = sqlite3.connect(sqlite_path(sqlite_app))
    with pytest.raises(sqlite3.IntegrityError, match="type must be 1 to 256"):
        outbox.publish(lite, "not a type", 1)
    lite.close()


def test_importing_it_imports_no_driver_and_nothing_of_the_server(tmp_path: Path) -> None:
    code = (
        "import sys, homing_client.outbox;"
        "print([it for it in ('sqlalchemy','django','psycopg','asyncpg','apsw','sqlite3',"
        "'homing.store','homing.engine','homing.server') if it in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert ran.stdout.strip() == "[]"
