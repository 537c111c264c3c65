"""Reads for people: lists, single objects, and the dashboard's figures.

Every read scans a bounded number of rows, and none delays a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from homing.model import (
    PART_TRIED,
    Attempt,
    Cause,
    Delivery,
    Endpoint,
    State,
    Status,
    Subscription,
    Transition,
)
from homing.policy.bulk import Counted
from homing.policy.match import type_matches
from homing.ports import CauseRow, DeliveryFilter, DeliveryRow, EventRow, FleetView, Lease, Ledger
from homing.ports.views import (
    AttemptCursor,
    AttemptFilter,
    Counts,
    EndpointSort,
    EventSummary,
    Expiring,
    Rollup,
    StoreFigures,
)
from homing.store import attempts, deliveries, erasures, leases, replays, rollups, rows, search
from homing.store.deliveries import SCAN_MAX
from homing.store.tx import Db, Row, Tx, transaction

ENDPOINTS_SCAN_MAX = 5_000  # endpoints that are sorted at a time
TOP_ID = (1 << 63) - 1  # above every id
LEDGER_ROWS_MAX = 100_000  # pending rows counted for the ledger
PAGE_BYTES_MAX = 4 * 1024 * 1024  # of event data on one page, unless a single event has more
# Of one delivery, which has some 300 attempts, and about 90 more for each hour of a sender outage.
ATTEMPTS_MAX = 1_000


def _page(
    scanned: list[Row], *, scan_limit: int, limit: int, keep: Callable[[Row], bool]
) -> tuple[list[Row], int | None]:
    """The rows of the page, and where the next page begins. A row begins with its id."""
    kept = [row for row in scanned if keep(row)]
    if len(kept) > limit:
        return kept[:limit], kept[limit - 1][0]
    return kept, scanned[-1][0] if len(scanned) == scan_limit else None


class Views:
    """``ViewStore`` on a database."""

    def __init__(self, db: Db) -> None:
        self._db = db

    # --- events -----------------------------------------------------------------------------

    @transaction(view=True)
    async def events(
        self,
        tx: Tx,
        *,
        tenant: str | None,
        event_type: str | None,
        before_id: int | None,
        limit: int,
    ) -> tuple[list[EventRow], int | None]:
        hidden = await erasures.being_erased(tx)

        def keep(row: Row) -> bool:
            if tenant is not None and row[1] != tenant:
                return False
            if erasures.covers(hidden, row[1], row[4]):
                return False
            return event_type is None or type_matches(event_type, row[2])

        scan_limit = _scan_limit(limit, passes_over=tenant is not None or event_type is not None)
        scanned = await tx.all("view_events", before_id=_before(before_id), scan_limit=scan_limit)
        page, cursor = _page(scanned, scan_limit=scan_limit, limit=limit, keep=keep)
        fitting = _that_fit(page)
        if len(fitting) < len(page):
            cursor = fitting[-1][0]
        whole = await tx.all("view_events_whole", ids=[row[0] for row in fitting])
        return [_event_row(row) for row in whole], cursor

    @transaction(view=True)
    async def event(self, tx: Tx, key: str, *, tenant: str) -> EventRow | None:
        row = await tx.one("view_event", tenant=tenant, key=key)
        if row is None or erasures.covers(await erasures.being_erased(tx), tenant, row[-1]):
            return None
        return _event_row(row[:-1])

    @transaction(view=True)
    async def event_key(self, tx: Tx, event_id: int) -> str:
        row = await tx.one("event_key_of", id=event_id)
        return "" if row is None else str(row[0])

    @transaction(view=True)
    async def event_deliveries(self, tx: Tx, event_id: int, *, limit: int) -> list[DeliveryRow]:
        return await _with_last_failures(tx, await deliveries.of_event(tx, event_id, limit=limit))

    # --- subscriptions and endpoints --------------------------------------------------------

    @transaction(view=True)
    async def subscriptions(
        self, tx: Tx, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[Subscription], int | None]:
        before = _before(before_id)
        scan_limit = _scan_limit(limit, passes_over=tenant is None)
        if tenant is None:
            scanned = await tx.all("view_subscriptions", before_id=before, scan_limit=scan_limit)
        else:
            scanned = await tx.all(
                "view_subscriptions_of_tenant",
                tenant=tenant,
                before_id=before,
                scan_limit=scan_limit,
            )
        hidden = await erasures.being_erased(tx)

        def keep(row: Row) -> bool:
            return _is_living(row) and row[1] not in hidden

        page, cursor = _page(scanned, scan_limit=scan_limit, limit=limit, keep=keep)
        return [rows.subscription(row) for row in page], cursor

    @transaction(view=True)
    async def subscriptions_to(self, tx: Tx, endpoint_id: int, *, limit: int) -> list[Subscription]:
        found = await tx.all("view_subscriptions_to", endpoint_id=endpoint_id, limit=limit)
        return [rows.subscription(row) for row in found]

    @transaction(view=True)
    async def subscription(self, tx: Tx, subscription_id: int) -> Subscription | None:
        row = await tx.one("subscription_by_id", id=subscription_id)
        return rows.subscription(row) if row and await _is_shown(tx, row[1]) else None

    @transaction(view=True)
    async def refused_endpoints(self, tx: Tx, *, since: int, limit: int) -> list[Endpoint]:
        found = await tx.all("view_endpoints_refused", since=since, limit=limit)
        return await _without_hidden(tx, [rows.endpoint(row) for row in found])

    @transaction(view=True)
    async def endpoints(
        self, tx: Tx, *, tenant: str | None, state: State | None, before_id: int | None, limit: int
    ) -> tuple[list[Endpoint], int | None]:
        hidden = await erasures.being_erased(tx)

        def keep(row: Row) -> bool:
            if row[2] in hidden:
                return False
            return (tenant is None or row[2] == tenant) and (state is None or row[6] == state)

        before = _before(before_id)
        scan_limit = _scan_limit(limit, passes_over=tenant is not None or state is not None)
        if state is not None and state is not State.ENABLED:
            scanned = await tx.all(
                "view_endpoints_held",
                state=state.value,
                before_id=before,
                scan_limit=scan_limit,
            )
        elif tenant is not None and await _has_few_endpoints(tx, tenant):
            scanned = await tx.all(
                "view_endpoints_of_tenant",
                tenant=tenant,
                before_id=before,
                scan_limit=scan_limit,
            )
        else:
            scanned = await tx.all("view_endpoints", before_id=before, scan_limit=scan_limit)
        page, cursor = _page(scanned, scan_limit=scan_limit, limit=limit, keep=keep)
        return [rows.endpoint(row) for row in page], cursor

    @transaction(view=True)
    async def endpoint(self, tx: Tx, endpoint_id: int) -> Endpoint | None:
        row = await tx.one("view_endpoint", id=endpoint_id)
        return rows.endpoint(row) if row and await _is_shown(tx, row[2]) else None

    @transaction(view=True)
    async def waiting(self, tx: Tx, endpoint_id: int, *, limit: int) -> int:
        row = await tx.one("view_waiting", endpoint_id=endpoint_id, limit=limit)
        return int(row[0]) if row else 0

    @transaction(view=True)
    async def transitions(
        self, tx: Tx, endpoint_id: int, *, before_id: int | None, limit: int
    ) -> tuple[list[Transition], int | None]:
        scan_limit = _scan_limit(limit, passes_over=False)
        scanned = await tx.all(
            "view_transitions",
            endpoint_id=endpoint_id,
            before_id=_before(before_id),
            scan_limit=scan_limit,
        )
        page, cursor = _page(scanned, scan_limit=scan_limit, limit=limit, keep=_any)
        return [rows.transition(row) for row in page], cursor

    # --- deliveries -------------------------------------------------------------------------

    @transaction(view=True)
    async def deliveries(
        self, tx: Tx, conditions: DeliveryFilter, *, before_id: int | None, limit: int
    ) -> tuple[list[DeliveryRow], int | None]:
        before = _before(before_id)
        few = await deliveries.few_endpoints(tx, conditions)
        if few is None:
            page, cursor = await deliveries.page(tx, conditions, before_id=before, limit=limit)
        else:
            page, cursor = await deliveries.page_of_tenant(
                tx, few, conditions, before_id=before, limit=limit
            )
        return await _with_last_failures(tx, await _shown(tx, page)), cursor

    @transaction(view=True)
    async def pending_groups(self, tx: Tx, conditions: DeliveryFilter, *, limit: int) -> Counted:
        return await replays.pending_groups(tx, conditions, limit=limit)

    @transaction(view=True)
    async def delivery(self, tx: Tx, delivery_id: int) -> DeliveryRow | None:
        found = await tx.all("deliveries_whole", ids=[delivery_id])
        page = await _shown(tx, [deliveries.delivery_row(row) for row in found])
        page = await _with_last_failures(tx, page)
        return page[0] if page else None

    @transaction(view=True)
    async def in_order(self, tx: Tx, delivery_id: int) -> tuple[Delivery, int | None] | None:
        row = await tx.one("order_of", id=delivery_id)
        return None if row is None else (rows.pending(row), row[rows.PENDING_WIDTH])

    @transaction(view=True)
    async def deliveries_by_id(self, tx: Tx, ids: Sequence[int]) -> dict[int, DeliveryRow]:
        found = await tx.all("deliveries_whole", ids=list(ids))
        page = await _shown(tx, [deliveries.delivery_row(row) for row in found])
        return {it.delivery.id: it for it in page}

    @transaction(view=True)
    async def attempts(self, tx: Tx, delivery_id: int) -> list[Attempt]:
        return await attempts.of_delivery(tx, delivery_id, limit=ATTEMPTS_MAX)

    @transaction(view=True)
    async def endpoint_attempts(
        self,
        tx: Tx,
        endpoint_id: int,
        conditions: AttemptFilter,
        *,
        cursor: AttemptCursor | None,
        limit: int,
    ) -> tuple[list[Attempt], AttemptCursor | None]:
        return await attempts.page(tx, endpoint_id, conditions, cursor=cursor, limit=limit)

    @transaction(view=True)
    async def attempts_by_number(
        self, tx: Tx, wanted: Sequence[tuple[int, int]]
    ) -> dict[tuple[int, int], Attempt]:
        return await attempts.by_number(tx, wanted)

    # --- causes -----------------------------------------------------------------------------

    @transaction(view=True)
    async def causes(
        self,
        tx: Tx,
        *,
        tenant: str | None,
        endpoint_id: int | None,
        is_open: bool | None,
        before_id: int | None,
        limit: int,
    ) -> tuple[list[CauseRow], int | None]:
        hidden = await erasures.being_erased(tx)

        def keep(row: Row) -> bool:
            cause = rows.cause(row)
            right = is_open is None or is_open == (cause.closed_at is None)
            return right and tenant in {None, cause.tenant} and cause.tenant not in hidden

        at: dict[str, object] = {"before_id": _before(before_id)}
        if endpoint_id is not None:
            name, at["endpoint_id"], whole = "view_causes_of_endpoint", endpoint_id, False
        elif is_open and tenant is not None:
            name, at["tenant"], whole = "view_causes_open_of_tenant", tenant, True
        elif is_open:
            name, whole = "view_causes_open", True
        else:
            name, whole = "view_causes", tenant is None and is_open is None
        scan_limit = _scan_limit(limit, passes_over=not whole)
        scanned = await tx.all(name, **at, scan_limit=scan_limit)
        page, cursor = _page(scanned, scan_limit=scan_limit, limit=limit, keep=keep)
        return [_cause_row(row) for row in page], cursor

    @transaction(view=True)
    async def open_causes(self, tx: Tx, endpoint_ids: Sequence[int]) -> dict[int, list[Cause]]:
        found: dict[int, list[Cause]] = {}
        for row in await tx.all("view_open_causes", endpoint_ids=list(endpoint_ids)):
            cause = rows.cause(row)
            found.setdefault(cause.endpoint_id, []).append(cause)
        return found

    # --- search -----------------------------------------------------------------------------

    @transaction(view=True)
    async def events_by_key(
        self, tx: Tx, key: str, *, tenant: str | None, limit: int
    ) -> tuple[list[EventSummary], bool]:
        return await search.events_by_key(tx, key, tenant=tenant, limit=limit)

    @transaction(view=True)
    async def events_by_field(
        self, tx: Tx, hashes: Sequence[bytes], *, tenant: str | None, limit: int
    ) -> list[EventSummary]:
        return await search.events_by_field(tx, hashes, tenant=tenant, limit=limit)

    @transaction(view=True)
    async def endpoints_by_url(
        self, tx: Tx, url: str, *, tenant: str | None, limit: int
    ) -> tuple[list[Endpoint], bool]:
        found, complete = await search.endpoints_by_url(tx, url, tenant=tenant, limit=limit)
        return await _without_hidden(tx, found), complete

    @transaction(view=True)
    async def endpoints_by_part(
        self, tx: Tx, text: str, *, tenant: str | None, limit: int
    ) -> tuple[list[Endpoint], bool]:
        found, complete = await search.endpoints_by_part(tx, text, tenant=tenant, limit=limit)
        return await _without_hidden(tx, found), complete

    # --- counts -----------------------------------------------------------------------------

    @transaction(view=True)
    async def fleet(self, tx: Tx) -> FleetView:
        row = await tx.one("database_now")
        assert row is not None
        members = [leases.member(it) for it in await tx.all("processes")]
        held = tuple(Lease(*it) for it in await tx.all("leases"))
        return FleetView(row[0], tuple(it for it in members if it.expires_at > row[0]), held)

    @transaction(view=True)
    async def ledger(
        self, tx: Tx, *, tenant: str | None, scan_limit: int | None = None
    ) -> list[Ledger]:
        count_max = LEDGER_ROWS_MAX if scan_limit is None else scan_limit
        bound = count_max + 1
        if tenant is None:
            found = await tx.all("view_ledger", limit=bound)
        else:
            found = await tx.all("view_ledger_of_tenant", tenant=tenant, limit=bound)
        return [_ledger(row, count_max) for row in found]

    @transaction(view=True)
    async def pending_of(self, tx: Tx, tenant: str) -> int:
        row = await tx.one("view_pending_of_tenant", tenant=tenant)
        return int(row[0]) if row else 0

    @transaction(view=True)
    async def subscriptions_of(self, tx: Tx, tenant: str, *, limit: int) -> int:
        row = await tx.one("view_subscription_count", tenant=tenant, limit=limit)
        return int(row[0]) if row else 0

    # --- the dashboard ----------------------------------------------------------------------

    @transaction(view=True)
    async def rollups(
        self, tx: Tx, *, endpoint_id: int | None, tenant: str | None, since: int, until: int
    ) -> list[Rollup]:
        number = endpoint_id or 0
        whose = tenant or "" if endpoint_id is None else ""
        found = await rollups.read(tx, [number], whose, since=since, until=until)
        return found.get(number, [])

    @transaction(view=True)
    async def sparks(
        self, tx: Tx, endpoint_ids: Sequence[int], *, since: int, until: int
    ) -> dict[int, list[Rollup]]:
        return await rollups.read(tx, endpoint_ids, "", since=since, until=until)

    @transaction(view=True)
    async def figures(self, tx: Tx, *, limit: int) -> StoreFigures:
        pending = await tx.one("board_unfinished")
        held: dict[str, int] = dict(await tx.all("board_held", tenant=None, limit=limit))
        return StoreFigures(
            pending=pending[0] if pending else 0,
            disabled=held.get(State.DISABLED.value, 0),
            frozen=held.get(State.FROZEN.value, 0),
        )

    @transaction(view=True)
    async def counts(self, tx: Tx, *, tenant: str | None, limit: int) -> Counts:
        enabled = await tx.one("board_enabled", tenant=tenant, limit=limit)
        held: dict[str, int] = dict(await tx.all("board_held", tenant=tenant, limit=limit))
        if tenant is None:
            found = await tx.all("board_pending", limit=limit)
        else:
            found = await tx.all("board_pending_of_tenant", tenant=tenant, limit=limit)
        parts: dict[int, int] = dict(found)
        failing = parts.pop(PART_TRIED, 0)
        return Counts(
            enabled=enabled[0] if enabled else 0,
            disabled=held.get(State.DISABLED.value, 0),
            frozen=held.get(State.FROZEN.value, 0),
            waiting=sum(parts.values()),
            failing=failing,
            limit=limit,
        )

    @transaction(view=True)
    async def expiring(
        self, tx: Tx, *, tenant: str | None, before: int, limit: int
    ) -> list[Expiring]:
        found = await tx.all("board_expiring", tenant=tenant, before=before, limit=limit)
        hidden = await erasures.being_erased(tx)
        return [
            Expiring(number, url, whose, State(state), count, first_at)
            for number, url, whose, state, count, first_at in found
            if whose not in hidden
        ]

    @transaction(view=True)
    async def find_endpoints(
        self,
        tx: Tx,
        *,
        tenant: str | None,
        state: State | None,
        text: str,
        sort: EndpointSort,
        offset: int,
        limit: int,
    ) -> tuple[list[Endpoint], bool]:
        found = await tx.all(
            "board_endpoints",
            tenant=tenant,
            state=None if state is None else state.value,
            text=text.lower(),
            scan_limit=ENDPOINTS_SCAN_MAX,
            sort=sort.value,
            limit=limit + 1,
            offset=offset,
        )
        page = [rows.endpoint(row) for row in found[:limit]]
        return await _without_hidden(tx, page), len(found) > limit

    @transaction(view=True)
    async def waiting_of(
        self, tx: Tx, endpoint_ids: Sequence[int], *, limit: int
    ) -> dict[int, int]:
        return dict(await tx.all("board_waiting", ids=list(endpoint_ids), limit=limit))

    @transaction(view=True)
    async def first_expiry_of(self, tx: Tx, endpoint_ids: Sequence[int]) -> dict[int, int]:
        found = await tx.all("board_first_expiry", ids=list(endpoint_ids))
        return {row[0]: row[1] for row in found if row[1] is not None}

    @transaction(view=True)
    async def endpoints_by_id(self, tx: Tx, endpoint_ids: Sequence[int]) -> dict[int, Endpoint]:
        found = await tx.all("board_endpoints_by_id", ids=list(endpoint_ids))
        return {row[0]: rows.endpoint(row) for row in found}

    @transaction(view=True)
    async def failing(self, tx: Tx, *, tenant: str | None, limit: int) -> list[CauseRow]:
        bounds = {"scan_limit": SCAN_MAX, "limit": limit}
        if tenant is None:
            found = await tx.all("board_failing", **bounds)
        else:
            found = await tx.all("board_failing_of_tenant", tenant=tenant, **bounds)
        return await _shown_causes(tx, found)

    @transaction(view=True)
    async def ended_causes(
        self, tx: Tx, *, tenant: str | None, since: int, limit: int
    ) -> list[CauseRow]:
        if tenant is None:
            found = await tx.all("board_ended", since=since, limit=limit)
        else:
            found = await tx.all("board_ended_of_tenant", tenant=tenant, since=since, limit=limit)
        return await _shown_causes(tx, found)

    @transaction(view=True)
    async def store_bytes(self, tx: Tx) -> int:
        row = await tx.one("store_bytes")
        assert row is not None
        return int(row[0])

    @transaction(view=True)
    async def ping(self, tx: Tx) -> None:
        await tx.one("ping")


def _before(before_id: int | None) -> int:
    return TOP_ID if before_id is None else before_id


def _scan_limit(limit: int, *, passes_over: bool) -> int:
    """How many rows a page scans: one more than it shows, or more if conditions exclude some."""
    return max(limit + 1, SCAN_MAX) if passes_over else limit + 1


# While a tenant is erased as a whole, all its objects are hidden, and the events that it had then.


async def _is_shown(tx: Tx, tenant: str) -> bool:
    return tenant not in await erasures.being_erased(tx)


async def _without_hidden(tx: Tx, found: list[Endpoint]) -> list[Endpoint]:
    hidden = await erasures.being_erased(tx)
    return [it for it in found if it.tenant not in hidden] if hidden else found


async def _shown(tx: Tx, page: list[DeliveryRow]) -> list[DeliveryRow]:
    hidden = await erasures.being_erased(tx)
    if not hidden:
        return page
    return [it for it in page if it.delivery.tenant not in hidden]


async def _shown_causes(tx: Tx, found: list[Row]) -> list[CauseRow]:
    hidden = await erasures.being_erased(tx)
    causes = [_cause_row(row) for row in found]
    return [it for it in causes if it.cause.tenant not in hidden]


def _any(_: Row) -> bool:
    return True


def _is_living(row: Row) -> bool:
    return row[15] is None


async def _has_few_endpoints(tx: Tx, tenant: str) -> bool:
    row = await tx.one("view_endpoint_count", tenant=tenant, limit=SCAN_MAX)
    return row is not None and row[0] < SCAN_MAX


async def _with_last_failures(tx: Tx, page: list[DeliveryRow]) -> list[DeliveryRow]:
    """The same rows, each with the failure of its last attempt."""
    failing = [
        it.delivery.id for it in page if it.delivery.attempts and it.status is not Status.DELIVERED
    ]
    if not failing:
        return page
    found = {row[0]: row[1:] for row in await tx.all("view_last_failures", ids=failing)}
    return [
        replace(it, last_failure=rows.last_failure(found[it.delivery.id]))
        if it.delivery.id in found
        else it
        for it in page
    ]


def _cause_row(row: Row) -> CauseRow:
    return CauseRow(rows.cause(row), row[-2], State(row[-1]))


def _that_fit(page: list[Row]) -> list[Row]:
    """The first rows whose data fits on a page together; at least one."""
    size = 0
    for count, row in enumerate(page):
        size += row[3]
        if size > PAGE_BYTES_MAX and count:
            return page[:count]
    return page


def _event_row(row: Row) -> EventRow:
    return EventRow(rows.event(row), deliveries=row[rows.EVENT_WIDTH - 2])


def _ledger(row: Row, scan_limit: int) -> Ledger:
    tenant, accepted, delivered, dropped, cancelled, superseded, pending, scanned = row
    finished = delivered + dropped + cancelled + superseded
    counted = scanned <= scan_limit
    return Ledger(
        tenant=tenant,
        accepted=accepted,
        delivered=delivered,
        pending=pending if counted else accepted - finished,
        dropped=dropped,
        cancelled=cancelled,
        superseded=superseded,
        counted=counted,
    )
