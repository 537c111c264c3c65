"""The entries of streams: what a publish appends, what retention and erasures remove."""

from __future__ import annotations

from collections.abc import Sequence

from homing.model import id_floor
from homing.ports import NewEvent
from homing.store.tx import Row, Tx

STREAMS_AT_ONCE = 100  # that one step of retention looks at
_END = (1 << 63) - 1  # above every id


async def advance(tx: Tx, events: Sequence[NewEvent]) -> list[Row]:
    """The entries of these events in the streams they match, which stay locked until the commit."""
    wanted: dict[int, list[int]] = {}
    for new in events:
        for subscription_id in new.pulled:
            wanted.setdefault(subscription_id, []).append(new.event.id)
    counts = [(len(ids), subscription_id) for subscription_id, ids in sorted(wanted.items())]
    entries: list[Row] = []
    for subscription_id, position in await tx.many("pull_advance", counts):
        ids = wanted[subscription_id]
        first = position - len(ids) + 1
        entries += [(subscription_id, first + n, event_id) for n, event_id in enumerate(ids)]
    return entries


async def trim(tx: Tx, after_id: int, *, before: int, limit: int) -> tuple[int, int | None]:
    """Remove old entries of the next streams, and all entries of deleted subscriptions.

    Returns the number of removed entries, and the subscription to continue after.
    """
    streams = await tx.all("pull_walk", after_id=after_id, limit=STREAMS_AT_ONCE)
    gone, bound_id = 0, id_floor(before)
    for subscription_id, removed, position, deleted_at in streams:
        if gone >= limit:
            return gone, after_id
        bound = bound_id if deleted_at is None else _END
        upto = await _trim_one(tx, subscription_id, removed, bound_id=bound, limit=limit - gone)
        if deleted_at == 0 and upto >= position:  # The row of the subscription is gone.
            await tx.all("pull_readers_remove", subscription_id=subscription_id)
            await tx.all("pull_stream_remove", subscription_id=subscription_id)
        gone, after_id = gone + upto - removed, subscription_id
    return gone, after_id if len(streams) == STREAMS_AT_ONCE else None


async def _trim_one(
    tx: Tx, subscription_id: int, removed: int, *, bound_id: int, limit: int
) -> int:
    """Remove the oldest entries of a stream; returns the position up to which they are gone."""
    stream = {"subscription_id": subscription_id}
    upto = removed
    for position, event_id in await tx.all("pull_old", **stream, removed=removed, limit=limit):
        if event_id >= bound_id:
            break
        upto = position
    if upto > removed:
        await tx.all("pull_trim", **stream, upto=upto)
        await tx.all("pull_trimmed", **stream, upto=upto)
    return upto


async def erase(tx: Tx, tenant: str, *, limit: int) -> bool:
    """Remove some rows of a tenant's streams and subscriptions; returns whether all are gone."""
    for (subscription_id,) in await tx.all("pull_streams_of", tenant=tenant, limit=STREAMS_AT_ONCE):
        gone = await tx.all("pull_erase", subscription_id=subscription_id, limit=limit)
        limit -= len(gone)
        if limit <= 0:
            return False
        for statement in ("pull_readers_remove", "pull_subscription_remove", "pull_stream_remove"):
            await tx.all(statement, subscription_id=subscription_id)
    return await tx.one("pull_streams_of", tenant=tenant, limit=1) is None
