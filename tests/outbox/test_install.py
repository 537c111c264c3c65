"""The table and the function: what they take byte for byte, and what they refuse at once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import apsw
import asyncpg
import psycopg
import pytest

from homing.policy.admission import is_key, is_time
from homing.store.outbox import install_postgres, install_sqlite, install_text, sqlite_path
from outbox.application import application, libpq
from postgres import Server

REFUSED = (psycopg.errors.DatabaseError, apsw.ConstraintError)
AWKWARD = '{"b": 1,   "a":\t2, "b": 3, "ä": "\\u00e4€😀", "n": 1.50e+3, "z": "\\u0000"}'


async def test_data_is_kept_byte_for_byte(app: str) -> None:
    with application(app) as one:
        key = one.publish("invoice.paid", AWKWARD)
        assert one.rows() == [(key, "invoice.paid", AWKWARD, None)]
        assert is_key(key)
        assert len(key) == 32
        ((tenant, time),) = one.run("SELECT tenant, time FROM homing_outbox")
        assert tenant == "default"
        if one.kind == "postgres":
            assert is_time(time)
            age = datetime.now(UTC) - datetime.fromisoformat(time)
            assert abs(age.total_seconds()) < 300
        else:
            assert time is None  # The relay takes created_at.
        assert int(key[:12], 16) // 600_000 - int(datetime.now(UTC).timestamp() / 600) in (-1, 0, 1)


@pytest.mark.parametrize(
    "call",
    [
        {"type": "", "data": "1"},
        {"type": "with space", "data": "1"},
        {"type": "x" * 257, "data": "1"},
        {"type": "homing.endpoint.frozen", "data": "1"},
        {"type": "naïve", "data": "1"},
        {"type": "a", "data": "{"},
        {"type": "a", "data": "NaN"},
        {"type": "a", "data": ""},
        {"type": "a", "data": '"' + "x" * 1_048_575 + '"'},
        {"type": "a", "data": '"' + "€" * 349_525 + '"'},
        {"type": "a", "data": "1", "id": ""},
        {"type": "a", "data": "1", "id": "with.dot"},
        {"type": "a", "data": "1", "id": "with space"},
        {"type": "a", "data": "1", "id": "x" * 129},
        {"type": "a", "data": "1", "tenant": ""},
        {"type": "a", "data": "1", "tenant": "a/b"},
        {"type": "a", "data": "1", "tenant": "t" * 65},
        {"type": "a", "data": "1", "time": "yesterday at noon"},
        {"type": "a", "data": "1", "time": "2025-02-31T00:00:00Z"},
    ],
    ids=lambda call: ",".join(f"{name}={value[:12]}" for name, value in call.items()),
)
async def test_what_homing_would_refuse_fails_in_the_callers_transaction(
    app: str, call: dict[str, str]
) -> None:
    with application(app) as one:
        with pytest.raises(REFUSED):
            one.publish(**call)
        assert one.rows() == []


async def test_the_limits_themselves_are_taken(app: str) -> None:
    with application(app) as one:
        one.publish("x" * 256, '"' + "x" * 1_048_574 + '"', id="!" + "~" * 127, tenant="t" * 64)
        one.publish("a-b_c.D", "null", time="2025-01-31T12:00:00+02:00")
        assert len(one.rows()) == 2


async def test_an_own_id_leaves_the_time_to_the_server_so_that_twice_is_once(
    postgres_app: str,
) -> None:
    with application(postgres_app) as one:
        one.publish("a", "1", id="mine")
        one.publish("a", "1", id="other", time="2025-01-31T12:00:00.25+02:00")
        times = one.run("SELECT time FROM homing_outbox ORDER BY number")
        assert times == [(None,), ("2025-01-31T10:00:00.250000Z",)]


async def test_sql_may_make_the_json_itself(postgres_app: str) -> None:
    with application(postgres_app) as one:
        one.run("SELECT homing_publish('a', json_build_object('id', 7))")
        one.run("SELECT homing_publish('b', '{\"id\":   8}')")
        one.run("SELECT homing_publish('c', '9'::varchar, tenant => 'acme')")
        assert [row[2] for row in one.rows()] == ['{"id" : 7}', '{"id":   8}', "9"]
        with pytest.raises(psycopg.errors.UndefinedFunction):
            one.run("SELECT homing_publish('d', '{}'::jsonb)")  # It has lost the bytes already.


async def test_installing_again_and_at_once_changes_nothing(
    postgres: Server, tmp_path: Path
) -> None:
    address = await postgres.make()
    await asyncio.gather(*(install_postgres(address, notify=True) for _ in range(4)))
    with application(address) as one:
        one.publish("kept", "1")
        await install_postgres(address, notify=False)
        assert [row[1] for row in one.rows()] == ["kept"]
        one.publish("kept", "2")
    file = f"sqlite:{tmp_path / 'app.db'}"
    for _ in range(2):
        install_sqlite(sqlite_path(file))
        with application(file) as one:
            one.publish("kept", "1")
            assert {row[1] for row in one.rows()} == {"kept"}


async def test_the_function_finds_its_table_from_anywhere(postgres_app: str) -> None:
    schema = postgres_app.rpartition("=")[2]
    with psycopg.connect(libpq(postgres_app), autocommit=True) as connection:
        connection.execute("SET search_path = public")
        connection.execute(f"SELECT {schema}.homing_publish('a', '1')".encode())
        found = connection.execute(f"SELECT count(*) FROM {schema}.homing_outbox".encode())
        assert found.fetchone() == (1,)


async def test_who_publishes_wakes_who_listens_unless_told_not_to(postgres: Server) -> None:
    for notify in (True, False):
        address = await postgres.make()
        await install_postgres(address, notify=notify)
        listener = await asyncpg.connect(address)
        heard = asyncio.Event()
        await listener.add_listener("homing_outbox", lambda *_, heard=heard: heard.set())
        with application(address) as one:
            one.publish("a", "1")
        await listener.fetchval("SELECT 1")  # What was told before this has arrived by now.
        await asyncio.sleep(0)
        assert heard.is_set() is notify
        await listener.close()


def test_the_printed_sql_is_what_is_installed(tmp_path: Path) -> None:
    assert "pg_notify" in install_text("postgres")
    assert "pg_notify" not in install_text("postgres", notify=False)
    connection = apsw.Connection(str(tmp_path / "own.db"))
    connection.execute(install_text("sqlite"))
    connection.execute("INSERT INTO homing_outbox (type, data) VALUES ('a', '1')")
    connection.close()
