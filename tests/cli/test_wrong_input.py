"""Wrong input of the commands for operators: one plain line, no traceback, never a password."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from cli.terminal import Terminal
from homing.cli.doctor_checks import OK, Check, CheckStatus, _durability
from homing.errors import StoreUnavailable
from homing.store import postgres as postgres_module
from homing.store.connect import HostState
from homing.store.inspect import StoreFacts
from homing.store.postgres import PostgresDb
from homing.store.postgres_refusals import refusal_text, shown
from postgres import Server

SECRET = "s3cr3t-pw"
ADDRESS = f"postgresql://shop:{SECRET}@db.internal:5433/orders"


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / "homing.db").write_text("this is not a database, but a text file")
    (tmp_path / "folder" / "homing.db").mkdir(parents=True)
    (tmp_path / "file").write_text("x")
    return Terminal(tmp_path)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("backup copy.db", "There is no database at homing-data/homing.db"),
        ("backup copy.db --data junk", "it is not a database, or it is damaged"),
        ("backup copy.db --data folder", "There is no database at folder/homing.db"),
        ("backup file --data junk", "already exists"),
        ("backup folder --data junk", "already exists"),
        ("backup gone/copy.db --data junk", "does not exist"),
        ("backup /proc/copy.db --data junk", "/proc/copy.db"),
        ("backup file/copy.db --data junk", "does not exist"),
        ("restore gone.db", "There is no file gone.db"),
        ("restore folder", "There is no file folder"),
        ("restore file --data new", "not a database"),
        ("restore file --data file/new", "Not a directory"),
        ("restore file --data /proc/new", "/proc/new"),
        ("move --to sqlite:new", "There is no database"),
        ("move --from sqlite:junk --to sqlite:new", "it is not a database, or it is damaged"),
        ("move --from sqlite:folder --to sqlite:new", "There is no database"),
        ("move --from mysql://x --to sqlite:new", "sqlite:DIR or postgresql://"),
        ("move --from postgresql://u:s3cr3t-pw@127.0.0.1:1/x --to sqlite:n", "Nothing listens at"),
        ("move --from postgresql://u:s3cr3t-pw@[::1/x --to sqlite:n", "cannot be read"),
        ("migrate --data junk", "it is not a database, or it is damaged"),
        ("migrate --plan --data junk", "it is not a database, or it is damaged"),
        ("migrate --data folder", "must be a file, not a directory"),
        ("migrate --data file/new", "Not a directory"),
    ],
)
def test_a_wrong_path_or_address_is_one_line(terminal: Terminal, command: str, told: str) -> None:
    done = terminal.run(*command.split())
    assert done.code in {1, 2}
    assert done.out == ""
    assert len(done.err.splitlines()) == 1
    assert done.err.startswith("homing: ")
    assert told in done.err
    assert SECRET not in done.err


@pytest.mark.parametrize("data", ["junk", "folder", "gone", "file", "file/gone"])
def test_the_doctor_looks_at_any_directory(terminal: Terminal, data: str) -> None:
    done = terminal.run("doctor", "--data", data)
    assert done.code in {0, 1}
    assert "Traceback" not in done.err
    assert "checks found an error" in done.out or "No errors found" in done.out


def test_the_doctor_names_the_server_and_what_to_do(terminal: Terminal) -> None:
    url = f"postgresql://u:{SECRET}@127.0.0.1:1/x"
    done = terminal.run("doctor", HOMING_DATABASE_URL=url)
    assert done.code == 1
    assert "Nothing listens at 127.0.0.1:1: start PostgreSQL" in done.out
    assert SECRET not in done.out + done.err


# --- PostgreSQL -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (asyncpg.InvalidPasswordError(SECRET), "refuses the password of the user shop"),
        (asyncpg.InvalidAuthorizationSpecificationError("x"), "pg_hba.conf"),
        (asyncpg.InvalidCatalogNameError("x"), "has no database orders: create it"),
        (asyncpg.InsufficientPrivilegeError("x"), 'OWNER TO "shop"'),
        (asyncpg.TooManyConnectionsError("x"), "raise max_connections"),
        (asyncpg.ReadOnlySQLTransactionError("x"), "the address of the primary"),
        (asyncpg.CannotConnectNowError("x"), "starting or stopping"),
        (asyncpg.DiskFullError("x"), "no space left"),
        (asyncpg.LockNotAvailableError("x"), "holds a lock"),
        (asyncpg.ClientConfigurationError(SECRET), "must be postgresql://USER:PASSWORD@HOST"),
        (ValueError(SECRET), "percent-encoded"),
        (ssl.SSLCertVerificationError(1, "x"), "not trusted here"),
        (ssl.SSLError(1, "x"), "check sslmode"),
        (ConnectionError("rejected SSL upgrade"), "does not use TLS"),
        (socket.gaierror(-2, "x"), "cannot be resolved"),
        (ConnectionRefusedError(111, "x"), "Nothing listens at db.internal:5433"),
        (TimeoutError(), "did not respond in time"),
        (OSError(113, "No route to host"), "cannot be reached: No route to host"),
    ],
)
def test_a_refusal_of_postgresql_is_put_into_words(error: Exception, told: str) -> None:
    text = refusal_text(error, ADDRESS)
    assert told in text
    assert SECRET not in text
    assert text.endswith((".", "'."))


@pytest.mark.parametrize(
    "address",
    [
        ADDRESS,
        f"postgresql://shop:{SECRET}@/orders?host=/run/postgresql",
        f"postgresql://shop:a@{SECRET}@h/orders",
        f"postgresql://shop:a/{SECRET}@h/orders",
        f"postgresql://shop:a@b/{SECRET}@h/orders",
        f"postgresql://h/orders?password={SECRET}",
    ],
)
def test_a_shown_address_has_no_part_of_a_password(address: str) -> None:
    assert SECRET not in shown(address)
    assert SECRET not in refusal_text(socket.gaierror(-2, "x"), address)


@pytest.fixture
def without_tls() -> Iterator[int]:
    """The port of a server that refuses TLS, as PostgreSQL without ssl does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(b"N")
                connection.recv(1024)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]


