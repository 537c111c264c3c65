"""What people see. No read is unbounded, and none delays a commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from homing.model import Attempt, Endpoint, State, Subscription, Transition
from homing.policy.match import type_matches
from homing.ports import DeliveryFilter, DeliveryRow, EventRow, FleetView, Lease, Ledger
from homing.store import leases, lists, rows, tenants
from homing.store.board import BoardViews
from homing.store.lists import LOOK
from homing.store.tx import Db, Row, Tx

TOP_ID = (1 << 63) - 1  # above every id
LEDGER_ROWS_MAX = 100_000  # pending rows counted for the ledger
PAGE_BYTES_MAX = 4 * 1024 * 1024  # of event data on one page, unless a single event has more
ATTEMPTS_MAX = (
    1_000  # of one delivery; a life has some 300, and about 90 for each hour of our outage
)


def _page(
    looked: list[Row], *, look: int, limit: int, keep: Callable[[Row], bool]
) -> tuple[list[Row], int | None]:
    """What belongs on the page, and where the next begins. A row begins with its id."""
    kept = [row for row in looked if keep(row)]
    if len(kept) > limit:
        return kept[:limit], kept[limit - 1][0]
    return kept, looked[-1][0] if len(looked) == look else None


class Views(BoardViews):
    """``ViewStore`` on a database."""

    def __init__(self, db: Db) -> None:
        self._db = db

    # --- events -----------------------------------------------------------------------------

    async def events(
        self, *, tenant: str | None, event_type: str | None, before_id: int | None, limit: int
    ) -> tuple[list[EventRow], int | None]:
        def keep(row: Row) -> bool:
            if tenant is not None and row[1] != tenant:
                return False
            return event_type is None or type_matches(event_type, row[2])

        async def work(tx: Tx) -> tuple[list[EventRow], int | None]:
            look = _look(limit, passes_over=tenant is not None or event_type is not None)
            looked = await tx.all("view_events", before_id=_before(before_id), look=look)
            page, cursor = _page(looked, look=look, limit=limit, keep=keep)
            fitting = _that_fit(page)
            if len(fitting) < len(page):
                cursor = fitting[-1][0]
            whole = await tx.all("view_events_whole", ids=[row[0] for row in fitting])
            return [_event_row(row) for row in whole], cursor

        return await self._db.run(work, read=True)

    async def event(self, key: str, *, tenant: str) -> EventRow | None:
        async def work(tx: Tx) -> EventRow | None:
            row = await tx.one("view_event", tenant=tenant, key=key)
            return _event_row(row) if row else None

        return await self._db.run(work, read=True)

    async def event_deliveries(self, event_id: int, *, limit: int) -> list[DeliveryRow]:
        async def work(tx: Tx) -> list[DeliveryRow]:
            return await lists.of_event(tx, event_id, limit=limit)

        return await self._db.run(work, read=True)

    # --- subscriptions and endpoints --------------------------------------------------------

    async def subscriptions(
        self, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[Subscription], int | None]:
        async def work(tx: Tx) -> tuple[list[Subscription], int | None]:
            before = _before(before_id)
            look = _look(limit, passes_over=tenant is None)
            if tenant is None:
                looked = await tx.all("view_subscriptions", before_id=before, look=look)
            else:
                looked = await tx.all(
                    "view_subscriptions_of_tenant", tenant=tenant, before_id=before, look=look
                )
            page, cursor = _page(looked, look=look, limit=limit, keep=_is_living)
            return [rows.subscription(row) for row in page], cursor

        return await self._db.run(work, read=True)

    async def subscription(self, subscription_id: int) -> Subscription | None:
        async def work(tx: Tx) -> Subscription | None:
            row = await tx.one("subscription_by_id", id=subscription_id)
            return rows.subscription(row) if row else None

        return await self._db.run(work, read=True)

    async def endpoints(
        self, *, tenant: str | None, state: State | None, before_id: int | None, limit: int
    ) -> tuple[list[Endpoint], int | None]:
        def keep(row: Row) -> bool:
            return (tenant is None or row[2] == tenant) and (state is None or row[6] == state)

        async def work(tx: Tx) -> tuple[list[Endpoint], int | None]:
            before = _before(before_id)
            look = _look(limit, passes_over=tenant is not None or state is not None)
            if state is not None and state is not State.ENABLED:
                looked = await tx.all(
                    "view_endpoints_held", state=state.value, before_id=before, look=look
                )
            elif tenant is not None and await _has_few_endpoints(tx, tenant):
                looked = await tx.all(
                    "view_endpoints_of_tenant", tenant=tenant, before_id=before, look=look
                )
            else:
                looked = await tx.all("view_endpoints", before_id=before, look=look)
            page, cursor = _page(looked, look=look, limit=limit, keep=keep)
            return [rows.endpoint(row) for row in page], cursor

        return await self._db.run(work, read=True)

    async def endpoint(self, endpoint_id: int) -> Endpoint | None:
        async def work(tx: Tx) -> Endpoint | None:
            row = await tx.one("view_endpoint", id=endpoint_id)
            return rows.endpoint(row) if row else None

        return await self._db.run(work, read=True)

    async def waiting(self, endpoint_id: int, *, limit: int) -> int:
        async def work(tx: Tx) -> int:
            row = await tx.one("view_waiting", endpoint_id=endpoint_id, limit=limit)
            return int(row[0]) if row else 0

        return await self._db.run(work, read=True)

    async def transitions(
        self, endpoint_id: int, *, before_id: int | None, limit: int
    ) -> tuple[list[Transition], int | None]:
        async def work(tx: Tx) -> tuple[list[Transition], int | None]:
            look = _look(limit, passes_over=False)
            looked = await tx.all(
                "view_transitions",
                endpoint_id=endpoint_id,
                before_id=_before(before_id),
                look=look,
            )
            page, cursor = _page(looked, look=look, limit=limit, keep=_any)
            return [rows.transition(row) for row in page], cursor

        return await self._db.run(work, read=True)

    # --- deliveries -------------------------------------------------------------------------

    async def deliveries(
        self, conditions: DeliveryFilter, *, before_id: int | None, limit: int
    ) -> tuple[list[DeliveryRow], int | None]:
        async def work(tx: Tx) -> tuple[list[DeliveryRow], int | None]:
            before = _before(before_id)
            few = await tenants.few_endpoints(tx, conditions)
            if few is None:
                return await lists.deliveries(tx, conditions, before_id=before, limit=limit)
            return await tenants.deliveries(tx, few, conditions, before_id=before, limit=limit)

        return await self._db.run(work, read=True)

    async def delivery(self, delivery_id: int) -> DeliveryRow | None:
        async def work(tx: Tx) -> DeliveryRow | None:
            row = await tx.one("deliveries_whole", ids=[delivery_id])
            return lists.delivery_row(row) if row else None

        return await self._db.run(work, read=True)

    async def deliveries_by_id(self, ids: Sequence[int]) -> dict[int, DeliveryRow]:
        async def work(tx: Tx) -> dict[int, DeliveryRow]:
            found = await tx.all("deliveries_whole", ids=list(ids))
            return {row[0]: lists.delivery_row(row) for row in found}

        return await self._db.run(work, read=True)

    async def attempts(self, delivery_id: int) -> list[Attempt]:
        async def work(tx: Tx) -> list[Attempt]:
            found = await tx.all("view_attempts", delivery_id=delivery_id, limit=ATTEMPTS_MAX)
            return [rows.attempt(row) for row in found]

        return await self._db.run(work, read=True)

    # --- counts -----------------------------------------------------------------------------

    async def fleet(self) -> FleetView:
        async def work(tx: Tx) -> FleetView:
            row = await tx.one("database_now")
            assert row is not None
            members = [leases.member(it) for it in await tx.all("processes")]
            held = tuple(Lease(*it) for it in await tx.all("leases"))
            return FleetView(row[0], tuple(it for it in members if it.expires_at > row[0]), held)

        return await self._db.run(work, read=True)

    async def ledger(self, *, tenant: str | None, look: int | None = None) -> list[Ledger]:
        async def work(tx: Tx) -> list[Ledger]:
            most = LEDGER_ROWS_MAX if look is None else look
            bound = most + 1
            if tenant is None:
                found = await tx.all("view_ledger", limit=bound)
            else:
                found = await tx.all("view_ledger_of_tenant", tenant=tenant, limit=bound)
            return [_ledger(row, most) for row in found]

        return await self._db.run(work, read=True)

    async def pending_of(self, tenant: str) -> int:
        async def work(tx: Tx) -> int:
            row = await tx.one("view_pending_of_tenant", tenant=tenant)
            return int(row[0]) if row else 0

        return await self._db.run(work, read=True)

    async def subscriptions_of(self, tenant: str, *, limit: int) -> int:
        async def work(tx: Tx) -> int:
            row = await tx.one("view_subscription_count", tenant=tenant, limit=limit)
            return int(row[0]) if row else 0

        return await self._db.run(work, read=True)

    async def ping(self) -> None:
        async def work(tx: Tx) -> None:
            await tx.one("ping")

        await self._db.run(work, read=True)


def _before(before_id: int | None) -> int:
    return TOP_ID if before_id is None else before_id


def _look(limit: int, *, passes_over: bool) -> int:
    """How many rows a page looks at: one more than it shows, or more where some do not belong."""
    return max(limit + 1, LOOK) if passes_over else limit + 1


def _any(_: Row) -> bool:
    return True


def _is_living(row: Row) -> bool:
    return row[15] is None


async def _has_few_endpoints(tx: Tx, tenant: str) -> bool:
    row = await tx.one("view_endpoint_count", tenant=tenant, limit=LOOK)
    return row is not None and row[0] < LOOK


def _that_fit(page: list[Row]) -> list[Row]:
    """The first rows whose data fit on a page together; at least one."""
    size = 0
    for count, row in enumerate(page):
        size += row[3]
        if size > PAGE_BYTES_MAX and count:
            return page[:count]
    return page


def _event_row(row: Row) -> EventRow:
    return EventRow(rows.event(row), deliveries=row[7])


def _ledger(row: Row, look: int) -> Ledger:
    tenant, accepted, delivered, dropped, cancelled, pending, looked = row
    counted = looked <= look
    return Ledger(
        tenant=tenant,
        accepted=accepted,
        delivered=delivered,
        pending=pending if counted else accepted - delivered - dropped - cancelled,
        dropped=dropped,
        cancelled=cancelled,
        counted=counted,
    )
