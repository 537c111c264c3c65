"""The key of an event in an outbox: it is checked, relayed in order, and old tables get it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import apsw
import psycopg
import pytest

from homing.ports import NotNow, OutboxRow
from homing.store.outbox import (
    install_postgres,
    install_sqlite,
    install_text,
    open_outbox,
    sqlite_path,
)
from homing_client import outbox
from outbox.application import Application, application, libpq
from outbox.test_drivers import KINDS_SQLITE, KINDS_SYNC, awaited, end, opened
from outbox.test_install import REFUSED
from outbox.test_relay import Homing, drain, relay_of
from outbox.test_same_id import target
from postgres import Server

BEFORE = Path(__file__).parent / "before_keys"


async def old_table(address: str) -> str:
    """Put the outbox as it was before it had keys into a database."""
    kind = "sqlite" if address.startswith("sqlite:") else "postgres"
    sql = (BEFORE / f"install.{kind}.sql").read_text()
    if kind == "sqlite":
        connection = apsw.Connection(str(sqlite_path(address)))
        connection.execute(sql)
        connection.close()
    else:
        with psycopg.connect(libpq(address), autocommit=True) as pg:
            pg.execute(sql.encode())
    return address


@pytest.fixture(params=["in-pg", "in-sqlite"])
async def old(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An application's database with an outbox from before keys."""
    if request.param == "in-sqlite":
        return await old_table(f"sqlite:{tmp_path / 'old.db'}")
    server: Server = request.getfixturevalue("postgres")
    return await old_table(await server.make())


async def install(address: str) -> None:
    if address.startswith("sqlite:"):
        install_sqlite(sqlite_path(address))
    else:
        await install_postgres(address, notify=True)


def keys_in(one: Application) -> list[str | None]:
    return [row[0] for row in one.run("SELECT key FROM homing_outbox ORDER BY number")]


# --- publishing -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    ["", " a", "a ", "a\nb", "\x7f", "x" * 129, "€" * 43],
    ids=["empty", "space first", "space last", "newline", "delete", "129", "129 bytes"],
)
async def test_a_key_that_homing_would_refuse_fails_in_the_callers_transaction(
    app: str, key: str
) -> None:
    with application(app) as one:
        with pytest.raises(REFUSED, match="key must be 1 to 128 bytes"):
            one.publish("a", "1", key=key)
        assert one.rows() == []


async def test_the_longest_keys_are_taken(app: str) -> None:
    keys = ["x" * 128, "€" * 42 + "yz", "invoice 7/ä"]
    with application(app) as one:
        for key in keys:
            one.publish("a", "1", key=key)
        one.publish("a", "1")
        assert keys_in(one) == [*keys, None]


async def test_sql_gives_a_key_by_its_name(postgres_app: str) -> None:
    with application(postgres_app) as one:
        one.run("SELECT homing_publish('a', json_build_object('id', 7), key => 'invoice-7')")
        one.run("SELECT homing_publish('a', '1', key => 'invoice-8', tenant => 'acme')")
        assert keys_in(one) == ["invoice-7", "invoice-8"]


@pytest.mark.parametrize("kind", [*KINDS_SYNC, *KINDS_SQLITE])
async def test_every_driver_writes_the_key(kind: str, postgres_app: str, sqlite_app: str) -> None:
    address = sqlite_app if kind in {"sqlite3", "apsw", *KINDS_SQLITE} else postgres_app
    with opened(kind, postgres_app, sqlite_app) as conn:
        outbox.publish(conn, "invoice.paid", 1, key="invoice-7")
        end(conn, "commit")
    with application(address) as one:
        assert keys_in(one) == ["invoice-7"]


