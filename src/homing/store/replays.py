"""Replays: of one delivery, or of all that a stored job finds in history.

A replay is a new delivery of the same event to the present endpoint of the subscription. Its id is
outside the event's range of ids, so the table ``replay_link`` leads from the event to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from homing.errors import Gone, NotFound, StillPending, SubscriptionGone
from homing.model import Delivery, Finished, Status
from homing.ports import ReplayJob
from homing.store import rows
from homing.store.selection import id_range, selection_values
from homing.store.tx import Tx
from homing.store.writes import LedgerChange, add_to_ledger

RUNNING = "running"


async def replay_one(tx: Tx, delivery_id: int, *, new: Delivery, node: int) -> Delivery:
    """Write ``new`` as a replay of a finished delivery."""
    await tx.one("catalog_hold")
    # Pending is read first: a delivery moves from pending to history and so cannot be missed.
    if await tx.one("pending_by_id", id=delivery_id) is not None:
        raise StillPending
    row = await tx.one("history_by_id", id=delivery_id)
    if row is None:
        raise NotFound
    old = rows.history(row).delivery
    delivery = replace(
        new,
        tenant=old.tenant,
        subscription_id=old.subscription_id,
        event_id=old.event_id,
        root_id=old.root_id,
    )
    if old.subscription_id not in await _targets(tx, [delivery]):
        raise SubscriptionGone
    written = await _write(tx, [delivery], node=node)
    if not written:
        raise Gone
    return written[0]


async def replay_step(
    tx: Tx, job: ReplayJob, *, after: ReplayJob, new: Sequence[Delivery], node: int
) -> bool:
    """Write a step of a job, unless it was cancelled or the step was already taken."""
    await tx.one("catalog_hold")
    row = await tx.one("replay_job_hold", id=job.id)
    if row is None:
        return False
    stored = rows.replay_job(row)
    if stored.state != RUNNING or stored.after_id != job.after_id:
        return False
    written = await _write(tx, new, node=node)
    gone = len(new) - len(written)
    # Added to the stored counts: the caller does not know which rows were skipped here.
    await tx.all(
        "replay_job_progress",
        id=job.id,
        state=after.state,
        after_id=after.after_id,
        scanned=after.scanned,
        replayed=stored.replayed + after.replayed - job.replayed - gone,
        skipped=stored.skipped + after.skipped - job.skipped + gone,
    )
    return True


async def _targets(tx: Tx, deliveries: Sequence[Delivery]) -> dict[int, tuple[int, int]]:
    """Endpoint and bucket of each subscription that is not deleted."""
    ids = sorted({it.subscription_id for it in deliveries})
    found = await tx.all("replay_targets", ids=ids)
    return {row[0]: (row[1], row[2]) for row in found}


async def _write(tx: Tx, deliveries: Sequence[Delivery], *, node: int) -> list[Delivery]:
    """Write those whose subscription and event exist, at the subscription's current endpoint."""
    if not deliveries:
        return []
    targets = await _targets(tx, deliveries)
    ids = sorted({it.event_id for it in deliveries})
    events = {row[0] for row in await tx.all("replay_events", ids=ids)}
    written = [
        replace(it, endpoint_id=target[0], bucket=target[1], replay=True)
        for it in deliveries
        if it.event_id in events and (target := targets.get(it.subscription_id))
    ]
    await tx.insert("pending", [rows.pending_row(it) for it in written])
    await tx.insert("replay_link", [(it.event_id, it.id) for it in written])
    accepted = Counter(it.tenant for it in written)
    await add_to_ledger(
        tx, {tenant: LedgerChange(accepted=n) for tenant, n in accepted.items()}, node=node
    )
    return written


# --- the scan of a job ----------------------------------------------------------------------


async def found(
    tx: Tx, job: ReplayJob, *, now: int, limit: int
) -> tuple[list[Finished], int, bool]:
    """The deliveries that a job takes of the next rows, the last id scanned, whether it is done."""
    walk = _walk(job, now=now, limit=limit)
    taken = await tx.all("replay_found", **walk)
    scanned, top = taken[0][:2]
    finished = [rows.history(row[2:]) for row in taken if row[2] is not None]
    if scanned < limit or top >= walk["upto_id"]:
        return finished, max(job.after_id, job.upto_id), True
    return finished, top, False


async def count(tx: Tx, job: ReplayJob, *, now: int, limit: int) -> tuple[int, bool]:
    """How many deliveries it would take of the next ``limit`` rows, and whether these are all."""
    row = await tx.one("replay_count", **_walk(job, now=now, limit=limit))
    assert row is not None
    return row[1], row[0] < limit


def _walk(job: ReplayJob, *, now: int, limit: int) -> dict[str, Any]:
    """The values of the statements, which use only the shortest of the walks."""
    conditions = job.filter
    low, high = id_range(conditions)
    if conditions.event_id is not None:
        walk = "by_event"
    elif conditions.endpoint_id is not None:
        walk = "by_endpoint"
    elif conditions.status in {Status.DROPPED, Status.CANCELLED}:
        walk = "by_status"
    else:
        walk = "by_id"
    walks = dict.fromkeys(("by_id", "by_endpoint", "by_status", "by_event"), 0)
    return {
        "after_id": max(job.after_id, low - 1),
        "upto_id": min(job.upto_id, high - 1),
        **walks,
        walk: limit,
        **selection_values(conditions, now=now),
    }
