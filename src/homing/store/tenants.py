"""The deliveries of one tenant, or of one subscription, through the tenant's endpoints.

There is no index by tenant: it would cost every delivery of everybody. A tenant with few endpoints
has its newest rows at the ends of their indexes, however many rows of others lie between. One
statement finds the ids, at one moment; a second one reads those that are shown, wherever they are
by then, so nothing is missed or doubled here either.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from homing.model import Status
from homing.ports import DeliveryFilter, DeliveryRow
from homing.store import lists, rows
from homing.store.selection import id_range, selection_values
from homing.store.tx import Row, Tx

ENDPOINTS_MAX = 40


class Few(NamedTuple):
    """A tenant and the number of its endpoints."""

    tenant: str
    endpoints: int


async def few_endpoints(tx: Tx, conditions: DeliveryFilter) -> Few | None:
    """The tenant whose endpoints are the shortest way to what is asked for, if there is one."""
    if conditions.endpoint_id is not None or conditions.event_id is not None:
        return None
    if conditions.status in {Status.DROPPED, Status.CANCELLED}:
        return None
    tenant = conditions.tenant
    if tenant is None and conditions.subscription_id is not None:
        row = await tx.one("subscription_by_id", id=conditions.subscription_id)
        tenant = rows.subscription(row).tenant if row else None
    if tenant is None:
        return None
    row = await tx.one("view_endpoint_count", tenant=tenant, limit=ENDPOINTS_MAX + 1)
    return Few(tenant, row[0]) if row is not None and row[0] <= ENDPOINTS_MAX else None


async def deliveries(
    tx: Tx, few: Few, conditions: DeliveryFilter, *, before_id: int, limit: int
) -> tuple[list[DeliveryRow], int | None]:
    """A page of a tenant's deliveries, and the ``before_id`` of the next."""
    picky = _is_picky(conditions)
    look = max(limit + 1, lists.LOOK // max(few.endpoints, 1)) if picky else limit + 1
    pending, history = lists.sides(conditions)
    from_id, until_id = id_range(conditions)
    found = await tx.all(
        "deliveries_of_tenant",
        tenant=few.tenant,
        from_id=from_id,
        before_id=min(before_id, until_id),
        pending_look=look if pending else 0,
        history_look=look if history else 0,
    )
    ids, low = _known(found, look)
    if not picky:
        ids = ids[: limit + 1]
    chosen = await tx.all("deliveries_selected", ids=ids, **selection_values(conditions))
    page = [lists.delivery_row(row) for row in chosen]
    if len(page) > limit:
        return page[:limit], page[limit - 1].delivery.id
    if not picky and len(ids) > limit:  # One of them has finished or gone meanwhile.
        return page, ids[limit]
    return page, low


def _known(found: list[Row], look: int) -> tuple[list[int], int | None]:
    """The ids that no side's bound hides others from, newest first, and the lowest of those."""
    walks: dict[tuple[int, int], list[int]] = defaultdict(list)
    for endpoint_id, side, number in found:
        walks[endpoint_id, side].append(number)
    low = max((min(ids) for ids in walks.values() if len(ids) == look), default=None)
    known = {number for ids in walks.values() for number in ids if low is None or number >= low}
    return sorted(known, reverse=True), low


def _is_picky(conditions: DeliveryFilter) -> bool:
    """Whether the walks meet rows that do not belong on the page."""
    return (
        conditions.status is Status.DELIVERED
        or conditions.reason is not None
        or conditions.subscription_id is not None
        or conditions.event_key is not None
        or conditions.type is not None
        or conditions.url is not None
        or conditions.expires_before is not None
    )
