"""Lists of deliveries: which index scans (walks) a page needs, and where the next page begins.

``sql/deliveries.sql`` has the statements and says why no delivery is missed or listed twice.

The deliveries of one tenant, or of one subscription, are found through the tenant's endpoints.
There is no index by tenant: it would make every delivery of every tenant slower. The newest rows of
a tenant with few endpoints are at the ends of their index ranges, however many rows other tenants
have. One statement finds the ids, at one moment; a second one reads the rows that are shown,
pending or in history, so nothing is missed or listed twice here either.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from msgspec import Struct

from homing.model import Reason, Status
from homing.ports import DeliveryFilter, DeliveryRow
from homing.store import rows
from homing.store.rows import HISTORY_WIDTH
from homing.store.selection import id_range, selection_values
from homing.store.tx import Row, Tx

SCAN_MAX = 2_000  # rows that each walk of a page scans, if conditions exclude some
ENDPOINTS_MAX = 40  # of a tenant, to find its deliveries through its endpoints

_UNDELIVERED = frozenset({Status.DROPPED, Status.CANCELLED, Status.SUPERSEDED})


class Walks(Struct, frozen=True):
    """The walks of a page: which of them are used."""

    pending_by_id: bool = False
    pending_by_endpoint: bool = False
    history_by_id: bool = False
    history_by_endpoint: bool = False
    history_by_status: bool = False
    replays: bool = False


def delivery_row(row: Row) -> DeliveryRow:
    """A value from the columns of ``history``, then id and type of the event, URL, and key."""
    return DeliveryRow(
        delivery=rows.history_delivery(row),
        status=Status(row[15]),
        reason=None if row[16] is None else Reason(row[16]),
        finished_at=row[17],
        arrived=row[15] != "pending" and row[18] != 0,
        superseded_by=row[20] or 0,
        event_key=row[HISTORY_WIDTH],
        event_type=row[HISTORY_WIDTH + 1],
        url=row[HISTORY_WIDTH + 2],
        order_key=row[HISTORY_WIDTH + 3],
    )


def sides(conditions: DeliveryFilter) -> tuple[bool, bool]:
    """Whether these deliveries can be pending, and whether they can be in history."""
    pending = conditions.status in {None, Status.PENDING}
    history = conditions.status is not Status.PENDING and conditions.expires_before is None
    return pending, history


def choose(conditions: DeliveryFilter) -> Walks:
    """The shortest walks that include all rows of these conditions."""
    pending, history = sides(conditions)
    if conditions.event_id is not None:
        return Walks(pending_by_id=pending, history_by_id=history, replays=True)
    if conditions.endpoint_id is not None:
        return Walks(pending_by_endpoint=pending, history_by_endpoint=history)
    if conditions.status in _UNDELIVERED:
        return Walks(history_by_status=history)
    return Walks(pending_by_id=pending, history_by_id=history)


def _passes_over(conditions: DeliveryFilter) -> bool:
    """Whether the walks include rows that the conditions exclude."""
    if any(
        it is not None
        for it in (
            conditions.tenant,
            conditions.subscription_id,
            conditions.type,
            conditions.expires_before,
            conditions.event_id,
            conditions.event_key,
            conditions.reason,
            conditions.url,
            conditions.failure,
            conditions.code,
        )
    ):
        return True
    if conditions.status is Status.DELIVERED:
        return True
    return conditions.endpoint_id is not None and conditions.status in _UNDELIVERED


def _scan_limits(conditions: DeliveryFilter, limit: int) -> tuple[int, ...]:
    """How many rows to scan: one more than shown; if rows are excluded, up to ``SCAN_MAX``."""
    if not _passes_over(conditions):
        return (limit + 1,)
    return (min(4 * limit + 1, SCAN_MAX), max(limit + 1, SCAN_MAX))


async def page(
    tx: Tx, conditions: DeliveryFilter, *, before_id: int, limit: int
) -> tuple[list[DeliveryRow], int | None]:
    """A page, and the ``before_id`` of the next.

    It is put together from several scans, each of which begins where the last one ended.
    """
    before_id = min(before_id, id_range(conditions)[1])
    last_id = None
    if conditions.event_id is not None:
        row = await tx.one("event_last_id", id=conditions.event_id)
        if row is None:
            return [], None
        last_id = int(row[0])
    shown: list[DeliveryRow] = []
    cursor: int | None = before_id
    for scan_limit in _scan_limits(conditions, limit):
        room = limit - len(shown)
        if cursor is None or not room:
            break
        values = _values(conditions, before_id=cursor, last_id=last_id, scan_limit=scan_limit)
        found = await tx.all("deliveries", **values, limit=room + 1)
        low = found[0][0]
        shown += [delivery_row(row[1:]) for row in found[:room] if row[1] is not None]
        cursor = shown[-1].delivery.id if len(found) > room else low
    return shown, cursor


def _values(
    conditions: DeliveryFilter, *, before_id: int, last_id: int | None, scan_limit: int
) -> dict[str, object]:
    """The values of the statement for one scan; ``last_id`` ends an event's range of ids."""
    walks = choose(conditions)
    from_id = replays_from_id = id_range(conditions)[0]
    until_id = before_id
    if conditions.event_id is not None and last_id is not None:
        until_id = min(before_id, last_id + 1)
        replays_from_id = max(from_id, last_id + 1)
        from_id = max(from_id, conditions.event_id + 1)
    return {
        **{name: scan_limit if getattr(walks, name) else 0 for name in Walks.__struct_fields__},
        "scan_limit": scan_limit,
        "before_id": before_id,
        "from_id": from_id,
        "until_id": until_id,
        "replays_from_id": replays_from_id,
        **selection_values(conditions),
    }


