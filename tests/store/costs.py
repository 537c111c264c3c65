"""What statements cost on either database, in rows or steps instead of seconds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import pytest

from homing.store.postgres import PostgresDb, PostgresTx
from homing.store.sqlite import SqliteDb
from homing.store.statements import statements
from homing.store.tx import Db, Row


@contextmanager
def sqlite_steps(db: SqliteDb) -> Iterator[Counter[str]]:
    """Virtual machine steps by statement."""
    spent: Counter[str] = Counter()
    connection = db._writer._connection
    assert connection is not None

    def profile(event: dict[str, Any]) -> None:
        spent[event["sql"]] += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, profile)
    yield spent
    connection.trace_v2(0, None)


@contextmanager
def postgres_rows(db: PostgresDb, patch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Rows that the nodes of the plans returned and filtered out, by statement."""
    spent: Counter[str] = Counter()
    plain = PostgresTx._fetch

    async def explained(self: PostgresTx, text: str, values: Iterable[Any]) -> list[Row]:
        values = list(values)
        if text in named or text.startswith("WITH w0 AS"):
            inside = self._connection.is_in_transaction()
            await self._connection.execute("SAVEPOINT cost" if inside else "BEGIN")
            ((plan,),) = await self._connection.fetch(
                f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) {text}", *values
            )
            await self._connection.execute("ROLLBACK TO cost" if inside else "ROLLBACK")
            spent[text] += _rows(json.loads(plan)[0]["Plan"])
        return await plain(self, text, values)

    named = {it.text for it in statements("postgres").values()}
    patch.setattr(PostgresTx, "_fetch", explained)
    yield spent
    patch.undo()


def _rows(node: dict[str, Any]) -> int:
    removed = sum(value for key, value in node.items() if key.startswith("Rows Removed"))
    own = (node["Actual Rows"] + removed) * node["Actual Loops"]
    return int(own) + sum(_rows(child) for child in node.get("Plans", ()))


async def measured(
    db: Db, work: Callable[[], Awaitable[None]], patch: pytest.MonkeyPatch
) -> dict[str, int]:
    """The cost of each named statement of some work."""
    if isinstance(db, SqliteDb):
        with sqlite_steps(db) as spent:
            await work()
    else:
        assert isinstance(db, PostgresDb)
        with postgres_rows(db, patch) as spent:
            await work()
    names = {it.text: name for name, it in statements(db.dialect).items()}
    together = sum(cost for text, cost in spent.items() if text.startswith("WITH w0 AS"))
    found = {names[text]: cost for text, cost in spent.items() if text in names}
    return found | {"ledger_add": together} if together else found


def grown(few: dict[str, int], many: dict[str, int]) -> dict[str, tuple[int, int]]:
    """The statements that cost more with many rows than with few."""
    return {it: (few[it], many[it]) for it in few if many[it] > 2 * few[it] + 10}
