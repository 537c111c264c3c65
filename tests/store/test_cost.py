"""The hot path costs the same however much is pending; rows and steps are counted, not seconds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from homing.model import Delivery, Endpoint, Subscription
from homing.ports import DueAsk, SettleBatch
from homing.store import rows
from homing.store.tx import Db, Tx
from store.build import NOW, put
from store.costs import grown, measured
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
        assert (await flow.settle(batch)).gone == frozenset()
        await flow.remove_history(before=NOW, limit=50)


async def test_the_hot_path_costs_the_same_with_200_times_as_much_pending(
    db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = await Counts(db).begin()
    await scene.fill(FEW)
    await scene.hot_path()  # Once before: a row of counts is made only at first.
    few = await measured(db, scene.hot_path, monkeypatch)

    await scene.fill(MANY - FEW)
    many = await measured(db, scene.hot_path, monkeypatch)

    hot = "keys_known endpoint_walk endpoint_start due_heads works"
    hot += " probe_first probe_take expired_scan expired_rows endpoint_settle pending_finish"
    hot += " pending_wait ledger_add first_needed old_events old_history"
    assert set(hot.split()) <= few.keys()
    assert not grown(few, many)
