"""Cleanup jobs: the bulk work that a change of a subscription leaves, done in bounded steps.

When the URL of a subscription changes, its pending deliveries stay at the old endpoint, with a job
of the kind "move". The job moves them to the present endpoint of the subscription, so two changes
in a row need only two jobs. A deleted subscription leaves a job of the kind "cancel", and its
"move" jobs become "cancel" jobs.

A subscription whose receiver responded with 410 leaves a job of the kind "gone", which cancels what
was accepted until then; its "move" jobs become "gone" jobs. They become "move" jobs (again) when a
person activates the subscription or changes its URL: what is not cancelled yet stays pending.

A subscription that no longer has an order, or has other quiet times, leaves a job of the kind
"unblock": its deliveries wait as it says by now, and without an order none of them is blocked. So
does a "move" job with what it moves, and with what stays where the subscription is again. If it has
an order again before that, what is still blocked goes in order.

Deliveries in flight are left out: the engine moves them when they settle.
"""

from __future__ import annotations

from homing.errors import StaleCatalog
from homing.model import NOT_BOUND, Endpoint, Finished, Reason, Status, Subscription
from homing.ports import CleanupJob, CleanupStep
from homing.store import latest, order, rows, tenant_moves
from homing.store.tx import Tx
from homing.store.writes import LedgerChange, add_to_ledger

MOVE = "move"
CANCEL = "cancel"
GONE = "gone"
UNBLOCK = "unblock"


async def leave(tx: Tx, kind: str, *, cleanup_job_id: int, subscription_id: int, at: int) -> None:
    """Insert a cleanup job for an endpoint."""
    cleanup_job = CleanupJob(cleanup_job_id, kind, subscription_id, at, after_id=0)
    await tx.insert("cleanup_job", [rows.cleanup_job_row(cleanup_job)])


async def step(
    tx: Tx,
    cleanup_job_id: int,
    *,
    subscription_id: int,
    target: Endpoint | None,
    except_ids: frozenset[int],
    now: int,
    limit: int,
    node: int,
) -> CleanupStep:
    """Run one step of a cleanup job; a job that does not exist any more is done."""
    # A change locks its subscription before the jobs that it finds.
    await tx.all("subscriptions_share", ids=[subscription_id])
    held = await tx.one("cleanup_job_hold", id=cleanup_job_id)
    if held is None:
        return CleanupStep(touched=0, done=True)
    cleanup_job = rows.cleanup_job(held)
    owner = await tx.one("endpoint_tenant", id=cleanup_job.endpoint_id)
    if owner is not None:
        await tenant_moves.hold(tx, owner[0])
    row = await tx.one("subscription_by_id", id=subscription_id)
    subscription = None if row is None else rows.subscription(row)
    is_move = cleanup_job.kind == MOVE and not _is_back(cleanup_job, subscription, target)
    scanned = await tx.all(
        "cleanup_job_scan",
        endpoint_id=cleanup_job.endpoint_id,
        after_id=cleanup_job.after_id,
        limit=limit,
    )
    upto = _gone_upto(subscription) if cleanup_job.kind == GONE else None
    if upto == NOT_BOUND:  # It became a job of this kind since it was read.
        raise StaleCatalog
    ids = [
        number
        for number, of, position in scanned
        if of == subscription_id and number not in except_ids and (upto is None or position <= upto)
    ]
    touched = 0
    if ids and cleanup_job.kind in {MOVE, UNBLOCK}:
        if is_move and target is not None:
            touched = await _move(tx, cleanup_job, ids, target)
        if subscription is not None:
            changed = await latest.follow(tx, ids, subscription, now=now)
            touched = touched if is_move else changed
    elif ids:
        touched = await _cancel(tx, cleanup_job, ids, now=now, node=node)
    if len(scanned) < limit:
        await tx.all("cleanup_job_done", id=cleanup_job.id)
        return CleanupStep(touched, done=True)
    await tx.all("cleanup_job_progress", id=cleanup_job.id, after_id=scanned[-1][0])
    return CleanupStep(touched, done=False)


def _is_back(
    cleanup_job: CleanupJob, subscription: Subscription | None, target: Endpoint | None
) -> bool:
    """Whether the subscription has the job's endpoint again; StaleCatalog if not ``target``."""
    current = subscription.endpoint_id if subscription else None
    if current == cleanup_job.endpoint_id:
        return True
    if target is None or target.id != current:
        raise StaleCatalog
    return False


def _gone_upto(subscription: Subscription | None) -> int | None:
    """The last delivery that is cancelled; None: all are, its subscription is deleted."""
    state = subscription.receiver if subscription is not None else None
    return None if state is None or state.gone_at is None else state.gone_upto


async def _move(tx: Tx, cleanup_job: CleanupJob, ids: list[int], target: Endpoint) -> int:
    moved = await tx.all(
        "cleanup_job_move",
        ids=ids,
        endpoint_id=cleanup_job.endpoint_id,
        target_id=target.id,
        bucket=target.bucket,
    )
    return len(moved)


async def _cancel(tx: Tx, cleanup_job: CleanupJob, ids: list[int], *, now: int, node: int) -> int:
    gone = await tx.all("cleanup_job_cancel", ids=ids, endpoint_id=cleanup_job.endpoint_id)
    reason = Reason.GONE if cleanup_job.kind == GONE else Reason.SUBSCRIPTION_DELETED
    finished = [Finished(rows.pending(row), Status.CANCELLED, reason, now) for row in gone]
    await tx.insert("history", [rows.history_row(it) for it in finished])
    if cleanup_job.kind == GONE:  # Deliveries that were accepted later may wait for these.
        await order.release_later(tx, [it.delivery for it in finished])
    if finished:
        tenant = finished[0].delivery.tenant
        await add_to_ledger(tx, {tenant: LedgerChange(cancelled=len(finished))}, node=node)
    return len(finished)
