"""Installs the outbox in an application's database, or prints the SQL that does."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import apsw
import asyncpg

from homing.errors import StoreUnavailable
from homing.store.connect import connect
from homing.store.tx import Dialect

NOT_INSTALLED = "There is no outbox in this database: `homing outbox install` puts it there."
REASON_CHARS = 1_000
EXAMPLES: dict[Dialect, str] = {
    "postgres": """SELECT homing_publish('invoice.paid', '{"id": 7}');""",
    "sqlite": """INSERT INTO homing_outbox (type, data) VALUES ('invoice.paid', '{"id": 7}');""",
}
_NOTIFY = "    PERFORM pg_notify('homing_outbox', '');\n"
# Two installations at the same time run one after the other.
_POSTGRES_LOCK = "SELECT pg_advisory_xact_lock(7239140561)"


# SQLite cannot add a column only where it is missing.
_UPGRADE_NOTE = "\n-- A table of an older version, without the column key, is upgraded by:\n"
_HAS_KEYS = "SELECT 1 FROM pragma_table_info('homing_outbox') WHERE name = 'key'"


def install_text(dialect: Dialect, *, notify: bool = True) -> str:
    """The SQL that installs the outbox; running it again keeps the rows.

    On PostgreSQL it upgrades an older outbox as well. On SQLite a comment has the statement.
    """
    text = _read(f"install.{dialect}.sql")
    if dialect == "sqlite":
        upgrade = _read("upgrade.sqlite.sql").splitlines()
        return text + _UPGRADE_NOTE + "".join(f"-- {line}\n" for line in upgrade)
    return text if notify else text.replace(_NOTIFY, "")


def _read(name: str) -> str:
    return (files("homing.store.outbox") / name).read_text(encoding="utf-8")


async def install_postgres(dsn: str, *, notify: bool) -> None:
    """Install or upgrade in one transaction; raises StoreUnavailable."""
    try:
        connection = await connect(dsn)
        try:
            async with connection.transaction():
                await connection.execute(_POSTGRES_LOCK)
                await connection.execute(install_text("postgres", notify=notify))
        finally:
            await connection.close(timeout=5)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise StoreUnavailable(f"The outbox: {type(error).__name__}: {error}.") from error


def install_sqlite(path: Path) -> None:
    """Install or upgrade in one transaction, in a new file if there is none.

    Raises StoreUnavailable.
    """
    try:
        connection = apsw.Connection(str(path))
        try:
            connection.set_busy_timeout(5_000)
            with connection:
                connection.execute(install_text("sqlite"))
                if not connection.execute(_HAS_KEYS).fetchall():
                    connection.execute(_read("upgrade.sqlite.sql"))
        finally:
            connection.close()
    except apsw.Error as error:
        raise StoreUnavailable(f"The outbox: {type(error).__name__}: {error}.") from error
