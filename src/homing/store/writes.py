"""Writes that publish, settle and commands share: events with deliveries, and the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter

from msgspec import Struct
from msgspec.structs import replace

from homing.model import Delivery
from homing.ports import NewEvent, Receipt, Refusal
from homing.store import acceptance, order, pull_streams, rows
from homing.store.tx import Row, Tx, Write


class LedgerChange(Struct, gc=False):
    """Numbers to add to a tenant's ledger."""

    accepted: int = 0
    delivered: int = 0
    dropped: int = 0
    cancelled: int = 0
    superseded: int = 0


def ledger_write(changes: Mapping[str, LedgerChange], *, node: int) -> Write:
    """Additions to the ledger in the order of tenants, so that two transactions cannot deadlock."""
    added: list[Row] = [
        (tenant, node, it.accepted, it.delivered, it.dropped, it.cancelled, it.superseded)
        for tenant, it in sorted(changes.items(), key=itemgetter(0))
    ]
    return "ledger_add", added


async def add_to_ledger(tx: Tx, changes: Mapping[str, LedgerChange], *, node: int) -> None:
    await tx.write([ledger_write(changes, node=node)])


async def known_keys(
    tx: Tx, events: Sequence[NewEvent]
) -> dict[tuple[str, str], tuple[bytes, int]]:
    """The content hash and number of deliveries of each event that is already stored."""
    wanted = dict.fromkeys((new.event.tenant, new.event.key) for new in events)
    found = await tx.many("keys_known", list(wanted))
    known = {(tenant, key): (digest, deliveries) for tenant, key, digest, deliveries in found}
    if any(new.erased for new in events):
        await _add_erased(tx, events, known)
    return known


async def _add_erased(
    tx: Tx, events: Sequence[NewEvent], known: dict[tuple[str, str], tuple[bytes, int]]
) -> None:
    """Add the events that were erased: an id is known for as long as if its event were kept."""
    asked = dict.fromkeys((it.hash,) for new in events for it in new.erased)
    found = await tx.many("erased_keys_known", list(asked))
    kept = {bytes(digest): (bytes(content), n) for digest, content, n in found}
    for new in events if kept else ():
        for it in new.erased:
            if it.hash in kept:
                content, deliveries = kept[it.hash]
                name, digest = (new.event.tenant, new.event.key), new.content_hash()
                if it.content(digest) == content:
                    known[name] = digest, deliveries
                else:
                    known.setdefault(name, (b"", deliveries))  # A conflict.


async def append_events(
    tx: Tx, events: Sequence[NewEvent], *, node: int
) -> tuple[int, dict[int, Delivery]]:
    """Write events that are not stored yet, with all their deliveries.

    Returns their number in the order of acceptance, which is taken under the locks of their keys
    and streams, and the blocked deliveries. Raises RunAgain if another process has just written one
    of the keys.
    """
    if not events:
        return 0, {}
    blocked: dict[int, Delivery] = {}
    if any(new.ordered for new in events):
        blocked = await order.place(tx, events)
    entries: list[Row] = []
    if any(new.pulled for new in events):
        entries = await pull_streams.advance(tx, events)
    position = await acceptance.take(tx)
    writes: list[Write] = [
        ("event_key", sorted(rows.event_key_row(new) for new in events)),
        ("event", [rows.event_row(new, position) for new in events]),
    ]
    deliveries = [delivery for new in events for delivery in new.deliveries]
    if blocked:
        deliveries = [blocked.get(it.id, it) for it in deliveries]
    pending = [rows.pending_row(it, position) for it in deliveries]
    if pending:
        changes: dict[str, LedgerChange] = {}
        for new in events:
            change = changes.setdefault(new.event.tenant, LedgerChange())
            change.accepted += len(new.deliveries)
        writes += [("pending", pending), ledger_write(changes, node=node)]
    await tx.write(writes)
    if events[0].fields is not None:  # The same for all events of a process.
        await _index_fields(tx, events)
    if entries:
        await tx.insert("pull_entry", entries)
    return position, blocked


async def _index_fields(tx: Tx, events: Sequence[NewEvent]) -> None:
    found = [
        (new.event.id, place, digest, new.event.tenant)
        for new in events
        for place, digest in enumerate(new.fields or ())
    ]
    if found:
        await tx.insert("event_field", found)


async def write_events(tx: Tx, events: Sequence[NewEvent], *, node: int) -> None:
    """Write Homing's own notices; one that is already stored is left out."""
    if not events:
        return
    known = await known_keys(tx, events)
    fresh = {(new.event.tenant, new.event.key): new for new in events}
    await append_events(tx, [new for key, new in fresh.items() if key not in known], node=node)


def with_blocked(
    results: list[list[Receipt] | Refusal],
    requests: Sequence[Sequence[NewEvent]],
    blocked: Mapping[int, Delivery],
    superseded: Mapping[int, int],
) -> list[list[Receipt] | Refusal]:
    """The receipts with the ids of deliveries that are blocked, and what was superseded."""
    if not blocked:
        return results
    return [
        result
        if isinstance(result, Refusal)
        else [
            replace(
                receipt,
                blocked=tuple(it.id for it in new.deliveries if it.id in blocked),
                superseded=superseded.get(new.event.id, 0),
            )
            if receipt.new and new.ordered
            else receipt
            for receipt, new in zip(result, request, strict=True)
        ]
        for result, request in zip(results, requests, strict=True)
    ]


def receipts_of(
    requests: Sequence[Sequence[NewEvent]], known: dict[tuple[str, str], tuple[bytes, int]]
) -> tuple[list[list[Receipt] | Refusal], list[NewEvent]]:
    """The receipts or refusal of each request, and the events to write.

    Requests are handled in order: one that repeats an event of an earlier one gets its receipt.
    """
    here: dict[tuple[str, str], NewEvent] = {}
    results: list[list[Receipt] | Refusal] = []
    accepted: list[NewEvent] = []
    for request in requests:
        receipts: list[Receipt] = []
        conflicts: list[int] = []
        fresh: list[NewEvent] = []
        for index, new in enumerate(request):
            event = new.event
            there = known.get((event.tenant, event.key))
            if there is None and (twin := here.get((event.tenant, event.key))) is not None:
                there = twin.content_hash(), len(twin.deliveries)
            if there is None:
                fresh.append(new)
                receipts.append(Receipt(event.key, len(new.deliveries), new=True))
            elif there[0] == new.content_hash():
                receipts.append(Receipt(event.key, there[1], new=False))
            else:
                conflicts.append(index)
        if conflicts:
            results.append(Refusal(tuple(conflicts)))
            continue
        results.append(receipts)
        accepted += fresh
        here.update({(new.event.tenant, new.event.key): new for new in fresh})
    return results, accepted
