"""A large database of an older schema is upgraded; its process is killed before each statement.

No row may be lost or changed, no database may be stuck, and no migration may rewrite what is there:
a server that starts for the first time after an upgrade must not keep its callers waiting.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from homing.model import id_floor
from homing.store import migrate as migrate_module
from homing.store.migrate import Execute, migrate, migrations
from homing.store.partitions import ensure_days
from homing.store.tx import Dialect, Row
from postgres import Server
from store.killed import Stuck, connect, longest_ms, migrated, written_kb

OLD = (
    18  # The next one put the attempt of a delivery that succeeds at once into its row of history.
)
ROWS_AT_ONCE = 50_000
REWRITTEN_SHARE = 0.1  # A migration that writes this share of the database has rewritten a table.

_HISTORY = """
    INSERT INTO history (id, bucket, tenant, endpoint_id, subscription_id, event_id, root_id,
        accepted_at, due_at, expires_at, t0, retry, attempts, sender_errors, replay, status, reason,
        finished_at, arrived, cause_id)
    SELECT {first} + n, n % 256, 'tenant-' || (n % 7), n % 500, n % 900, {first} + n, {first} + n,
        {at} + n, {at} + n, {at} + n + 86400000, NULL, 0, 1, 0, 0,
        CASE WHEN n % 50 = 0 THEN 'dropped' ELSE 'delivered' END,
        CASE WHEN n % 50 = 0 THEN 'expired' ELSE NULL END, {at} + n + 20, 0, 0
    FROM {numbers}
"""
_ATTEMPTS = """
    INSERT INTO attempt (delivery_id, number, endpoint_id, subscription_id, lane, started_at,
        finished_at, outcome, code, detail, total_us, request_headers, response_headers,
        response_excerpt, decided, retry)
    SELECT {first} + n, 1, n % 500, n % 900, 'fresh', {at} + n, {at} + n + 20,
        'delivered', 200, '', 1500, {blob}, {blob}, {blob}, 'delivered', 0
    FROM {numbers}
"""
_NUMBERS: dict[Dialect, str] = {
    "sqlite": "(WITH RECURSIVE every (n) AS (SELECT {low} UNION ALL SELECT n + 1 FROM every"
    " WHERE n + 1 < {high}) SELECT n FROM every) AS numbers",
    "postgres": "generate_series({low}, {high} - 1) AS numbers (n)",
}
_BLOB: dict[Dialect, str] = {
    "sqlite": "CAST('user-agent: homing' AS BLOB)",
    "postgres": "convert_to('user-agent: homing', 'UTF8')",
}
_SUMS = (
    "SELECT count(*), sum(id % 1000003), sum(finished_at % 1000003), sum(endpoint_id),"
    " sum(length(tenant) + length(status)), count(reason) FROM history",
    "SELECT count(*), sum(delivery_id % 1000003), sum(started_at % 1000003), sum(code),"
    " sum(total_us), sum(length(request_headers)) FROM attempt",
)


@dataclass
class Toll:
    """What was done, and what must stay zero."""

    rows: int = 0
    kills: int = 0
    longest_ms: int = 0  # of one transaction of a migration
    size_mb: int = 0  # before
    written_kb: int = 0  # by all of its migrations
    lost: int = 0  # tables of which rows are missing or changed
    stuck: int = 0
    rewritten: int = 0
    first: list[str] = field(default_factory=list)

    @property
    def fired_enough(self) -> bool:
        return self.rows > 0 and self.kills > 2

    @property
    def bad(self) -> int:
        return self.lost + self.stuck + self.rewritten


@contextmanager
def _place(dialect: Dialect, folder: Path) -> Iterator[str]:
    if dialect == "sqlite":
        yield str(folder / "old.db")
        return
    with tempfile.TemporaryDirectory(prefix="homing-upgrade-", dir=folder) as name:
        folder.chmod(0o755)
        server = Server(Path(name))
        try:
            yield server.dsn("postgres")
        finally:
            server.stop()


def _run(place: str, work: Callable[[Any], Awaitable[Any]]) -> Any:
    async def alone() -> Any:
        db = connect(place)
        try:
            return await work(db)
        finally:
            await db.close()

    return asyncio.run(alone())


async def _fill(db: Any, rows: int) -> None:
    """A database of the old schema with so many deliveries and their attempts."""
    dialect: Dialect = db.dialect
    old = tuple(it for it in migrations(dialect) if it.number <= OLD)
    with patch.object(migrate_module, "migrations", lambda _: old):
        await migrate(db)
    at = int(time.time() * 1000)
    if dialect == "postgres":
        await ensure_days(db, at)
    for low in range(0, rows, ROWS_AT_ONCE):
        numbers = _NUMBERS[dialect].format(low=low, high=min(low + ROWS_AT_ONCE, rows))
        values = {"first": id_floor(at), "at": at, "numbers": numbers, "blob": _BLOB[dialect]}

        async def write(execute: Execute, values: dict[str, Any] = values) -> None:
            await execute(_HISTORY.format(**values))
            await execute(_ATTEMPTS.format(**values))

        await db.raw(write)


async def _sums(db: Any) -> list[Row]:
    return [(await db.raw(lambda execute, it=it: execute(it)))[0] for it in _SUMS]


async def _size(db: Any) -> int:
    if db.dialect == "sqlite":
        return Path(db._writer.path).stat().st_size
    query = "SELECT pg_database_size(current_database())"
    return int((await db.raw(lambda execute: execute(query)))[0][0])


async def _logged(db: Any) -> int:
    """Bytes in PostgreSQL's write-ahead log so far."""
    if db.dialect == "sqlite":
        return 0
    query = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"
    return int((await db.raw(lambda execute: execute(query)))[0][0])


async def upgrade_over_kills(
    dialect: Dialect, folder: Path, *, rows: int, torn: bool = False
) -> Toll:
    """Fill an old database, upgrade it over a kill at each statement, and compare its rows.

    ``torn``: by a broken build, in which each statement is a transaction of its own.
    """
    return await asyncio.to_thread(_upgrade, dialect, folder, rows=rows, torn=torn)


def _upgrade(dialect: Dialect, folder: Path, *, rows: int, torn: bool) -> Toll:
    toll = Toll(rows=rows)
    tombs = folder / "tombs"
    tombs.mkdir()
    with _place(dialect, folder) as place:
        _run(place, lambda db: _fill(db, rows))
        before = _run(place, _sums)
        size, logged = _run(place, _size), _run(place, _logged)
        try:
            while not migrated(place, tombs, torn=torn):
                toll.kills += 1
        except Stuck:
            toll.stuck += 1
            return toll
        toll.written_kb = written_kb(tombs) + (_run(place, _logged) - logged) // 1024
        after = _run(place, _sums)
        pairs = list(zip(before, after, strict=True))
        toll.lost = sum(old != new for old, new in pairs)
        toll.first = [f"{old} became {new}" for old, new in pairs if old != new]
        _run(place, migrate)  # Nothing is left to do.
    toll.longest_ms = longest_ms(tombs)
    toll.size_mb = size // 1024 // 1024
    toll.rewritten = int(toll.written_kb > size / 1024 * REWRITTEN_SHARE)
    return toll
