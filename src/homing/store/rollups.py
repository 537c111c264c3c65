"""Counts per minute and hour: added up in memory, written by one statement per batch.

Settle adds the counts of a batch: a row per endpoint, a row per tenant, and one row for all.
Maintenance adds minutes that are older than a day to their hours.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from homing.model import Outcome, Status
from homing.ports import SettleBatch
from homing.ports.views import BOUNDS_MS, HOUR_MS, MINUTE_MS, Rollup
from homing.store.tx import Row, Tx, Write

MINUTES_KEPT_MS = 25 * HOUR_MS
_BOUNDS_US = tuple(bound * 1_000 for bound in BOUNDS_MS)
_EMPTY = [0] * (4 + len(BOUNDS_MS) + 1)
_SENDER_ERRORS, _DROPPED, _TOOK = 2, 3, 4  # after delivered and failed

Key = tuple[int, int, str]  # minute, endpoint, tenant
Sums = dict[Key, list[int]]


def write(batch: SettleBatch, gone: frozenset[int], *, node: int) -> Write:
    """The counts of a batch, to be added."""
    counts = gather(batch, gone)
    # In order of the key, so that two transactions cannot deadlock.
    return "rollup_add", [(*key, node, *counts[key]) for key in sorted(counts)]


def gather(batch: SettleBatch, gone: frozenset[int]) -> Sums:
    """The counts of a batch per minute: by endpoint, by tenant, and in all.

    This is on the hot path: no enum is hashed, and a row is found by one lookup.
    """
    counts: Sums = {}
    delivered, failed = Outcome.DELIVERED, Outcome.FAILED
    for attempt in batch.attempts:
        at, outcome = attempt.finished_at, attempt.outcome
        key = (at - at % MINUTE_MS, attempt.endpoint_id, "")
        row = counts.get(key)
        if row is None:
            row = counts[key] = _EMPTY.copy()
        row[0 if outcome is delivered else 1 if outcome is failed else _SENDER_ERRORS] += 1
        row[_TOOK + bisect_left(_BOUNDS_US, attempt.phases.total_us)] += 1
    _ended(counts, batch, gone)
    tenants = {it.id: it.tenant for it in batch.endpoints}
    for delivery in batch.waiting:
        tenants.setdefault(delivery.endpoint_id, delivery.tenant)
    return {**counts, **_totals(counts, tenants)}


def _ended(counts: Sums, batch: SettleBatch, gone: frozenset[int]) -> None:
    """Add drops to the endpoint, too, and the time that a delivery took to its tenant."""
    delivered, dropped = Status.DELIVERED, Status.DROPPED
    for it in batch.finished:
        at, delivery, status = it.finished_at, it.delivery, it.status
        if delivery.id in gone:
            continue
        if status is delivered:
            key = (at - at % MINUTE_MS, 0, delivery.tenant)
            place = _TOOK + bisect_left(BOUNDS_MS, at - delivery.accepted_at)
        elif status is dropped:
            key, place = (at - at % MINUTE_MS, delivery.endpoint_id, ""), _DROPPED
        else:
            continue
        row = counts.get(key)
        if row is None:
            row = counts[key] = _EMPTY.copy()
        row[place] += 1


def _totals(counts: Sums, tenants: dict[int, str]) -> Sums:
    """The rows of tenants, with the outcomes of their endpoints, and the row of all."""
    totals: Sums = {}
    for (minute, endpoint_id, tenant), row in counts.items():
        first, last = (0, _TOOK) if endpoint_id else (_TOOK, len(row))
        whose = tenants.get(endpoint_id, "") if endpoint_id else tenant
        for key in {(minute, 0, whose), (minute, 0, "")}:
            total = totals.setdefault(key, _EMPTY.copy())
            for place in range(first, last):
                total[place] += row[place]
    return totals


# --- maintenance ----------------------------------------------------------------------------


async def fold(tx: Tx, *, now: int, before: int, limit: int) -> int:
    """Turn some old minutes into hours and remove hours past retention; returns how many rows."""
    bound = (now - MINUTES_KEPT_MS) // HOUR_MS * HOUR_MS
    minutes = await tx.all("rollup_fold", before=bound, limit=limit)
    hours: dict[Row, list[int]] = {}
    for at, endpoint_id, tenant, node, *counted in minutes:
        row = hours.setdefault((at - at % HOUR_MS, endpoint_id, tenant, node), _EMPTY.copy())
        for place, value in enumerate(counted):
            row[place] += value
    await tx.many("rollup_hour_add", [(*key, *hours[key]) for key in sorted(hours)])
    gone = await tx.all("rollup_hours_remove", before=before, limit=limit)
    return len(minutes) + len(gone)


# --- reading --------------------------------------------------------------------------------


async def read(
    tx: Tx, endpoint_ids: Sequence[int], tenant: str, *, since: int, until: int
) -> dict[int, list[Rollup]]:
    """Minutes and hours of each endpoint, or of tenants (id 0), oldest first."""
    ids = list(endpoint_ids)
    start = since - since % MINUTE_MS
    floor = (until - MINUTES_KEPT_MS) // HOUR_MS * HOUR_MS - HOUR_MS
    minutes = list(range(max(start, floor), until, MINUTE_MS))
    found = await tx.all("rollup_read", ats=minutes, ids=ids, tenant=tenant)
    if start < floor + 2 * HOUR_MS:
        hours = list(range(since - since % HOUR_MS, until, HOUR_MS))
        found += await tx.all("rollup_hour_read", ats=hours, ids=ids, tenant=tenant)
    return _merged(found)


def _merged(found: Iterable[Row]) -> dict[int, list[Rollup]]:
    sums: dict[tuple[int, int], list[int]] = {}
    for at, endpoint_id, _, _, *counted in found:
        row = sums.setdefault((at, endpoint_id), _EMPTY.copy())
        for place, value in enumerate(counted):
            row[place] += value
    merged: dict[int, list[Rollup]] = {}
    for (at, endpoint_id), row in sorted(sums.items()):
        rollup = Rollup(at, row[0], row[1], row[2], row[3], tuple(row[_TOOK:]))
        merged.setdefault(endpoint_id, []).append(rollup)
    return merged
