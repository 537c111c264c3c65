"""Random operations on deliveries, compared with a dict: none is lost or doubled.

Promised: what-homing-promises.md#the-totals-balance.
"""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from homing.errors import AlreadyFinished
from homing.model import Delivery, Reason, Status
from homing.ports import NewEvent, Receipt, Refusal, SettleBatch
from homing.store import rows
from homing.store.admin import Admin
from homing.store.tx import Db
from store.build import NOW
from store.scene import Scene, every, every_attempt


class Model:
    """The expected contents of the store, in dicts."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene = scene
        self.random = random.Random(seed)
        self.pending: dict[int, Delivery] = {}
        self.history: dict[int, tuple[Status, bool]] = {}
        self.hashes: dict[str, bytes] = {}
        self.counts: dict[str, int] = {}
        self.seen: list[Delivery] = []  # as some process may still have them in flight
        self.attempts: dict[int, int] = {}

    def event(self) -> NewEvent:
        key = f"k{self.random.randrange(60)}"
        data = self.random.choice((b"1", b"1", b"1", b"2"))
        return self.scene.make.event(
            *[self.scene.sub] * self.random.randrange(3), key=key, data=data
        )

    async def publish(self) -> None:
        requests = [
            list({new.event.key: new for new in (self.event() for _ in range(3))}.values())
            for _ in range(self.random.randrange(1, 4))
        ]
        replies = await self.scene.publish(*requests)
        for request, reply in zip(requests, replies, strict=True):
            assert reply == self._expected(request)

    def _expected(self, request: list[NewEvent]) -> list[bool] | object:
        conflicts = tuple(
            n
            for n, new in enumerate(request)
            if self.hashes.get(new.event.key, new.content_hash()) != new.content_hash()
        )
        if conflicts:
            return Refusal(conflicts)
        receipts = []
        for new in request:
            is_new = new.event.key not in self.hashes
            if is_new:
                self.hashes[new.event.key] = new.content_hash()
                self.counts[new.event.key] = len(new.deliveries)
                self.pending.update((it.id, it) for it in new.deliveries)
                self.seen += new.deliveries
            receipts.append(Receipt(new.event.key, self.counts[new.event.key], new=is_new))
        return receipts

    async def cancel(self) -> None:
        if not self.seen:
            return
        delivery = self.random.choice(self.seen)
        if delivery.id in self.pending:
            await Admin(self.scene.db).cancel_delivery(delivery.id, now=NOW)
            del self.pending[delivery.id]
            self.history[delivery.id] = (Status.CANCELLED, False)
        else:
            with pytest.raises(AlreadyFinished):
                await Admin(self.scene.db).cancel_delivery(delivery.id, now=NOW)

    async def settle(self) -> None:
        chosen = self.random.sample(self.seen, min(len(self.seen), self.random.randrange(8)))
        finished, waiting = [], []
        for delivery in chosen:
            fate = self.random.choice((Status.DELIVERED, Status.DROPPED, None))
            now = replace(delivery, attempts=delivery.attempts + 1, due_at=NOW + len(self.attempts))
            if fate is None:
                waiting.append(now)
            else:
                reason = Reason.EXHAUSTED if fate is Status.DROPPED else None
                finished.append(self.scene.make.finished(now, fate, reason))
        attempts = []
        for delivery in chosen:
            number = self.attempts[delivery.id] = self.attempts.get(delivery.id, 0) + 1
            attempts.append(self.scene.make.attempt(delivery, number=number))
        result = await self.scene.flow.settle(
            SettleBatch(
                number=self.scene.number(),
                finished=tuple(finished),
                waiting=tuple(waiting),
                attempts=tuple(attempts),
            )
        )
        assert result.gone == {it.id for it in chosen} - self.pending.keys()
        for it in waiting:
            if it.id in self.pending:
                self.pending[it.id] = it
        for done in finished:
            number = done.delivery.id
            if number in self.pending:
                del self.pending[number]
                self.history[number] = (done.status, False)
            elif done.status is Status.DELIVERED and self.history[number][0] is Status.CANCELLED:
                self.history[number] = (Status.CANCELLED, True)

    async def check(self) -> None:
        db = self.scene.db
        stored = [rows.pending(row) for row in await every(db, "pending")]
        pending = [replace(it, position=0) for it in stored]
        assert {it.id: it for it in pending} == self.pending
        history = [rows.history(row) for row in await every(db, "history")]
        assert {it.delivery.id: (it.status, it.arrived) for it in history} == self.history
        ledger = [row[2:] for row in await every(db, "ledger")]
        accepted, *ended = (sum(column) for column in zip(*ledger, strict=True)) if ledger else [0]
        assert accepted == len(self.pending) + sum(ended)
        assert len(await every_attempt(db)) == sum(self.attempts.values())


@pytest.mark.parametrize("seed", range(3))
async def test_random_lives_leave_what_a_dict_would(db: Db, seed: int) -> None:
    model = Model(await Scene(db).begin(), seed)
    for _ in range(60):
        step = model.random.choice((model.publish, model.settle, model.settle, model.cancel))
        await step()
    await model.check()
