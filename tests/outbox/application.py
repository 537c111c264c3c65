"""An application that writes SQL by hand, whatever its database is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import psycopg

from homing.store.outbox import outbox_kind, sqlite_path


def libpq(address: str) -> str:
    """The same address for drivers of libpq, which know search_path as an option only."""
    return address.replace("search_path=", "options=-csearch_path%3D")


KEY = "coalesce(id, made_id)"  # of the event, on SQLite


class Application:
    """One connection, without a driver's automatic transactions."""

    def __init__(self, address: str) -> None:
        self.kind = outbox_kind(address)
        self._connection: Any
        if self.kind == "postgres":
            self._connection = psycopg.connect(libpq(address), autocommit=True)
        else:
            self._connection = apsw.Connection(str(sqlite_path(address)))
            self._connection.set_busy_timeout(30_000)
        self._mark = "%s" if self.kind == "postgres" else "?"

    def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(sql.replace("?", self._mark), values)
        if self.kind == "postgres" and cursor.description is None:
            return []
        return list(cursor.fetchall())

    def publish(self, type: str, data: str | None, **more: str) -> str:  # noqa: A002
        names = ["type", "data", *more]
        values = (type, data, *more.values())
        marks = ", ".join("?" for _ in names)
        if self.kind == "postgres":
            named = ", ".join(
                "at => CAST(? AS timestamptz)" if name == "time" else f"{name} => CAST(? AS text)"
                for name in names
            )
            return str(self.run(f"SELECT homing_publish({named})", *values)[0][0])
        sql = f"INSERT INTO homing_outbox ({', '.join(names)}) VALUES ({marks}) RETURNING {KEY}"
        return str(self.run(sql, *values)[0][0])

    def rows(self) -> list[tuple[Any, ...]]:
        """Event id, type, data, reason of all that is in the outbox."""
        key = "id" if self.kind == "postgres" else KEY
        return self.run(f"SELECT {key}, type, data, reason FROM homing_outbox ORDER BY number")

    def close(self) -> None:
        self._connection.close()


@contextmanager
def application(address: str) -> Iterator[Application]:
    one = Application(address)
    try:
        yield one
    finally:
        one.close()
