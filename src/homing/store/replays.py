"""Replays: of one delivery, or of all that a stored job finds in history; and backfills.

A replay is a new delivery of the same event to the present endpoint of the subscription. Its id is
outside the event's range of ids, so the table ``replay_link`` leads from the event to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from homing.errors import (
    Conflict,
    Gone,
    NotFound,
    StillPending,
    SubscriptionGone,
    TooMany,
)
from homing.languages.sentences import say
from homing.model import (
    NOT_BOUND,
    CauseKey,
    Delivery,
    Event,
    Finished,
    Order,
    Status,
    id_floor,
    show_id,
)
from homing.policy.bulk import Counted, Group
from homing.ports import DeliveryFilter, PastEvent, ReplayJob
from homing.ports.admin import LAST_PLACE, EventPlace
from homing.store import acceptance, erasures, order, rows, tenant_moves
from homing.store.selection import id_range, selection_values
from homing.store.tx import Row, Tx
from homing.store.writes import LedgerChange, add_to_ledger

RUNNING = "running"
CANCELLED = "cancelled"
JOBS_MAX = 1_000  # that are compared with a new one
RUNNING_MAX = 20  # jobs of one tenant, and as many over all tenants
RUNNING_AGAIN_MS = 60_000
GROUPS_MAX = 2_000  # of status, tenant and cause
CLOCKS_APART_MS = 3_600_000  # of two processes that publish, at most
NEWER_MAX = 100  # events of a key that a step looks at in its commit


async def replay_one(tx: Tx, delivery_id: int, *, new: Delivery, node: int) -> Delivery:
    """Write ``new`` as a replay of a finished delivery."""
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
    await tx.all("subscriptions_share", ids=[old.subscription_id])
    if old.subscription_id not in await _targets(tx, [delivery]):
        raise SubscriptionGone
    written = await _write(tx, [delivery], node=node, seen={})
    if not written:
        raise Gone
    return written[0]


async def replay_step(
    tx: Tx,
    job: ReplayJob,
    *,
    after: ReplayJob,
    new: Sequence[Delivery],
    seen: Mapping[str, EventPlace],
    node: int,
) -> bool:
    """Write a step of a job, unless it was cancelled or the step was already taken.

    Also not if more events of a key came since ``seen`` than the commit looks at: the caller
    looks at them first.
    """
    await tx.all("subscriptions_share", ids=sorted({it.subscription_id for it in new}))
    for tenant in sorted({it.tenant for it in new} | {job.filter.tenant or ""} - {""}):
        await tenant_moves.hold(tx, tenant)
    row = await tx.one("replay_job_hold", id=job.id)
    if row is None:
        return False
    stored = rows.replay_job(row)
    if stored.state != RUNNING or stored.after_id != job.after_id:
        return False
    # The clock of another process, which ran the job before, may have been ahead.
    new = [
        it if it.due_at >= stored.made_at else replace(it, due_at=stored.made_at + 1) for it in new
    ]
    missing = await _missing(tx, new) if job.filter.backfill else new
    written = await _write(tx, missing, node=node, seen=seen)
    if written is None:
        return False
    left_out = len(new) - len(written)
    # Added to the stored counts: the caller does not know which rows were skipped here.
    await tx.all(
        "replay_job_progress",
        id=job.id,
        state=after.state,
        after_id=after.after_id,
        after_position=after.after_position,
        made_at=max((it.due_at for it in new), default=stored.made_at),
        scanned=after.scanned,
        replayed=stored.replayed + after.replayed - job.replayed - left_out,
        skipped=stored.skipped + after.skipped - job.skipped + left_out,
    )
    return True


async def _targets(tx: Tx, deliveries: Sequence[Delivery]) -> dict[int, tuple[int, int, Order]]:
    """Endpoint, bucket and order of each subscription that is not deleted."""
    ids = sorted({it.subscription_id for it in deliveries})
    found = await tx.all("replay_targets", ids=ids)
    return {row[0]: (row[1], row[2], rows.order_of(row[3])) for row in found}


async def _write(
    tx: Tx, deliveries: Sequence[Delivery], *, node: int, seen: Mapping[str, EventPlace]
) -> list[Delivery] | None:
    """Write those whose subscription and event exist, at the subscription's current endpoint.

    With the order ``latest``, those of the keys in ``seen`` only if they are the newest by now.
    None, and nothing is written, if too many newer events came to tell.
    """
    if not deliveries:
        return []
    erased = await erasures.being_erased(tx)
    targets = await _targets(tx, deliveries)
    ids = sorted({it.event_id for it in deliveries})
    events: dict[int, str] = dict(await tx.all("replay_events", ids=ids))
    written = [
        replace(
            it,
            endpoint_id=target[0],
            bucket=target[1],
            replay=True,
            order_key=events[it.event_id],
        )
        for it in deliveries
        if it.event_id in events and (target := targets.get(it.subscription_id))
        if it.tenant not in erased
    ]
    latest = [
        it
        for it in written
        if it.order_key in seen and targets[it.subscription_id][2] is Order.LATEST
    ]
    outdated = await _outdated(tx, latest, seen)
    if outdated is None:
        return None
    written = [it for it in written if it.event_id not in outdated]
    ordered = [
        it for it in written if it.order_key and targets[it.subscription_id][2] is not Order.NONE
    ]
    if ordered:
        blocked = await order.place_replays(tx, ordered)
        written = [blocked.get(it.id, it) for it in written]
    position = await acceptance.take(tx)
    await tx.insert("pending", [rows.pending_row(it, position) for it in written])
    await tx.insert("replay_link", [(it.event_id, it.id) for it in written])
    accepted = Counter(it.tenant for it in written)
    await add_to_ledger(
        tx, {tenant: LedgerChange(accepted=n) for tenant, n in accepted.items()}, node=node
    )
    return written


async def save_replay(tx: Tx, job: ReplayJob) -> None:
    """Store a bulk replay; raises Conflict if an equal one runs, or began after ``as_of``.

    The deliveries that were listed at ``as_of`` are replayed once.
    """
    if job.filter.tenant is not None:
        await erasures.refuse_while_erased(tx, job.filter.tenant)
    await tx.one("name_lock", name=f"replays {job.filter.tenant or ''}")  # One at a time.
    listed_at = job.created_at if job.filter.as_of is None else job.filter.as_of
    found = await tx.all("replay_jobs_running")
    _check_running(found, job)
    found += await tx.all("replay_jobs_since", from_id=id_floor(max(listed_at, 0)), limit=JOBS_MAX)
    for other in map(rows.replay_job, found):
        if other.state != CANCELLED and _asks_the_same(other, job):
            raise Conflict(
                say(
                    "{job} already replays these deliveries: look at its progress, "
                    "or stop it before you replay them again.",
                    job=show_id("rpl", other.id),
                )
            )
    await tx.insert("replay_job", [rows.replay_job_row(job)])


def _check_running(running: Sequence[Row], job: ReplayJob) -> None:
    """Raises TooMany if the tenant of a new job has as many running jobs as it may have."""
    tenant = job.filter.tenant
    if sum(rows.replay_job(row).filter.tenant == tenant for row in running) < RUNNING_MAX:
        return
    detail = (
        say(
            "At most {limit} replays over all tenants run at a time: wait until one is done, or "
            "stop one.",
            limit=RUNNING_MAX,
        )
        if tenant is None
        else say(
            "At most {limit} replays and backfills of the tenant {tenant} run at a time: wait "
            "until one is done, or stop one.",
            limit=RUNNING_MAX,
            tenant=tenant,
        )
    )
    raise TooMany(detail, after_ms=RUNNING_AGAIN_MS)


def _asks_the_same(one: ReplayJob, other: ReplayJob) -> bool:
    return replace(one.filter, as_of=None) == replace(other.filter, as_of=None)


# --- backfills ------------------------------------------------------------------------------


async def save_backfill(tx: Tx, job: ReplayJob) -> ReplayJob:
    """Store a backfill; raises Conflict if another one of its subscription is running."""
    if job.filter.tenant is not None:
        await erasures.refuse_while_erased(tx, job.filter.tenant)
    await tx.one("name_lock", name=f"replays {job.filter.tenant or ''}")  # One at a time.
    running = await tx.all("replay_jobs_running")
    for row in running:
        other = rows.replay_job(row)
        if other.filter.backfill and other.filter.subscription_id == job.filter.subscription_id:
            raise Conflict(
                say(
                    "{job} already delivers past events to this subscription: "
                    "wait until it is done, or cancel it.",
                    job=show_id("rpl", other.id),
                )
            )
    _check_running(running, job)
    stored = replace(job, upto_position=NOT_BOUND)
    await tx.insert("replay_job", [rows.replay_job_row(stored)])
    return stored


async def bound_backfill(tx: Tx, job_id: int) -> ReplayJob | None:
    """Let a backfill take the events that are accepted by now: later ones have matched."""
    upto = await acceptance.last(tx)
    await tx.all("replay_job_bound", id=job_id, upto_position=upto, not_bound=NOT_BOUND)
    row = await tx.one("replay_job_by_id", id=job_id)
    return None if row is None else rows.replay_job(row)


async def past_events(
    tx: Tx, job: ReplayJob, *, limit: int
) -> tuple[list[PastEvent], int, EventPlace, bool]:
    """Of the next events: those that a backfill may take; how many were read, and the last one."""
    conditions = job.filter
    since, after = conditions.since or 0, (job.after_position, job.after_id)
    if after == (0, 0) and since:
        after = await _before(tx, since), 0
    found = await tx.all(
        "past_events",
        after_position=after[0],
        after_id=after[1],
        upto_position=job.upto_position,
        limit=limit,
    )
    own = [row for row in found if row[1] == conditions.tenant and row[3] >= since]
    had = await _had(tx, [(row[0], row[5]) for row in own], conditions.subscription_id or 0)
    taken = [PastEvent(row[0], row[2], row[4], *row[6:]) for row in own if row[0] not in had]
    if found:
        after = found[-1][7], found[-1][0]
    return taken, len(found), after, len(found) < limit


async def _before(tx: Tx, since: int) -> int:
    """A position below those of all events that were accepted since a time.

    Positions grow with time as well as clocks agree, so a search by halves finds the place. It ends
    an hour earlier: no two clocks differ by more.
    """
    since -= CLOCKS_APART_MS
    low, high = 0, await acceptance.last(tx) + 1
    row = await tx.one("position_from", position=1)
    if row is not None:
        low = int(row[0]) - 1
    while high - low > 1:
        middle = (low + high) // 2
        row = await tx.one("position_from", position=middle)
        if row is None or row[1] >= since:
            high = middle
        else:
            low = int(row[0])
    return low


async def events_whole(tx: Tx, event_ids: Sequence[int]) -> list[Event]:
    found = await tx.all("events_whole", ids=list(event_ids))
    return [rows.event(row) for row in found]


async def newer_of_key(tx: Tx, asked: Sequence[Row], subscription_id: int) -> list[PastEvent]:
    """Events of keys, the newest first, with whether the subscription has a delivery of each.

    Asked for are rows of tenant, key, two places that the events lie between, and a limit.
    """
    found = await tx.many("newer_of_key", asked)
    had = await _had(tx, [(row[0], row[3]) for row in found], subscription_id)
    return [PastEvent(row[0], row[1], row[2], row[4], row[5], had=row[0] in had) for row in found]


async def _outdated(
    tx: Tx, deliveries: Sequence[Delivery], seen: Mapping[str, EventPlace]
) -> set[int] | None:
    """The events of which the subscription got a newer one of their key since ``seen``.

    None if more events of a key came since then than a commit looks at.
    """
    if not deliveries:
        return set()
    await order.hold(tx, map(order.key_of, deliveries))
    own = deliveries[0]
    asked: list[Row] = [
        (own.tenant, key, *seen[key], *LAST_PLACE, NEWER_MAX)
        for key in dict.fromkeys(it.order_key for it in deliveries)
    ]
    newer = await newer_of_key(tx, asked, own.subscription_id)
    if NEWER_MAX in Counter(it.order_key for it in newer).values():
        return None
    outdated = {it.order_key for it in newer if it.had}
    return {it.event_id for it in deliveries if it.order_key in outdated}


async def _missing(tx: Tx, new: Sequence[Delivery]) -> list[Delivery]:
    """Without events that the subscription has got a delivery of by now."""
    if not new:
        return []
    ranges = await tx.all("event_ranges", ids=sorted({it.event_id for it in new}))
    had = await _had(tx, [(row[0], row[1]) for row in ranges], new[0].subscription_id)
    return [it for it in new if it.event_id not in had]


async def _had(tx: Tx, events: Sequence[tuple[int, int]], subscription_id: int) -> set[int]:
    asked: list[Row] = [(event_id, last_id, subscription_id) for event_id, last_id in events]
    return {row[0] for row in await tx.many("had_by", asked)} if asked else set()


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


async def groups(tx: Tx, job: ReplayJob, *, now: int, limit: int) -> Counted:
    """The deliveries that it would take of the next ``limit`` rows, by status, tenant, cause."""
    walk = _walk(job, now=now, limit=limit)
    return _counted(await tx.all("replay_groups", **walk, groups=GROUPS_MAX), limit=limit)


async def pending_groups(tx: Tx, conditions: DeliveryFilter, *, limit: int) -> Counted:
    """The pending deliveries that match among ``limit`` rows, by tenant and cause."""
    low, high = id_range(conditions)
    by_endpoint = conditions.endpoint_id is not None
    values = {
        **selection_values(conditions),
        "from_id": low,
        "until_id": high,
        "by_id": 0 if by_endpoint else limit,
        "by_endpoint": limit if by_endpoint else 0,
        "groups": GROUPS_MAX,
    }
    return _counted(await tx.all("pending_groups", **values), limit=limit)


def _counted(found: Sequence[Row], *, limit: int) -> Counted:
    scanned, count = found[0][:2]
    there = tuple(
        Group(Status(status), tenant, None if failure is None else CauseKey(failure, why, code), n)
        for _, _, status, tenant, failure, why, code, n in found
        if n
    )
    return Counted(count, scanned < limit, there)


def _walk(job: ReplayJob, *, now: int, limit: int) -> dict[str, Any]:
    """The values of the statements, which use only the shortest of the walks."""
    conditions = job.filter
    low, high = id_range(conditions)
    if conditions.event_id is not None:
        walk = "by_event"
    elif conditions.endpoint_id is not None:
        walk = "by_endpoint"
    elif conditions.status in {Status.DROPPED, Status.CANCELLED, Status.SUPERSEDED}:
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