@pytest.mark.parametrize("kind", ["asyncpg", "psycopg", "connection", "session", "scoped"])
async def test_every_driver_that_is_awaited_writes_the_key(kind: str, postgres_app: str) -> None:
    conn, finish, close = await awaited(kind, postgres_app)
    await outbox.publish(conn, "invoice.paid", 1, id="mine", key="invoice-7")
    await finish["commit"]()
    await close()
    with application(postgres_app) as one:
        assert keys_in(one) == ["invoice-7"]


# --- relaying -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["in the server", "by the API"])
async def test_the_event_has_the_key_of_its_row(app: str, how: str) -> None:
    async with target(how) as homing:
        with application(app) as one:
            one.publish("a", "1", id="with", key="invoice 7/ä")
            one.publish("a", "1", id="without")
            one.publish("a", "1", id="strange", key="a\u200bb")  # invisible: the database takes it
            one.publish("a", "1", id="with", key="another")
            await homing.drain(app)
            left = {row[0]: row[3] for row in one.rows()}
        assert await homing.key("with") == "invoice 7/ä"
        assert await homing.key("without") == ""
    assert "key must be 1 to 128 bytes" in left["strange"]
    assert "another content" in left["with"], "another key is another content"


async def test_a_second_relay_leaves_rows_of_a_key_to_the_relay_that_holds_an_earlier_one(
    postgres_app: str,
) -> None:
    """Relays of PostgreSQL share the rows: a later event of a key must not be accepted first."""
    accepted: list[str] = []
    holding, go_on = asyncio.Event(), asyncio.Event()

    async def slow(rows: Sequence[OutboxRow]) -> None:
        holding.set()
        await go_on.wait()
        accepted.extend(row.id for row in rows)

    async def fast(rows: Sequence[OutboxRow]) -> None:
        accepted.extend(row.id for row in rows)

    first = relay_of(postgres_app, Homing(), rows_max=1)
    second = relay_of(postgres_app, Homing())
    first._publish, second._publish = slow, fast
    with application(postgres_app) as one:
        one.publish("a", "1", id="k1", key="k")
        one.publish("a", "1", id="l1", key="l")
        one.publish("a", "1", id="k2", key="k")
        one.publish("a", "1", id="none")
        one.publish("a", "1", id="other", key="k", tenant="acme")
        one.publish("a", "1", id="k1", key="m")  # waits for its id, and the next for its key
        one.publish("a", "1", id="m2", key="m")
        holds = asyncio.ensure_future(first.step())
        await holding.wait()
        await drain(second)
        assert accepted == ["l1", "none", "other"]
        go_on.set()
        await holds
        await drain(second)
        assert one.rows() == []
    assert accepted == ["l1", "none", "other", "k1", "k2", "k1", "m2"]
    await first.close()
    await second.close()


async def test_rows_of_a_key_stay_in_order_when_the_server_is_busy_between_them(app: str) -> None:
    accepted: list[str] = []
    calls = 0

    async def publish(rows: Sequence[OutboxRow]) -> None:
        nonlocal calls
        calls += 1
        if calls % 2:
            raise NotNow("busy")
        accepted.extend(row.id for row in rows)

    relay = relay_of(app, Homing(), rows_max=2)
    relay._publish = publish
    ids = [f"e{n}" for n in range(5)]
    with application(app) as one:
        for each in ids:
            one.publish("a", "1", id=each, key="k")
        while one.rows():
            with pytest.raises(NotNow):
                await relay.step()
            await relay.step()
    assert accepted == ids
    await relay.close()


# --- a table from before keys ----------------------------------------------------------------


async def test_the_relay_and_the_client_work_with_a_table_from_before_keys(old: str) -> None:
    homing = Homing()
    relay = relay_of(old, homing)
    with application(old) as one:
        ids = [one.publish("a", str(n)) for n in range(3)]
        ids.append(by_client(old, None))
        with pytest.raises((psycopg.errors.UndefinedFunction, sqlite3.OperationalError)):
            by_client(old, "invoice-7")
        await drain(relay)
        assert one.rows() == []
        assert list(homing.events) == ids
    stats = await relay._outbox.stats()
    assert not stats.has_keys
    await relay.close()


