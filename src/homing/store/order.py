"""Order by key (``policy.order``): which deliveries are blocked, and what unblocks the next one.

A delivery of an event with a key has that key in its pending row, in an index of its own
(``pending_order``: subscription, key, place). A publish for a subscription with an order looks
whether the key has an unfinished delivery; if so, the new one is blocked. The transaction that
finishes a delivery unblocks the next one of its key.

A delivery that was cancelled or erased may still be in flight, which only the owner of its bucket
knows. So those transactions leave a row in ``key_release`` instead. It blocks the key like an
unfinished delivery, until the owner has settled the attempt, or knows that there is none.

On PostgreSQL a publish must not overlook a delivery that is being finished, nor a settle one that
is being published. Both lock the classes of their keys first, in one statement, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from homing.model import Delivery, State
from homing.policy import order
from homing.ports import KeyRelease, NewEvent
from homing.store import rows, tenant_moves
from homing.store.tx import Row, Tx

Key = tuple[int, str]  # subscription, key


class Freed(NamedTuple):
    """Why a key may be free: when its delivery was finished, and whether that was dropped."""

    at: int
    dropped: bool = False


def key_of(delivery: Delivery) -> Key:
    return delivery.subscription_id, delivery.order_key


async def hold(tx: Tx, keys: Iterable[Key]) -> None:
    """Let no other transaction publish or finish deliveries of these keys before the commit."""
    classes = sorted({order.lock_class(*key) for key in keys})
    if classes:
        await tx.all("order_hold", classes=classes)


async def place(tx: Tx, events: Sequence[NewEvent]) -> dict[int, Delivery]:
    """The new deliveries that are blocked, with their places, by id; the keys stay locked."""
    asked = dict.fromkeys(
        key_of(it) for new in events for it in new.deliveries if it.id in new.ordered
    )
    deliveries = [it for new in events for it in new.deliveries if it.id in new.ordered]
    return await _place(tx, list(asked), deliveries)


async def place_replays(tx: Tx, deliveries: Sequence[Delivery]) -> dict[int, Delivery]:
    """The replays that are blocked, by id: each goes behind everything pending of its key."""
    return await _place(tx, list(dict.fromkeys(map(key_of, deliveries))), deliveries)


async def _place(
    tx: Tx, keys: Sequence[Key], deliveries: Sequence[Delivery]
) -> dict[int, Delivery]:
    await hold(tx, keys)
    last: dict[Key, int] = {}  # of keys with unfinished deliveries: their last places
    for subscription_id, key, place_, release in await tx.many("order_last", keys):
        if place_ is not None or release is not None:
            last[subscription_id, key] = place_ or 0
    blocked: dict[int, Delivery] = {}
    for it in deliveries:
        key_ = key_of(it)
        if key_ in last:
            last[key_] = order.next_place(it.id, last[key_])
            blocked[it.id] = replace(it, order_seq=last[key_])
        else:
            last[key_] = 0
    return blocked


async def unblock(tx: Tx, freed: Mapping[Key, Freed]) -> list[Delivery]:
    """Unblock the next delivery of each key that has no other unfinished one."""
    if not freed:
        return []
    unblocked: list[Delivery] = []
    for row in await tx.many("order_next", sorted(freed)):
        delivery = rows.pending(row)
        at, dropped = freed[key_of(delivery)]
        enabled = row[rows.PENDING_WIDTH] == State.ENABLED
        unblocked.append(order.unblocked(delivery, now=at, enabled=enabled, after_drop=dropped))
    return await write(tx, unblocked)


async def write(
    tx: Tx, unblocked: Iterable[Delivery], turns: Mapping[int, int] | None = None
) -> list[Delivery]:
    """Write deliveries that were unblocked; a cleanup job may have moved them to a new endpoint.

    ``turns``: by id, where a delivery stands in the order of acceptance, if not at its end.
    """
    by_id = {it.id: it for it in unblocked}
    known = turns or {}
    values: list[Row] = [
        (it.part, it.due_at, it.expires_at, it.unblocked_at, known.get(it.id, 0), it.id)
        for it in sorted(by_id.values(), key=lambda it: it.id)
    ]
    return [
        replace(by_id[id_], bucket=bucket, endpoint_id=endpoint_id)
        for id_, bucket, endpoint_id in await tx.many("order_unblock", values)
    ]


# --- deliveries that end outside a settle ---------------------------------------------------


async def release_later(tx: Tx, ended: Iterable[Delivery]) -> None:
    """Note that these were cancelled or erased: their attempts may still be in flight."""
    found: list[Row] = [
        (it.id, it.bucket, it.endpoint_id, it.subscription_id, it.order_key)
        for it in ended
        if it.order_key and not it.order_seq
    ]
    if found:
        await tx.insert("key_release", found)


async def release_settled(tx: Tx, ids: Sequence[int]) -> set[Key]:
    """The keys that wait for these deliveries, whose attempts are over; the notes are removed."""
    found = await tx.all("key_release_remove", ids=list(ids)) if ids else []
    return {(subscription_id, key) for subscription_id, key in found}


async def releases(tx: Tx, limit: int) -> list[KeyRelease]:
    return [KeyRelease(*row) for row in await tx.all("key_releases", limit=limit)]


async def release(tx: Tx, found: Sequence[KeyRelease], *, now: int) -> list[Delivery]:
    """Unblock the keys that wait for these deliveries, which are not in flight."""
    for endpoint_id in sorted({it.endpoint_id for it in found}):
        owner = await tx.one("endpoint_tenant", id=endpoint_id)
        if owner is not None:
            await tenant_moves.hold(tx, owner[0])
    await hold(tx, [(it.subscription_id, it.order_key) for it in found])
    keys = await release_settled(tx, [it.delivery_id for it in found])
    return await unblock(tx, dict.fromkeys(keys, Freed(now)))


async def unblock_all(tx: Tx, ids: Sequence[int], *, now: int) -> int:
    """Unblock those of these deliveries that are blocked: their subscription has no order now."""
    found = [
        (rows.pending(row), row[rows.PENDING_WIDTH])
        for row in await tx.all("order_blocked", ids=list(ids))
    ]
    await hold(tx, [key_of(it) for it, _ in found])
    free = [
        order.unblocked(it, now=now, enabled=state == State.ENABLED, after_drop=False)
        for it, state in found
    ]
    return len(await write(tx, free))
