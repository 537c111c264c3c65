"""Publish in your own transaction: the event exists if and only if that transaction commits.

    from homing.client import outbox

    with connection.transaction():
        pay(connection, invoice=17)
        outbox.publish(connection, "invoice.paid", {"invoice": 17})

``homing outbox install`` has put the table ``homing_outbox`` into the database, and a relay
publishes what is committed there. Takes connections of psycopg, asyncpg, SQLAlchemy (sessions,
too), Django, sqlite3 and apsw; those that are awaited give an awaitable. None of them is imported
here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from datetime import datetime
from typing import Any, Protocol, overload

import msgspec

from homing.client.outbox_drivers import Filled, send


class Awaited(Protocol):
    """A connection or session whose methods are awaited."""

    async def execute(self, *args: Any, **kwargs: Any) -> Any: ...


@overload
def publish(
    conn: Awaited,
    type: str,
    data: Any,
    *,
    id: str | None = None,
    tenant: str | None = None,
    time: str | datetime | None = None,
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
) -> str: ...


def publish(
    conn: Any,
    type: str,  # noqa: A002
    data: Any,
    *,
    id: str | None = None,  # noqa: A002
    tenant: str | None = None,
    time: str | datetime | None = None,
) -> str | Awaitable[str]:
    """Write the event into the outbox, in the transaction that ``conn`` is in; its id.

    ``data`` is any value that msgspec writes as JSON; ``msgspec.Raw`` goes out byte for byte. What
    Homing would refuse (a wrong type or id, more than 1 MiB) the database refuses here, with the
    driver's own error. Without ``id`` one is made; the time is then the moment of this call.
    """
    values: Mapping[str, str | None] = {
        "type": type,
        "data": msgspec.json.encode(data).decode(),
        "id": id,
        "tenant": tenant,
        "time": _time(time),
    }
    return send(conn, Filled(values))


def _time(time: str | datetime | None) -> str | None:
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ValueError("a time without a zone could be any: give it a tzinfo")
        return time.isoformat()
    return time
