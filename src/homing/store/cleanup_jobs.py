"""Cleanup jobs: the bulk work that a change of a subscription leaves, done in bounded steps.

When the URL of a subscription changes, its pending deliveries stay at the old endpoint, with a job
of the kind "move". The job moves them to the present endpoint of the subscription, so two changes
in a row need only two jobs. A deleted subscription leaves a job of the kind "cancel", and its
"move" jobs become "cancel" jobs.

A subscription whose receiver responded with 410 leaves a job of the kind "gone", which cancels what
was accepted until then; its "move" jobs become "gone" jobs. They become "move" jobs (again) when a
person activates the subscription or changes its URL: what is not cancelled yet stays pending.

Deliveries in flight are left out: the engine moves them when they settle.
"""

from __future__ import annotations

from homing.errors import StaleCatalog
from homing.model import Endpoint, Finished, Reason, Status
from homing.ports import CleanupJob, CleanupStep
from homing.store import rows
from homing.store.tx import Tx
from homing.store.writes import LedgerChange, add_to_ledger

MOVE = "move"
CANCEL = "cancel"
GONE = "gone"


async def leave(tx: Tx, kind: str, *, cleanup_job_id: int, subscription_id: int, at: int) -> None:
    """Insert a cleanup job for an endpoint."""
    cleanup_job = CleanupJob(cleanup_job_id, kind, subscription_id, at, after_id=0)
    await tx.insert("cleanup_job", [rows.cleanup_job_row(cleanup_job)])


async def step(
    tx: Tx,
    cleanup_job_id: int,
    *,
    target: Endpoint | None,
    except_ids: frozenset[int],
    now: int,
    limit: int,
    node: int,
) -> CleanupStep:
    """Run one step of a cleanup job; a job that does not exist any more is done."""
    await tx.one("catalog_hold")
    held = await tx.one("cleanup_job_hold", id=cleanup_job_id)
    if held is None:
        return CleanupStep(touched=0, done=True)
    cleanup_job = rows.cleanup_job(held)
    if cleanup_job.kind == MOVE and await _is_back(tx, cleanup_job, target):
        await tx.all("cleanup_job_done", id=cleanup_job.id)
        return CleanupStep(touched=0, done=True)
    scanned = await tx.all(
        "cleanup_job_scan",
        endpoint_id=cleanup_job.endpoint_id,
        after_id=cleanup_job.after_id,
        limit=limit,
    )
    before = await _gone_at(tx, cleanup_job) if cleanup_job.kind == GONE else None
    ids = [
        number
        for number, subscription_id, accepted_at in scanned
        if subscription_id == cleanup_job.subscription_id
        and number not in except_ids
        and (before is None or accepted_at <= before)
    ]
    touched = 0
    if ids and cleanup_job.kind == MOVE and target is not None:
        touched = await _move(tx, cleanup_job, ids, target)
    elif ids:
        touched = await _cancel(tx, cleanup_job, ids, now=now, node=node)
    if len(scanned) < limit:
        await tx.all("cleanup_job_done", id=cleanup_job.id)
        return CleanupStep(touched, done=True)
    await tx.all("cleanup_job_progress", id=cleanup_job.id, after_id=scanned[-1][0])
    return CleanupStep(touched, done=False)


async def _is_back(tx: Tx, cleanup_job: CleanupJob, target: Endpoint | None) -> bool:
    """Whether the subscription has the job's endpoint again; StaleCatalog if not ``target``."""
    subscription = await tx.one("subscription_by_id", id=cleanup_job.subscription_id)
    current = rows.subscription(subscription).endpoint_id if subscription else None
    if current == cleanup_job.endpoint_id:
        return True
    if target is None or target.id != current:
        raise StaleCatalog
    return False


async def _gone_at(tx: Tx, cleanup_job: CleanupJob) -> int | None:
    """Until when accepted deliveries are cancelled; None: all, its subscription is deleted."""
    row = await tx.one("subscription_by_id", id=cleanup_job.subscription_id)
    state = rows.subscription(row).receiver if row is not None else None
    return None if state is None else state.gone_at


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
    if finished:
        tenant = finished[0].delivery.tenant
        await add_to_ledger(tx, {tenant: LedgerChange(cancelled=len(finished))}, node=node)
    return len(finished)
