"""The newest event of a key (order ``latest``): what it supersedes leaves pending for history.

A publish supersedes the blocked deliveries of its keys, which no process has in memory: a bounded
number. The one that is not blocked may be in flight or about to be attempted, which only its owner
knows. Its owner supersedes it before the next attempt (``newest``), or after an attempt that failed
(``after_failure``). The newest delivery takes its place only when none is left between them, so no
older one can be attempted after it. A replay never supersedes: it is never the newest delivery of
its key.

A key that waits for quiet keeps the first event that came after its last attempt, which says since
when it waits: as the delivery that is not blocked, or as the first of the blocked ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from homing.model import Delivery, Finished, Order, Status, Subscription, Work
from homing.policy.order import instead, quiet_at, was_just_unblocked
from homing.ports import NewEvent
from homing.store import order, rows
from homing.store.order import Key, key_of
from homing.store.tx import Row, Tx
from homing.store.writes import LedgerChange, add_to_ledger

SUPERSEDED_MAX = 1_000  # deliveries of one key that one event supersedes at once


class Swapped(NamedTuple):
    """A delivery that was superseded, and the one that has its place."""

    older_id: int
    free: Delivery


class _Found(NamedTuple):
    """The newest delivery of a key, and since when its endpoint is enabled: None, it is not."""

    newest: Delivery
    enabled_since: int | None


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
    ended = await _supersede(tx, newest.values(), now=now, node=node, keep_first=quiet.keys())
    return Counter(it.superseded_by for it in ended)


async def newest(
    tx: Tx, deliveries: Sequence[Delivery], *, now: int, node: int, wait: bool = True
) -> dict[int, Work | int]:
    """What to attempt instead of these, by their ids; or a time: ask again then.

    Without ``wait``, for a probe, a key does not wait for quiet.
    """
    await order.hold(tx, map(key_of, deliveries))
    found = await _newest(tx, deliveries)
    later: dict[int, Work | int] = {}
    if wait and (waiting := await _not_quiet(tx, deliveries, found, now=now)):
        await _write_times(tx, waiting)
        later.update({it.id: it.due_at for it in waiting})
    swaps = {it.id: found[it.id] for it in deliveries if it.id in found and it.id not in later}
    ended = await _supersede(tx, [it.newest for it in swaps.values()], now=now, node=node)
    counts = Counter(key_of(it.delivery) for it in ended)
    for it in deliveries:
        if it.id in swaps and counts[key_of(it)] >= SUPERSEDED_MAX:  # There may be more.
            later[it.id] = it.due_at
            del swaps[it.id]
    older, turns = await _replaced(tx, swaps, now=now, node=node)
    free = [
        instead(older[id_], it.newest, now=now, enabled_since=it.enabled_since)
        for id_, it in swaps.items()
        if id_ in older
    ]
    older_of = {it.newest.id: id_ for id_, it in swaps.items()}
    written = await order.write(tx, free, {it.id: turns.get(older_of[it.id], 0) for it in free})
    works = rows.works(await tx.many("works", [(it.id, it.bucket) for it in written]))
    return later | {older_of[it]: work for it, work in works.items()}


async def after_failure(
    tx: Tx, deliveries: Sequence[Delivery], *, now: int, node: int
) -> list[Swapped]:
    """Supersede these, whose attempts have failed, where there is a newer event; keys are held.

    The next one of the key goes: the newest, unless others are left or the key waits for quiet.
    """
    found = await _newest(tx, deliveries)
    older, _ = await _replaced(tx, found, now=now, node=node)
    freed = {key_of(it): order.Freed(now, dropped=True) for it in older.values()}
    free = {key_of(it): it for it in await order.unblock(tx, freed)}
    return [Swapped(id_, free[key_of(it)]) for id_, it in older.items() if key_of(it) in free]


async def _newest(tx: Tx, deliveries: Sequence[Delivery]) -> dict[int, _Found]:
    asked: list[Row] = [(it.id, *key_of(it)) for it in {it.id: it for it in deliveries}.values()]
    return {
        row[0]: _Found(rows.pending(row[2:]), row[1])
        for row in await tx.many("latest_newest", asked)
    }


async def _replaced(
    tx: Tx, found: Mapping[int, _Found], *, now: int, node: int
) -> tuple[dict[int, Delivery], dict[int, int]]:
    """Supersede these by the newest of their keys; those that were not cancelled meanwhile.

    Also the turns of those that were first attempts: the newest takes their place.
    """
    removed = await tx.many("latest_remove", [(id_,) for id_ in found])
    gone = {row[0]: rows.pending(row) for row in removed}
    turns = {row[0]: row[rows.PENDING_WIDTH] for row in removed if gone[row[0]].is_first}
    ended = [
        Finished(it, Status.SUPERSEDED, None, now, superseded_by=found[id_].newest.event_id)
        for id_, it in gone.items()
    ]
    await _write(tx, ended, node=node)
    return gone, turns


async def _supersede(
    tx: Tx,
    newest: Iterable[Delivery],
    *,
    now: int,
    node: int,
    keep_first: Iterable[Key] = (),
) -> list[Finished]:
    """Supersede the blocked deliveries before these, a bounded number of each key.

    Of the keys in ``keep_first``, which wait for quiet, not the first event.
    """
    by, keep = {key_of(it): it for it in newest}, set(keep_first)
    asked: list[Row] = [
        (*key, it.order_seq, SUPERSEDED_MAX, int(key in keep)) for key, it in by.items()
    ]
    ended = []
    for row in await tx.many("latest_supersede", asked):
        older = rows.pending(row)
        event_id = by[key_of(older)].event_id
        ended.append(Finished(older, Status.SUPERSEDED, None, now, superseded_by=event_id))
    await _write(tx, ended, node=node)
    return ended


# --- quiet: a key waits until no newer event came for so long -------------------------------


async def follow(tx: Tx, ids: Sequence[int], subscription: Subscription, *, now: int) -> int:
    """Let these deliveries wait as their subscription says by now; how many were changed."""
    unblocked = 0
    if subscription.order is Order.NONE:
        unblocked = await order.unblock_all(tx, ids, now=now)
    free = await _free(tx, ids)
    await order.hold(tx, map(key_of, free))
    free = await _free(tx, ids)
    found = await _newest(tx, free) if subscription.quiet_ms else {}
    changed = []
    for it in free:
        newest = found[it.id].newest if it.id in found else it
        until = it.paused_ms + quiet_at(subscription, since=it.accepted_at, newest=newest)
        due_at = until if until > now else min(it.due_at, now)
        if due_at != it.due_at:
            changed.append(replace(it, due_at=due_at))
    await _write_times(tx, changed)
    return unblocked + len(changed)


async def _free(tx: Tx, ids: Sequence[int]) -> list[Delivery]:
    """Those of these that are not blocked and wait for the first attempt of an event."""
    return [rows.pending(row) for row in await tx.all("latest_free", ids=list(ids))]


async def _not_quiet(
    tx: Tx, deliveries: Sequence[Delivery], found: Mapping[int, _Found], *, now: int
) -> list[Delivery]:
    """Those that must wait until their keys are quiet, with the times until which they wait."""
    asked = {it.id: it for it in deliveries if it.id in found or was_just_unblocked(it)}
    if not asked:
        return []
    ids = sorted({it.subscription_id for it in asked.values()})
    read = [rows.subscription(row) for row in await tx.all("subscriptions_of", ids=ids)]
    quiet = {it.id: it for it in read if it.order is Order.LATEST and it.quiet_ms}
    asked = {id_: it for id_, it in asked.items() if it.subscription_id in quiet}
    tried = dict.fromkeys(key_of(it) for it in asked.values() if it.attempts or it.replay)
    first = {(row[0], row[1]): row[2] for row in await tx.many("latest_first", list(tried))}
    waiting = []
    for id_, it in asked.items():
        newest = found[id_].newest if id_ in found else it
        since = first.get(key_of(it), newest.accepted_at) if key_of(it) in tried else it.accepted_at
        until = quiet_at(quiet[it.subscription_id], since=since, newest=newest)
        if until > now:
            waiting.append(replace(it, due_at=until))
    return waiting


async def _write_times(tx: Tx, waiting: Sequence[Delivery]) -> None:
    """Write until when deliveries wait, with their other times as of now."""
    await tx.many(
        "latest_wait",
        [
            (it.part, it.due_at, it.expires_at, it.t0, it.paused_ms, it.id, it.attempts)
            for it in sorted(waiting, key=lambda it: it.id)
        ],
    )


async def _write(tx: Tx, ended: Sequence[Finished], *, node: int) -> None:
    if not ended:
        return
    free = [replace(it, delivery=replace(it.delivery, order_seq=0)) for it in ended]
    await tx.insert("history", [rows.history_row(it) for it in free])
    counts = Counter(it.delivery.tenant for it in ended)
    changes = {tenant: LedgerChange(superseded=count) for tenant, count in counts.items()}
    await add_to_ledger(tx, changes, node=node)
