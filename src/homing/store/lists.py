"""Lists of deliveries: which walks a page takes, and where the next one begins.

``sql/deliveries.sql`` holds the statement and says why no delivery is missed or doubled.
"""

from __future__ import annotations

from msgspec import Struct

from homing.model import Delivery, Reason, Status
from homing.ports import DeliveryFilter, DeliveryRow
from homing.store.rows import HISTORY_WIDTH
from homing.store.selection import id_range, selection_values
from homing.store.tx import Row, Tx

LOOK = 2_000  # rows that a page looks at, on each walk, where conditions pass over some

_UNDELIVERED = frozenset({Status.DROPPED, Status.CANCELLED})


class Walks(Struct, frozen=True):
    """The walks that a page takes."""

    pending_by_id: bool = False
    pending_by_endpoint: bool = False
    history_by_id: bool = False
    history_by_endpoint: bool = False
    history_by_status: bool = False
    replays: bool = False


def delivery_row(row: Row) -> DeliveryRow:
    """From the columns of ``history``, then the event's key and type, and the URL."""
    return DeliveryRow(
        delivery=Delivery(*(*row[:14], row[14] != 0)),
        status=Status(row[15]),
        reason=None if row[16] is None else Reason(row[16]),
        finished_at=row[17],
        arrived=row[18] != 0,
        event_key=row[HISTORY_WIDTH],
        event_type=row[HISTORY_WIDTH + 1],
        url=row[HISTORY_WIDTH + 2],
    )


def sides(conditions: DeliveryFilter) -> tuple[bool, bool]:
    """Whether what is asked for can be pending, and whether it can be in history."""
    pending = conditions.status in {None, Status.PENDING}
    history = conditions.status is not Status.PENDING and conditions.expires_before is None
    return pending, history


def choose(conditions: DeliveryFilter) -> Walks:
    """The shortest walks that meet all rows of these conditions."""
    pending, history = sides(conditions)
    if conditions.event_id is not None:
        return Walks(pending_by_id=pending, history_by_id=history, replays=True)
    if conditions.endpoint_id is not None:
        return Walks(pending_by_endpoint=pending, history_by_endpoint=history)
    if conditions.status in _UNDELIVERED:
        return Walks(history_by_status=history)
    return Walks(pending_by_id=pending, history_by_id=history)


def _passes_over(conditions: DeliveryFilter) -> bool:
    """Whether the walks meet rows that do not belong on the page."""
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
        )
    ):
        return True
    if conditions.status is Status.DELIVERED:
        return True
    return conditions.endpoint_id is not None and conditions.status in _UNDELIVERED


def _looks(conditions: DeliveryFilter, limit: int) -> tuple[int, ...]:
    """How far to look: one row more than is shown; where rows are passed over, far if need be."""
    if not _passes_over(conditions):
        return (limit + 1,)
    return (min(4 * limit + 1, LOOK), max(limit + 1, LOOK))


async def deliveries(
    tx: Tx, conditions: DeliveryFilter, *, before_id: int, limit: int
) -> tuple[list[DeliveryRow], int | None]:
    """A page, and the ``before_id`` of the next.

    It is put together from looks that follow one another as pages do.
    """
    before_id = min(before_id, id_range(conditions)[1])
    last_id = None
    if conditions.event_id is not None:
        row = await tx.one("event_last_id", id=conditions.event_id)
        if row is None:
            return [], None
        last_id = int(row[0])
    page: list[DeliveryRow] = []
    cursor: int | None = before_id
    for look in _looks(conditions, limit):
        room = limit - len(page)
        if cursor is None or not room:
            break
        values = _values(conditions, before_id=cursor, last_id=last_id, look=look)
        found = await tx.all("deliveries", **values, limit=room + 1)
        low = found[0][0]
        page += [delivery_row(row[1:]) for row in found[:room] if row[1] is not None]
        cursor = page[-1].delivery.id if len(found) > room else low
    return page, cursor


def _values(
    conditions: DeliveryFilter, *, before_id: int, last_id: int | None, look: int
) -> dict[str, object]:
    """What the statement needs for one look; ``last_id`` is the last of an event's own range."""
    walks = choose(conditions)
    from_id = replays_from_id = id_range(conditions)[0]
    until_id = before_id
    if conditions.event_id is not None and last_id is not None:
        until_id = min(before_id, last_id + 1)
        replays_from_id = max(from_id, last_id + 1)
        from_id = max(from_id, conditions.event_id + 1)
    return {
        **{name: look if getattr(walks, name) else 0 for name in Walks.__struct_fields__},
        "look": look,
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
