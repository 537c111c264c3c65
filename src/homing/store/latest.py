"""The newest event of a key (order ``latest``): what it supersedes leaves pending for history.

A publish supersedes all blocked deliveries of its keys, which no process has in memory. The one
that is not blocked may be in flight or about to be attempted, which only its owner knows. Its owner
supersedes it before the next attempt (``newest``), or after an attempt that failed
(``after_failure``). A replay never supersedes: it is never the newest delivery of its key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from homing.model import Delivery, Finished, Status, Work
from homing.policy.order import instead
from homing.ports import NewEvent
from homing.store import order, rows
from homing.store.order import Key, key_of
from homing.store.tx import Row, Tx
from homing.store.writes import LedgerChange, add_to_ledger

SUPERSEDED_MAX = 1_000  # deliveries of one key that one event supersedes at once


class Swapped(NamedTuple):
    """A delivery that a newer one has superseded."""

    older_id: int
    newest: Delivery


async def published(
    tx: Tx, events: Sequence[NewEvent], blocked: Mapping[int, Delivery], *, node: int
) -> Counter[int]:
    """Supersede the blocked deliveries before the newest of each key; by event, how many.

    Its key is locked. One that is not blocked waits for quiet a little longer.
    """
    newest: dict[Key, Delivery] = {}
    quiet: dict[Key, Row] = {}
    for new in events:
        here = {it.id: it for it in new.deliveries}
        for latest in new.latest:
            delivery = blocked.get(latest.delivery_id)
            if delivery is None:
                continue  # The key has no other.
            key = key_of(delivery)
            newest[key] = delivery
            if latest.quiet_ms:
                at = here[delivery.id].accepted_at
                quiet[key] = (at + latest.quiet_ms, latest.max_wait_ms, *key, at)
    await tx.many("latest_quiet", list(quiet.values()))
    now = max((it.accepted_at for it in newest.values()), default=0)
    ended = await _supersede(tx, newest.values(), now=now, node=node)
    return Counter(it.superseded_by for it in ended)


async def newest(tx: Tx, deliveries: Sequence[Delivery], *, now: int, node: int) -> dict[int, Work]:
    """The deliveries to attempt instead of these, by the ids of these."""
    await order.hold(tx, map(key_of, deliveries))
    swapped = await _swap(tx, deliveries, now=now, node=node, failed=False)
    places = [(it.newest.id, it.newest.bucket) for it in swapped]
    works = rows.works(await tx.many("works", places))
    return {it.older_id: works[it.newest.id] for it in swapped if it.newest.id in works}


async def after_failure(
    tx: Tx, deliveries: Sequence[Delivery], *, now: int, node: int
) -> list[Swapped]:
    """Supersede these, whose attempts have failed, where there is a newer event; keys are held."""
    return await _swap(tx, deliveries, now=now, node=node, failed=True)


async def _swap(
    tx: Tx, deliveries: Sequence[Delivery], *, now: int, node: int, failed: bool
) -> list[Swapped]:
    older = {it.id: it for it in deliveries}
    found = await tx.many("latest_newest", [(it.id, *key_of(it)) for it in older.values()])
    swaps = [(older[row[0]], rows.pending(row[2:]), row[1]) for row in found]
    gone = {
        row[0]: rows.pending(row)
        for row in await tx.many("latest_remove", [(one.id,) for one, _, _ in swaps])
    }
    swaps = [it for it in swaps if it[0].id in gone]  # Otherwise it was cancelled just now.
    ended = [
        Finished(gone[one.id], Status.SUPERSEDED, None, now, superseded_by=new.event_id)
        for one, new, _ in swaps
    ]
    await _write(tx, ended, node=node)
    await _supersede(tx, [new for _, new, _ in swaps], now=now, node=node)
    free = [
        instead(gone[one.id], new, now=now, enabled_since=since, failed=failed)
        for one, new, since in swaps
    ]
    older_of = {new.id: one.id for one, new, _ in swaps}
    return [Swapped(older_of[it.id], it) for it in await order.write(tx, free)]


async def _supersede(tx: Tx, newest: Iterable[Delivery], *, now: int, node: int) -> list[Finished]:
    """Supersede the blocked deliveries before these, a bounded number of each key."""
    by = {key_of(it): it for it in newest}
    asked: list[Row] = [(*key, it.order_seq, SUPERSEDED_MAX) for key, it in by.items()]
    ended = []
    for row in await tx.many("latest_supersede", asked):
        older = rows.pending(row)
        event_id = by[key_of(older)].event_id
        ended.append(Finished(older, Status.SUPERSEDED, None, now, superseded_by=event_id))
    await _write(tx, ended, node=node)
    return ended


async def _write(tx: Tx, ended: Sequence[Finished], *, node: int) -> None:
    if not ended:
        return
    free = [replace(it, delivery=replace(it.delivery, order_seq=0)) for it in ended]
    await tx.insert("history", [rows.history_row(it) for it in free])
    counts = Counter(it.delivery.tenant for it in ended)
    changes = {tenant: LedgerChange(superseded=count) for tenant, count in counts.items()}
    await add_to_ledger(tx, changes, node=node)
