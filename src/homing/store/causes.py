"""Causes in a settle: read the recent causes of endpoints that failed or recovered, write the new.

The same transaction holds locks on the rows of these endpoints, and only the owner of a bucket
settles, so no cause changes between the read and the write. A batch without a failure and without a
recovery costs no statement.
"""

from __future__ import annotations

from collections import defaultdict

from msgspec.structs import replace

from homing.model import Cause
from homing.policy.causes import RETURN_MS, EndpointCauses, Failures
from homing.ports import SettleBatch
from homing.store import rows
from homing.store.tx import Row, Tx

_NEVER = 1 << 62  # later than every time: then only open causes are read


async def settle(tx: Tx, batch: SettleBatch) -> dict[int, int]:
    """Write the causes that a batch changes; returns the cause of each delivery that failed."""
    if not batch.failures and not batch.recovered:
        return {}
    failures: dict[int, list[Failures]] = defaultdict(list)
    for it in batch.failures:
        failures[it.endpoint_id].append(it)
    recovered = dict(batch.recovered)
    known: dict[int, list[Cause]] = defaultdict(list)
    endpoint_ids = sorted(failures.keys() | recovered.keys())
    since = min((it.first_seen - RETURN_MS for it in batch.failures), default=_NEVER)
    for row in await tx.all("causes_recent", endpoint_ids=endpoint_ids, since=since):
        cause = rows.cause(row)
        known[cause.endpoint_id].append(cause)
    changed: dict[int, Cause] = {}
    opened: list[Cause] = []
    cause_of: dict[int, int] = {}
    for endpoint_id in endpoint_ids:
        after = EndpointCauses(known[endpoint_id])
        if endpoint_id in recovered:
            after.recover(recovered[endpoint_id])
        after.add(failures[endpoint_id])
        changed.update(after.changed)
        opened += after.opened
        cause_of.update(after.cause_of)
    if opened:
        changed.update((it.id, it) for it in await _closed_again(tx, opened))
    await _write(tx, {it.id: it for found in known.values() for it in found}, changed)
    return cause_of


async def _write(tx: Tx, known: dict[int, Cause], changed: dict[int, Cause]) -> None:
    """Write causes in order of id; one of which only counts change is not written to an index."""
    counted: list[Row] = []
    written: list[Row] = []
    for number in sorted(changed):
        cause, before = changed[number], known.get(number)
        if before is not None and before.closed_at == cause.closed_at:
            counted.append((*rows.cause_row(cause)[7:12], number))
        else:
            written.append(rows.cause_row(cause))
    await tx.many("causes_count", counted)
    await tx.many("causes_write", written)


async def _closed_again(tx: Tx, opened: list[Cause]) -> list[Cause]:
    """The causes of endpoints without a subscription, closed: no success would ever close them."""
    endpoint_ids = sorted({it.endpoint_id for it in opened})
    unused = {row[0] for row in await tx.all("endpoints_unused", endpoint_ids=endpoint_ids)}
    return [replace(it, closed_at=it.last_seen) for it in opened if it.endpoint_id in unused]


async def leave(tx: Tx, endpoint_id: int, *, now: int) -> None:
    """Close the causes of an endpoint, if no subscription uses it any more."""
    await tx.one("endpoint_lock", endpoint_id=endpoint_id)
    await tx.all("causes_close_unused", endpoint_id=endpoint_id, now=now)