async def test_installing_again_upgrades_the_table_and_keeps_its_rows(old: str) -> None:
    keys: dict[str, str | None] = {}

    async def publish(rows: Sequence[OutboxRow]) -> None:
        keys.update({row.id: row.key for row in rows})

    relay = relay_of(old, Homing())
    relay._publish = publish
    with application(old) as one:
        one.publish("a", "0", id="relayed")
        await drain(relay)  # a relay that was started before the upgrade, and knows the old table
        one.publish("a", "1", id="waiting")
        for _ in range(2):
            await install(old)
        one.publish("a", "2", id="keyless")
        one.publish("a", "3", id="keyed", key="invoice-7")
        by_client(old, "invoice-8", id="by-client")
        with pytest.raises(REFUSED, match="key must be 1 to 128 bytes"):
            one.publish("a", "1", key="x" * 129)
        await drain(relay)
    assert keys == {
        "relayed": None,
        "waiting": None,
        "keyless": None,
        "keyed": "invoice-7",
        "by-client": "invoice-8",
    }
    stats = await relay._outbox.stats()
    assert stats.has_keys
    await relay.close()


def by_client(address: str, key: str | None, **more: str) -> str:
    """An event published with the client; returns its id."""
    if address.startswith("sqlite:"):
        lite = sqlite3.connect(sqlite_path(address))
        try:
            with lite:
                return outbox.publish(lite, "a", 1, key=key, **more)
        finally:
            lite.close()
    with psycopg.connect(libpq(address)) as pg:
        return outbox.publish(pg, "a", 1, key=key, **more)


async def test_an_upgrade_touches_no_outbox_of_another_schema(postgres: Server) -> None:
    """An old outbox in a schema that the search path names later belongs to another program."""
    other, mine = await old_table(await postgres.make()), await postgres.make()
    schemas = [address.rpartition("=")[2] for address in (mine, other)]
    both = mine.rpartition("=")[0] + "=" + ",".join(schemas)
    await install_postgres(both, notify=True)
    with application(other) as one:
        one.publish("a", "1")
        assert len(one.rows()) == 1
    with application(mine) as one:
        one.publish("a", "1", key="k")
        assert keys_in(one) == ["k"]


def test_the_printed_sql_of_sqlite_names_the_upgrade(tmp_path: Path) -> None:
    (upgrade,) = [it for it in install_text("sqlite").splitlines() if "ALTER TABLE" in it]
    assert upgrade.startswith("-- ")
    connection = apsw.Connection(str(tmp_path / "old.db"))
    connection.execute((BEFORE / "install.sqlite.sql").read_text())
    connection.execute(upgrade_of_sqlite())
    connection.execute("INSERT INTO homing_outbox (type, data, key) VALUES ('a', '1', 'k')")
    with pytest.raises(apsw.ConstraintError):
        connection.execute("INSERT INTO homing_outbox (type, data, key) VALUES ('a', '1', '')")
    connection.close()


def test_an_upgraded_table_of_sqlite_checks_keys_as_a_new_one_does(tmp_path: Path) -> None:
    texts = [install_text("sqlite").partition("\n-- A table of")[0], upgrade_of_sqlite()]
    new, upgraded = (" ".join(text[text.index('"key must') :].split()) for text in texts)
    check = upgraded.rpartition(")")[0]
    assert new.startswith(check)


def upgrade_of_sqlite() -> str:
    """The statement of the comment in the printed SQL."""
    return "ALTER TABLE" + install_text("sqlite").partition("ALTER TABLE")[2].replace("\n-- ", "\n")


async def test_an_old_table_is_reported_by_its_stats_only_while_it_is_old(old: str) -> None:
    store = open_outbox(old)
    assert not (await store.stats()).has_keys
    await install(old)
    assert (await store.stats()).has_keys
    await store.close()
