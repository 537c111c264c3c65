"""Builders of rows for store tests: ids in order, and defaults for uninteresting fields."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from homing.model import (
    Attempt,
    Connector,
    Decided,
    Delivery,
    Endpoint,
    Event,
    Failure,
    Finished,
    Format,
    Health,
    Ids,
    Lane,
    Outcome,
    Phases,
    Reason,
    Secret,
    State,
    Status,
    Subscription,
    Transition,
    Workfront,
    bucket_of,
)
from homing.ports import NewEvent, ReplayFilter, ReplayJob
from homing.store import acceptance, rows
from homing.store.tx import Db, Tx

NOW = 1_800_000_000_000
HOUR = 3_600_000
_others = itertools.count(100)  # processes that have written to the ledger before


class Maker:
    """Makes values with ids in order of making."""

    def __init__(self, *, now: int = NOW) -> None:
        self.now = now
        self._ids = Ids()

    def id(self) -> int:
        return self._ids.take(self.now)

    def endpoint(
        self,
        url: str = "https://a.example/in",
        *,
        tenant: str = "acme",
        state: State = State.ENABLED,
        generation: int = 0,
    ) -> Endpoint:
        return Endpoint(
            id=self.id(),
            bucket=bucket_of(tenant, url),
            tenant=tenant,
            url=url,
            created_at=self.now,
            generation=generation,
            health=Health(state=state, since=self.now, enabled_since=self.now),
        )

    def subscription(
        self,
        at: Endpoint,
        *,
        types: tuple[str, ...] = ("*",),
        active: bool = True,
        description: str = "",
    ) -> Subscription:
        return Subscription(
            id=self.id(),
            tenant=at.tenant,
            endpoint_id=at.id,
            url=at.url,
            types=types,
            format=Format.STANDARD,
            secrets=(Secret("whsec_new"), Secret("whsec_old", until=self.now + HOUR)),
            created_at=self.now,
            updated_at=self.now,
            version=0,
            token="token",
            headers=(("x-shop", "7"),),
            policy="workfront",
            deadline_ms=5_000,
            active=active,
            description=description,
            filters='[{"field":"data.n","op":"gt","value":0}]',
            filter_connector=Connector.OR,
            rate_per_second=2.5,
            metadata=(("customer", "4711"), ("é", "")),
            workfront=Workfront(version="v1", version_at=self.now, object_id="5e7"),
        )

    def event(
        self,
        *to: Subscription,
        tenant: str = "acme",
        key: str | None = None,
        kind: str = "order.paid",
        data: bytes = b'{"n":1}',
        trace: str = "",
    ) -> NewEvent:
        """An event with a delivery to each of these subscriptions."""
        number = self.id()
        event = Event(
            id=number,
            tenant=tenant,
            key=key or f"k{number}",
            type=kind,
            time="2027-01-15T08:00:00Z",
            accepted_at=self.now,
            data=data,
            trace=trace,
        )
        deliveries = tuple(self.delivery(event, subscription) for subscription in to)
        return NewEvent(event, "", deliveries)

    def delivery(
        self,
        event: Event,
        to: Subscription,
        *,
        expires_at: int | None = None,
        replay_of: Delivery | None = None,
    ) -> Delivery:
        number = self.id()
        return Delivery(
            id=number,
            bucket=bucket_of(to.tenant, to.url),
            tenant=to.tenant,
            endpoint_id=to.endpoint_id,
            subscription_id=to.id,
            event_id=event.id,
            root_id=replay_of.root_id if replay_of else number,
            accepted_at=self.now,
            due_at=self.now,
            expires_at=self.now + 48 * HOUR if expires_at is None else expires_at,
            replay=replay_of is not None,
        )

    def finished(
        self,
        delivery: Delivery,
        status: Status = Status.DELIVERED,
        reason: Reason | None = None,
        *,
        at: int | None = None,
    ) -> Finished:
        return Finished(delivery, status, reason, self.now if at is None else at)

    def attempt(self, delivery: Delivery, *, number: int = 1) -> Attempt:
        return Attempt(
            delivery_id=delivery.id,
            number=number,
            endpoint_id=delivery.endpoint_id,
            subscription_id=delivery.subscription_id,
            lane=Lane.FRESH,
            started_at=self.now,
            finished_at=self.now + 12,
            outcome=Outcome.FAILED,
            code=None,
            failure=Failure.RESET,
            detail="the connection was reset",
            address="192.0.2.7",
            phases=Phases(dns_us=100, connect_us=900, total_us=12_000),
            request_headers=b"webhook-id: x\r\n",
            response_headers=b"",
            excerpt=b"",
            decided=Decided.RETRY,
            due_at=self.now + 84_800,
            retry=1,
        )

    def delivered(self, delivery: Delivery) -> Attempt:
        """A first attempt that succeeded when ``finished`` says so."""
        return replace(
            self.attempt(delivery),
            finished_at=self.now,
            outcome=Outcome.DELIVERED,
            code=204,
            failure=None,
            detail="",
            decided=Decided.DELIVERED,
            due_at=None,
            retry=0,
        )

    def transition(self, endpoint: Endpoint, *, after: State = State.FROZEN) -> Transition:
        return Transition(
            id=self.id(),
            endpoint_id=endpoint.id,
            at=self.now,
            before=endpoint.health.state,
            after=after,
            rule="person",
            numbers={"failures": 7},
            by="ada",
        )

    def job(self, conditions: ReplayFilter | None = None) -> ReplayJob:
        number = self.id()
        return ReplayJob(
            id=number,
            filter=conditions or ReplayFilter(),
            created_at=self.now,
            state="running",
            upto_id=number,
            after_id=0,
        )


async def put(
    db: Db,
    *,
    endpoints: Iterable[Endpoint] = (),
    subscriptions: Iterable[Subscription] = (),
    events: Sequence[NewEvent] = (),
    finished: Sequence[Finished] = (),
    transitions: Iterable[Transition] = (),
) -> None:
    """Write rows as they are; deliveries of ``events`` are pending unless they are finished."""
    done = {it.delivery.id for it in finished}
    waiting = [it for new in events for it in new.deliveries if it.id not in done]

    async def work(tx: Tx) -> None:
        await tx.insert("endpoint", [rows.endpoint_row(it) for it in endpoints])
        await tx.insert("subscription", [rows.subscription_row(it) for it in subscriptions])
        position = await acceptance.take(tx)
        await tx.insert("event", [rows.event_row(it, position) for it in events])
        await tx.insert("event_key", [rows.event_key_row(it) for it in events])
        await tx.insert("pending", [rows.pending_row(it, position) for it in waiting])
        await tx.insert("history", [rows.history_row(it) for it in finished])
        await tx.insert("transition", [rows.transition_row(it) for it in transitions])
        await tx.insert("ledger", _ledger(events, finished))

    await db.run(work)


def _ledger(events: Sequence[NewEvent], finished: Sequence[Finished]) -> list[tuple[object, ...]]:
    """The ledger rows of another process that wrote these events."""
    tenants = sorted({new.event.tenant for new in events})
    node = next(_others)
    return [
        (
            tenant,
            node,
            sum(len(new.deliveries) for new in events if new.event.tenant == tenant),
            *(
                sum(it.delivery.tenant == tenant and it.status is status for it in finished)
                for status in (
                    Status.DELIVERED,
                    Status.DROPPED,
                    Status.CANCELLED,
                    Status.SUPERSEDED,
                )
            ),
        )
        for tenant in tenants
    ]