async def of_event(tx: Tx, event_id: int, *, limit: int) -> list[DeliveryRow]:
    """The deliveries of one event, oldest first."""
    row = await tx.one("event_last_id", id=event_id)
    if row is None:
        return []
    found = await tx.all("deliveries_of_event", event_id=event_id, last_id=row[0], limit=limit)
    return [delivery_row(it) for it in found]


# --- of one tenant --------------------------------------------------------------------------


class Few(NamedTuple):
    """A tenant and the number of its endpoints."""

    tenant: str
    endpoints: int


async def few_endpoints(tx: Tx, conditions: DeliveryFilter) -> Few | None:
    """The tenant of these conditions, if it has few endpoints."""
    if conditions.endpoint_id is not None or conditions.event_id is not None:
        return None
    if conditions.status in _UNDELIVERED:
        return None
    tenant = conditions.tenant
    if tenant is None and conditions.subscription_id is not None:
        row = await tx.one("subscription_by_id", id=conditions.subscription_id)
        tenant = rows.subscription(row).tenant if row else None
    if tenant is None:
        return None
    row = await tx.one("view_endpoint_count", tenant=tenant, limit=ENDPOINTS_MAX + 1)
    return Few(tenant, row[0]) if row is not None and row[0] <= ENDPOINTS_MAX else None


async def page_of_tenant(
    tx: Tx, few: Few, conditions: DeliveryFilter, *, before_id: int, limit: int
) -> tuple[list[DeliveryRow], int | None]:
    """A page of a tenant's deliveries, and the ``before_id`` of the next."""
    skips = _skips_rows(conditions)
    scan_limit = max(limit + 1, SCAN_MAX // max(few.endpoints, 1)) if skips else limit + 1
    pending, history = sides(conditions)
    from_id, until_id = id_range(conditions)
    found = await tx.all(
        "deliveries_of_tenant",
        tenant=few.tenant,
        from_id=from_id,
        before_id=min(before_id, until_id),
        pending_scan_limit=scan_limit if pending else 0,
        history_scan_limit=scan_limit if history else 0,
    )
    ids, low = _known(found, scan_limit)
    if not skips:
        ids = ids[: limit + 1]
    chosen = await tx.all("deliveries_selected", ids=ids, **selection_values(conditions))
    page = [delivery_row(row) for row in chosen]
    if len(page) > limit:
        return page[:limit], page[limit - 1].delivery.id
    if not skips and len(ids) > limit:  # A delivery was removed meanwhile.
        return page, ids[limit]
    return page, low


def _known(found: list[Row], scan_limit: int) -> tuple[list[int], int | None]:
    """The ids above the scan limits of both sides, newest first, and the lowest such limit."""
    walks: dict[tuple[int, int], list[int]] = defaultdict(list)
    for endpoint_id, side, number in found:
        walks[endpoint_id, side].append(number)
    low = max((min(ids) for ids in walks.values() if len(ids) == scan_limit), default=None)
    known = {number for ids in walks.values() for number in ids if low is None or number >= low}
    return sorted(known, reverse=True), low


def _skips_rows(conditions: DeliveryFilter) -> bool:
    """Whether the walks include rows that the conditions exclude."""
    return (
        conditions.status is Status.DELIVERED
        or conditions.reason is not None
        or conditions.subscription_id is not None
        or conditions.event_key is not None
        or conditions.type is not None
        or conditions.url is not None
        or conditions.failure is not None
        or conditions.code is not None
        or conditions.expires_before is not None
    )