def test_a_server_without_tls_is_named(terminal: Terminal, without_tls: int) -> None:
    url = f"postgresql://u:{SECRET}@127.0.0.1:{without_tls}/x?sslmode=require"
    done = terminal.run("move", "--from", url, "--to", "sqlite:new")
    assert (done.code, "does not use TLS" in done.err) == (1, True), done.err
    assert SECRET not in done.err


def test_an_old_server_and_a_missing_database_are_refused_at_the_start(
    postgres: Server, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = postgres.dsn("no_such_database")
    done = terminal.run("migrate", HOMING_DATABASE_URL=missing)
    assert "has no database no_such_database: create it" in done.err
    monkeypatch.setattr(postgres_module, "OLDEST", 99)
    done = terminal.run("migrate", HOMING_DATABASE_URL=asyncio.run(postgres.make()))
    assert (done.code, "needs PostgreSQL 99 or newer" in done.err) == (2, True), done.err


async def test_a_lock_that_somebody_holds_is_named(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = await postgres.make()
    await (await PostgresDb.open(address)).close()

    async def locked(*_: object, **__: object) -> None:
        raise StoreUnavailable("x") from asyncpg.LockNotAvailableError("x")

    monkeypatch.setattr(postgres_module, "migrate", locked)
    with pytest.raises(StoreUnavailable, match="holds a lock on a table"):
        await PostgresDb.open(address)


# --- durability -----------------------------------------------------------------------------

SAFE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}


def durability(off: str = "", standbys: tuple[str, ...] = ()) -> list[Check]:
    settings = {name: "off" if name == off else value for name, value in SAFE.items()}
    facts = StoreFacts(1, "PostgreSQL", 0, durability=settings, async_standbys=standbys)
    return list(_durability(facts))


@pytest.mark.parametrize("setting", SAFE)
def test_the_doctor_fails_where_a_commit_may_not_survive(setting: str) -> None:
    (found,) = durability(setting)
    assert found.status is CheckStatus.ERROR
    assert f"{setting} = off" in found.sentence
    assert f"SET {setting} = on" in found.advice


def test_the_doctor_warns_of_an_asynchronous_standby() -> None:
    assert [it.status for it in durability()] == [OK]
    (warning, fine) = durability(standbys=("replica-1",))
    assert (warning.status, fine.status) == (CheckStatus.WARNING, OK)
    assert "replica-1" in warning.sentence


def hosts(*states: HostState) -> list[Check]:
    facts = StoreFacts(1, "PostgreSQL", 0, durability=SAFE, hosts=states)
    return [it for it in _durability(facts) if it.name == "hosts"]


def test_the_doctor_fails_where_two_servers_take_writes() -> None:
    found = hosts(HostState("a:1", timeline=2), HostState("b:2", timeline=1))
    assert [it.status for it in found] == [CheckStatus.ERROR]
    assert "b:2 (timeline 1), a:1 (timeline 2)" in found[0].sentence
    assert "Stop b:2 at once" in found[0].advice


def test_the_doctor_warns_of_a_host_that_is_away_and_names_primary_and_standby() -> None:
    (away,) = hosts(HostState("a:1", timeline=1), HostState("b:2", trouble="PostgreSQL at b:2 …"))
    assert (away.status, away.sentence) == (CheckStatus.WARNING, "PostgreSQL at b:2 …")
    (fine,) = hosts(HostState("a:1", timeline=1), HostState("b:2", is_standby=True))
    assert fine.status is OK
    assert fine.sentence == "a:1 is the primary, b:2 can take its place."


def test_the_doctor_says_if_it_may_not_see_how_a_standby_follows() -> None:
    facts = StoreFacts(1, "PostgreSQL", 0, durability=SAFE, hidden_standbys=1)
    (unknown, _fine) = _durability(facts)
    assert unknown.status is CheckStatus.UNKNOWN
    assert "GRANT pg_monitor" in unknown.advice


def test_the_doctor_reads_the_settings_of_the_server(postgres: Server, terminal: Terminal) -> None:
    """The server of these tests does not wait for its disk."""
    address = asyncio.run(postgres.make())
    done = terminal.run("doctor", "--json", HOMING_DATABASE_URL=address)
    found = [it for it in done.document["checks"] if it["name"] == "durability"]
    assert {it["status"] for it in found} == {"error"}
    assert len(found) == 2
