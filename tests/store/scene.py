"""A scene for tests of the hot path: one endpoint with a subscription and pending deliveries."""

from __future__ import annotations

from msgspec.structs import replace

from homing.model import Attempt, Delivery, Endpoint, Subscription
from homing.ports import DueAsk, DueRows, NewEvent, Receipt, Refusal, SettleBatch
from homing.store import rows
from homing.store.flow import Flow
from homing.store.tx import Db, Row, Tx
from store.build import NOW, Maker, put


class Scene:
    """The hot path on a database with one endpoint and one subscription."""

    def __init__(self, db: Db) -> None:
        self.db = db
        self.flow = Flow(db)
        self.make = Maker()
        self.fence = 0  # with which it publishes
        self.endpoint: Endpoint = self.make.endpoint()
        self.sub: Subscription = self.make.subscription(self.endpoint)
        self.position = 0  # of the last publish
        self._numbers = iter(range(1, 1_000_000))

    async def begin(self) -> Scene:
        await put(self.db, endpoints=[self.endpoint], subscriptions=[self.sub])
        return self

    def number(self) -> int:
        return next(self._numbers)

    async def publish(self, *requests: list[NewEvent]) -> list[list[Receipt] | Refusal]:
        published = await self.flow.publish(list(requests), number=self.number(), fence=self.fence)
        self.position = published.position
        return published.results

    async def deliver(self, count: int = 1) -> list[Delivery]:
        """Publish so many deliveries; they are pending."""
        events = [self.make.event(self.sub) for _ in range(count)]
        await self.publish(events)
        return self.stored(*events)

    def stored(self, *events: NewEvent) -> list[Delivery]:
        """The deliveries of events of the last publish as they are stored."""
        return [replace(it, position=self.position) for new in events for it in new.deliveries]

    async def enable(self, at: int) -> None:
        """Enable the endpoint: what is accepted from now on is fresh."""
        health = replace(self.endpoint.health, enabled_since=at)
        self.endpoint = replace(self.endpoint, health=health)
        await self.flow.settle(SettleBatch(number=self.number(), endpoints=(self.endpoint,)))

    async def tried(self, delivery: Delivery, *, due_at: int, t0: int = NOW) -> Delivery:
        """Publish deliveries as they are after a failed attempt, without settling one."""
        waiting = replace(delivery, due_at=due_at, t0=t0, retry=1, attempts=1)
        await self.rewrite(waiting)
        return waiting

    async def rewrite(self, delivery: Delivery) -> None:
        async def work(tx: Tx) -> None:
            row: Row = (*rows.pending_row(delivery)[1:-1], delivery.id)
            await tx.many("pending_wait", [row])

        await self.db.run(work)

    async def due(
        self, *, fresh: int = 10, retry: int = 10, now: int = NOW, since: int = NOW
    ) -> DueRows:
        ask = DueAsk(self.endpoint.id, since, fresh, retry, self.endpoint.bucket)
        (reply,) = await self.flow.due([ask], now=now)
        return reply


async def count(db: Db, table: str) -> int:
    """How many rows a table has."""
    return len(await every(db, table))


async def every_attempt(db: Db) -> list[Attempt]:
    """All attempts, also those that are kept in history, in order."""
    raw = getattr(db, "raw")  # noqa: B009 - both drivers have it; the port does not
    at_once = (
        "SELECT id, endpoint_id, subscription_id, finished_at, retry, first_attempt FROM history"
        " WHERE first_attempt IS NOT NULL"
    )
    found = [rows.first_attempt(row) for row in await raw(lambda execute: execute(at_once))]
    found += [rows.attempt(row) for row in await every(db, "attempt")]
    return sorted(found, key=lambda it: (it.delivery_id, it.number))


async def every(db: Db, table: str) -> list[Row]:
    """All rows of a table, in order."""
    raw = getattr(db, "raw")  # noqa: B009 - both drivers have it; the port does not
    columns = ", ".join(rows.COLUMNS[table])
    found: list[Row] = await raw(lambda execute: execute(f"SELECT {columns} FROM {table}"))
    return sorted(found)
