"""Which kind of database an outbox address names, and the outbox in it."""

from __future__ import annotations

import re
from pathlib import Path

from homing.errors import BadSetting
from homing.ports import OutboxStore
from homing.store.outbox.postgres import PostgresOutbox
from homing.store.outbox.sqlite import SqliteOutbox
from homing.store.tx import Dialect

SQLITE = "sqlite:"
_POSTGRES = re.compile(r"postgres(ql)?://")


def outbox_kind(address: str) -> Dialect:
    """The kind of database of an address, by its prefix; raises BadSetting."""
    if address.startswith(SQLITE):
        return "sqlite"
    if _POSTGRES.match(address):
        return "postgres"
    raise BadSetting("The database must be given as postgresql://… or sqlite:PATH.")


def sqlite_path(address: str) -> Path:
    """``sqlite:app.db``, ``sqlite:/var/app.db``; SQLAlchemy's ``sqlite:///app.db`` as well."""
    path = address.removeprefix(SQLITE)
    if path.startswith("///"):
        path = path.removeprefix("///")
    return Path(path)


def open_outbox(address: str) -> OutboxStore:
    """The outbox at an address; it connects at the first use, and again after a failure."""
    if outbox_kind(address) == "postgres":
        return PostgresOutbox(address)
    return SqliteOutbox(sqlite_path(address))
