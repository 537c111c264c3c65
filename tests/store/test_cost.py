"""The hot path costs the same however much is pending; rows and steps are counted, not seconds."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from homing.model import Delivery, Endpoint, Subscription
from homing.ports import DueAsk, SettleBatch
from homing.store import rows
from homing.store.postgres import PostgresDb, PostgresTx
from homing.store.sqlite import SqliteDb
from homing.store.statements import statements
from homing.store.tx import Db, Row, Tx
from store.build import NOW, put
from store.scene import Scene

FEW, MANY = 1_000, 200_000
ENDPOINTS = 40

pytestmark = pytest.mark.parametrize("store", ["sqlite-memory", "postgres"], indirect=True)


class Counts(Scene):
    """One endpoint with half of all pending deliveries, and forty with the other half."""

    async def begin(self) -> Counts:
        await super().begin()
        self.others: list[Endpoint] = [
            self.make.endpoint(f"https://{n}.example/") for n in range(ENDPOINTS)
        ]
        self.subs: list[Subscription] = [self.make.subscription(it) for it in self.others]
        await put(self.db, endpoints=self.others, subscriptions=self.subs)
        self.new = self.make.event()
        await self.publish([self.new])
        return self

    def waiting(self, count: int) -> Iterator[Delivery]:
        """Half at the big endpoint; in each part, some due and most not."""
        small = itertools.cycle(self.subs)
        for number in range(count):
            to = self.sub if number % 2 else next(small)
            delivery = self.make.delivery(self.new.event, to)
            if number % 3:
                delivery = replace(delivery, attempts=1, retry=1, due_at=NOW + number * 10)
            yield delivery

    async def fill(self, count: int) -> None:
        found = [rows.pending_row(it) for it in self.waiting(count)]

        async def work(tx: Tx) -> None:
            await tx.insert("pending", found)

        await self.db.run(work)

    async def hot_path(self) -> None:
        """Every operation of the hot path, once."""
        flow, endpoint = self.flow, self.endpoint
        fresh = [self.make.event(self.sub, key=None) for _ in range(10)]
        await self.publish(fresh)
        await flow.start_page(0, 10)
        asks = [DueAsk(it.id, NOW, 5, 5, it.bucket) for it in (endpoint, *self.others[:10])]
        await flow.due(asks, now=NOW + 1_000)
        await flow.take_probe(endpoint, next_probe_at=NOW, now=NOW, skip_expired=True)
        await flow.expired(endpoint.id, bucket=endpoint.bucket, now=NOW, after_id=0, limit=50)
        mine = [new.deliveries[0] for new in fresh]
        batch = SettleBatch(
            number=self.number(),
            finished=tuple(self.make.finished(it) for it in mine[:5]),
            waiting=tuple(replace(it, attempts=1, due_at=NOW + 7) for it in mine[5:]),
            attempts=tuple(self.make.attempt(it) for it in mine),
            endpoints=(endpoint,),
        )
        assert await flow.settle(batch) == frozenset()
        await flow.remove_history(before=NOW, limit=50)


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


async def measured(scene: Counts, patch: pytest.MonkeyPatch) -> dict[str, int]:
    """The cost of each named statement of the hot path."""
    db: Db = scene.db
    if isinstance(db, SqliteDb):
        with sqlite_steps(db) as spent:
            await scene.hot_path()
    else:
        assert isinstance(db, PostgresDb)
        with postgres_rows(db, patch) as spent:
            await scene.hot_path()
    names = {it.text: name for name, it in statements(db.dialect).items()}
    together = sum(cost for text, cost in spent.items() if text.startswith("WITH w0 AS"))
    found = {names[text]: cost for text, cost in spent.items() if text in names}
    return found | {"ledger_add": together} if together else found


async def test_the_hot_path_costs_the_same_with_200_times_as_much_pending(
    db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = await Counts(db).begin()
    await scene.fill(FEW)
    await scene.hot_path()  # Once before: a row of counts is made only at first.
    few = await measured(scene, monkeypatch)

    await scene.fill(MANY - FEW)
    many = await measured(scene, monkeypatch)

    hot = "catalog_hold keys_known endpoint_walk endpoint_start due_heads works"
    hot += " probe_first probe_take expired_scan expired_rows endpoint_settle pending_finish"
    hot += " pending_wait ledger_add first_needed old_events old_history"
    assert set(hot.split()) <= few.keys()
    grown = {it: (few[it], many[it]) for it in few if many[it] > 2 * few[it] + 10}
    assert not grown
