"""Removes rows past retention in bounded steps, oldest first.

Some old rows must stay (a delivery that finished late, a test send of yesterday's backlog) between
rows that can be removed. A step scans a bounded number of rows and remembers where it stopped, so
that rows that stay are scanned once per round and never block it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from homing.model import Finished, Lane, Reason, Status, id_floor
from homing.ports.erasures import Erasable
from homing.ports.flow import ErasedPlace, Retention
from homing.store import erasures, pull_streams, rows
from homing.store.tx import Row, Tx
from homing.store.writes import LedgerChange, ledger_write

SCANS_MAX = 10  # in one step, while they find nothing to remove
_END = (1 << 63) - 1
_DELIVERIES_MAX = 1_000_000  # of one event: more than it can have

Scan = Callable[[int], Awaitable[tuple[int, int | None]]]  # after id → removed, id to go on after


class Walk(NamedTuple):
    """The last id of the present round in each table; 0 begins a new round."""

    history: int = 0
    attempts: int = 0
    endpoints: int = 0
    streams: int = 0


async def step(tx: Tx, walk: Walk, *, before: int, limit: int) -> tuple[int, Walk]:
    """Remove at most about ``limit`` rows of each table; returns how many, and the new position."""
    bound_id = id_floor(before)

    async def history(after_id: int) -> tuple[int, int | None]:
        found = await tx.all("old_history", after_id=after_id, bound_id=bound_id, limit=limit)
        gone = [(row[0],) for row in found if row[1] < before]
        await tx.many("attempts_remove", gone)
        await tx.many("history_remove", gone)
        return len(gone), _on_after(found, limit)

    async def attempts(after_id: int) -> tuple[int, int | None]:
        found = await tx.all("old_attempts", after_id=after_id, bound_id=bound_id, limit=limit)
        gone = [(row[0],) for row in found if row[1] < before and row[2] == Lane.TEST]
        await tx.many("attempts_remove", gone)
        return len(gone), _on_after(found, limit)

    async def endpoints(after_id: int) -> tuple[int, int | None]:
        return await _endpoints(tx, after_id, before=before, limit=limit)

    async def streams(after_id: int) -> tuple[int, int | None]:
        return await pull_streams.trim(tx, after_id, before=before, limit=limit)

    removed = await _events(tx, before=before, bound_id=bound_id, limit=limit)
    removed += len(
        await tx.all("transitions_remove", bound_id=bound_id, before=before, limit=limit)
    )
    removed += len(await tx.all("notices_remove", bound_id=bound_id, limit=limit))
    removed += len(await tx.all("notice_targets_remove", before=before, limit=limit))
    removed += len(await tx.all("causes_remove", before=before, limit=limit))
    removed += len(await tx.all("erased_keys_remove", before=before, limit=limit))
    removed += len(await tx.all("erasures_remove", bound_id=bound_id, before=before, limit=limit))
    removed += len(await tx.all("replay_jobs_remove", bound_id=bound_id, limit=limit))
    removed += len(await tx.all("subscriptions_remove", before=before, limit=limit))
    gone, on_history = await _scan_until(history, walk.history)
    tests_gone, on_attempts = await _scan_until(attempts, walk.attempts)
    endpoints_gone, on_endpoints = await _scan_until(endpoints, walk.endpoints)
    entries_gone, on_streams = await _scan_until(streams, walk.streams)
    removed += gone + tests_gone + endpoints_gone + entries_gone
    return removed, Walk(on_history, on_attempts, on_endpoints, on_streams)


async def step_of_tenant(
    tx: Tx, tenant: str, *, before: int, after_key: str, limit: int
) -> tuple[int, str | None]:
    """Remove old events of a tenant with all their rows, among the next ``limit`` events.

    An event with a delivery that is pending, or finished later, stays.
    """
    walked = await tx.all("keys_of_tenant", tenant=tenant, after_key=after_key, limit=limit)
    bound_id = id_floor(before)
    ids = [event_id for _, event_id in walked if event_id < bound_id]
    removed = 0
    if ids:
        await tx.all("erase_hold", ids=ids)  # No replay is made of them meanwhile.
        whole = await tx.all("erasable_by_id", ids=ids, upto_position=_END)
        found = [Erasable(*row) for row in whole]
        asked: list[Row] = [(it.event_id, it.last_id, before) for it in found]
        needed = {row[0] for row in await tx.many("events_needed", asked)}
        old = [it for it in found if it.event_id not in needed and it.accepted_at < before]
        await erasures.remove(tx, old, limit=max(limit, _DELIVERIES_MAX))
        removed = len(old)
    return removed, walked[-1][0] if len(walked) == limit else None


async def forget_erased(
    tx: Tx, keep: Retention, *, after: ErasedPlace, limit: int
) -> tuple[int, ErasedPlace | None]:
    """Remove what is known of erased events past their tenant's retention, among some rows.

    An erasure names the tenant of its ids, so the ids are removed first.
    """
    if after.erasure_id is None:
        ids = await tx.all(
            "erased_keys_after",
            accepted_at=after.accepted_at,
            hash=after.hash,
            before=keep.latest,
            limit=limit,
        )
        old = [(row[0],) for row in ids if row[1] < keep.of(row[2])]
        await tx.many("erased_key_remove", old)
        whole = len(ids) == limit
        return len(old), ErasedPlace(ids[-1][1], ids[-1][0]) if whole else ErasedPlace(erasure_id=0)
    found = await tx.all(
        "erasures_after", after_id=after.erasure_id, bound_id=id_floor(keep.latest), limit=limit
    )
    gone = [(row[0],) for row in found if row[2] is not None and row[2] < keep.of(row[1])]
    await tx.many("erasure_remove", gone)
    return len(gone), ErasedPlace(erasure_id=found[-1][0]) if len(found) == limit else None


async def _scan_until(scan: Scan, after_id: int) -> tuple[int, int]:
    """Scan until rows were removed or the round is over."""
    for _ in range(SCANS_MAX):
        removed, on_after = await scan(after_id)
        after_id = on_after or 0
        if removed or not on_after:
            return removed, after_id
    return 0, after_id


def _on_after(found: Sequence[Row], limit: int) -> int | None:
    return int(found[-1][0]) if len(found) == limit else None


async def _events(tx: Tx, *, before: int, bound_id: int, limit: int) -> int:
    needed = await tx.one("first_needed")
    assert needed is not None
    pending_id, replayed_id = (it if it is not None else _END for it in needed)
    found = await tx.all(
        "old_events",
        bound_id=min(bound_id, replayed_id),
        first_pending_id=pending_id,
        before=before,
        limit=limit,
    )
    gone = [(row[0],) for row in found]
    await tx.many("key_remove", [(tenant, key, event_id) for event_id, tenant, key in found])
    await tx.many("replay_link_remove", gone)
    await tx.many("event_fields_remove", gone)
    await tx.many("event_remove", gone)
    return len(gone)


async def _endpoints(tx: Tx, after_id: int, *, before: int, limit: int) -> tuple[int, int | None]:
    scanned = await tx.one("endpoints_scan", after_id=after_id, limit=limit)
    assert scanned is not None
    count, upto_id = scanned
    if not count:
        return 0, None
    held = await tx.all("endpoints_hold", after_id=after_id, upto_id=upto_id, before=before)
    gone = await tx.all("endpoints_remove", ids=[row[0] for row in held]) if held else []
    if gone:
        await tx.all("causes_of_removed", endpoint_ids=[row[0] for row in gone])
    return len(gone), upto_id if count == limit else None


async def expire_blocked(
    tx: Tx, keep: Retention, *, after_id: int, now: int, limit: int, node: int
) -> tuple[int, int | None]:
    """Drop blocked deliveries past their tenant's retention, among some rows; none is in memory."""
    found = await tx.all(
        "order_retained", after_id=after_id, before_id=id_floor(keep.latest), limit=limit
    )
    old = [number for number, tenant in found if number < id_floor(keep.of(tenant))]
    ended = [
        Finished(rows.pending(row), Status.DROPPED, Reason.EXPIRED, now)
        for row in await tx.all("order_retained_remove", ids=old)
    ]
    await tx.insert("history", [rows.history_row(it) for it in ended])
    dropped = Counter(it.delivery.tenant for it in ended)
    changes = {tenant: LedgerChange(dropped=count) for tenant, count in dropped.items()}
    await tx.write([ledger_write(changes, node=node)])
    return len(ended), found[-1][0] if len(found) == limit else None
