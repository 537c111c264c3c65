"""Chores: the bulk work that a change of a subscription leaves behind, one bounded step at a time.

A subscription whose URL changes leaves its pending deliveries at the old endpoint, and a "move"
there; the place they move to is always its endpoint of now, so two changes in a row need no more
than two chores. A deleted subscription leaves a "cancel", and what was a "move" becomes one.

Deliveries in flight are passed over: the engine moves them when they settle.
"""

from __future__ import annotations

from homing.errors import StaleCatalog
from homing.model import Endpoint, Finished, Reason, Status
from homing.ports import Chore, ChoreStep
from homing.store import rows
from homing.store.tx import Tx
from homing.store.writes import LedgerChange, add_to_ledger

MOVE = "move"
CANCEL = "cancel"


async def leave(tx: Tx, kind: str, *, chore_id: int, subscription_id: int, at: int) -> None:
    """Leave a chore at an endpoint."""
    chore = Chore(chore_id, kind, subscription_id, at, after_id=0)
    await tx.insert("chore", [rows.chore_row(chore)])


async def step(
    tx: Tx,
    chore_id: int,
    *,
    target: Endpoint | None,
    except_ids: frozenset[int],
    now: int,
    limit: int,
    node: int,
) -> ChoreStep:
    """One step of a chore as it is stored; one that is no longer there is done."""
    await tx.one("catalog_hold")
    held = await tx.one("chore_hold", id=chore_id)
    if held is None:
        return ChoreStep(touched=0, done=True)
    chore = rows.chore(held)
    if chore.kind == MOVE and await _is_home(tx, chore, target):
        await tx.all("chore_done", id=chore.id)
        return ChoreStep(touched=0, done=True)
    looked = await tx.all(
        "chore_look", endpoint_id=chore.endpoint_id, after_id=chore.after_id, limit=limit
    )
    ids = [
        number
        for number, subscription_id in looked
        if subscription_id == chore.subscription_id and number not in except_ids
    ]
    touched = 0
    if ids and chore.kind == MOVE and target is not None:
        touched = await _move(tx, chore, ids, target)
    elif ids:
        touched = await _cancel(tx, chore, ids, now=now, node=node)
    if len(looked) < limit:
        await tx.all("chore_done", id=chore.id)
        return ChoreStep(touched, done=True)
    await tx.all("chore_progress", id=chore.id, after_id=looked[-1][0])
    return ChoreStep(touched, done=False)


async def _is_home(tx: Tx, chore: Chore, target: Endpoint | None) -> bool:
    """Whether the subscription is back at the chore's endpoint; StaleCatalog if not at target."""
    subscription = await tx.one("subscription_by_id", id=chore.subscription_id)
    current = rows.subscription(subscription).endpoint_id if subscription else None
    if current == chore.endpoint_id:
        return True
    if target is None or target.id != current:
        raise StaleCatalog
    return False


async def _move(tx: Tx, chore: Chore, ids: list[int], target: Endpoint) -> int:
    moved = await tx.all(
        "chore_move",
        ids=ids,
        endpoint_id=chore.endpoint_id,
        target_id=target.id,
        bucket=target.bucket,
    )
    return len(moved)


async def _cancel(tx: Tx, chore: Chore, ids: list[int], *, now: int, node: int) -> int:
    gone = await tx.all("chore_cancel", ids=ids, endpoint_id=chore.endpoint_id)
    finished = [
        Finished(rows.pending(row), Status.CANCELLED, Reason.SUBSCRIPTION_DELETED, now)
        for row in gone
    ]
    await tx.insert("history", [rows.history_row(it) for it in finished])
    if finished:
        tenant = finished[0].delivery.tenant
        await add_to_ledger(tx, {tenant: LedgerChange(cancelled=len(finished))}, node=node)
    return len(finished)
