"""Erasures: the rows of erased events and tenants are removed, in bounded steps.

A step removes all rows of some events in one transaction: pending deliveries (the ledger counts
them as cancelled), history, attempts, payload fields, replay jobs that name them, and the events.
Of an event's id only a keyed hash is left. The rows of a tenant that remain after its events are
found through its endpoints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from homing.errors import Conflict, NotFound, TooMany
from homing.languages.sentences import say
from homing.policy.erasure import ErasedId
from homing.policy.hash_keys import HashKey
from homing.ports import CleanupStep
from homing.ports.erasures import Erasable, Erasure, ErasureKind, TenantChanges
from homing.store import order, pull_streams, rows, tenant_moves
from homing.store.catalog_versions import begin_change
from homing.store.tenant_rows import LINKS, UNITS, AtOnce, OfEndpoint, OfTenant
from homing.store.tx import Row, Tx
from homing.store.writes import LedgerChange, add_to_ledger

ENDPOINTS_AT_ONCE = 20
HASH_BYTES = 16  # of a payload field's value
RUNNING_MAX = 100  # erasures of one tenant that are not finished
# What is found through others is removed before them.
_UNITS = (*reversed(UNITS), LINKS)
_AT_ONCE = tuple(
    name for it in _UNITS if isinstance(it.erased, AtOnce) for name in it.erased.statements
)
_OF_ENDPOINT = tuple(it.erased.statement for it in _UNITS if isinstance(it.erased, OfEndpoint))
_OF_TENANT = tuple(
    name for it in _UNITS if isinstance(it.erased, OfTenant) for name in it.erased.statements
)


async def tenants(tx: Tx, since_version: int) -> TenantChanges:
    """The erasures that a process with this version does not know yet, and all moves."""
    since: dict[str, int] = {}
    if since_version:  # A process that has just started has nothing in memory.
        since = dict(await tx.all("tenants_erased_since", version=since_version))
    everything: dict[str, int] = dict(
        await tx.all("whole_tenants_erased_since", version=since_version)
    )
    ids = await tx.one("erased_keys_exist") is not None
    moves = tuple(await tenant_moves.all_moves(tx))
    return TenantChanges(since, everything, ids, moves, tuple(await hash_keys(tx)))


async def hash_keys(tx: Tx) -> list[HashKey]:
    """The keys of keyed hashes, as they are stored."""
    return [HashKey(*row) for row in await tx.all("hash_keys")]


async def being_erased(tx: Tx) -> dict[str, int]:
    """The tenants whose objects are hidden, and their events up to this position."""
    return dict(await tx.all("tenants_being_erased"))


def covers(hidden: Mapping[str, int], tenant: str, position: int) -> bool:
    """Whether an event with this position is hidden, because its tenant is being erased."""
    return position <= hidden.get(tenant, -1)


async def refuse_while_erased(tx: Tx, tenant: str) -> None:
    """Raises Conflict while everything of a tenant is being erased.

    Whatever makes an object of a tenant calls this first: so all its objects that are there while
    it is erased are part of the erasure.
    """
    await begin_change(tx, tenant)
    if tenant in await being_erased(tx):
        raise Conflict(
            say("The tenant {tenant} is being erased: try again when that is done.", tenant=tenant)
        )


async def same_as(
    tx: Tx, new: Erasure, *, key: str | None, earlier: Sequence[bytes]
) -> tuple[Erasure, bool]:
    """The erasure that has erased, or is erasing, the same, and True; else ``new``, and False.

    ``earlier`` are the hashes of the event's id ``key``. Raises NotFound if there is no such event,
    TooMany if the tenant has too many erasures that are not finished. One of a value is never the
    same as another: between the two, events with this value may have been accepted.
    """
    found_running = await tx.all("erasures_running_of", tenant=new.tenant, limit=RUNNING_MAX)
    running = [rows.erasure(row) for row in found_running]
    if key is not None:
        found = await tx.one("erasable_by_key", tenant=new.tenant, key=key)
        if found is None:
            return await _earlier(tx, earlier), True
        new = replace(new, event_id=found[0])
    for known in running:
        if new.kind is not ErasureKind.FIELD and (known.kind, known.event_id) == (
            new.kind,
            new.event_id,
        ):
            return known, True
    if len(running) >= RUNNING_MAX:
        raise TooMany(
            say(
                "{limit} erasures of this tenant are not finished: try again when some are.",
                limit=RUNNING_MAX,
            )
        )
    return new, False


async def _earlier(tx: Tx, hashes: Sequence[bytes]) -> Erasure:
    """The erasure that has erased the event with one of these hashes; raises NotFound."""
    for digest in hashes:
        row = await tx.one("erasure_of_key", hash=digest)
        if row is not None:
            return rows.erasure(row)
    raise NotFound(say("The tenant has no such event, or it is past retention."))


async def next_events(
    tx: Tx, erasure: Erasure, *, after_key: str, limit: int
) -> tuple[list[Erasable], str | None]:
    """The next events to erase, and the key to continue after; None if these are the last.

    Only a tenant's events are walked by their keys; others are found again by the next call until
    they are erased.
    """
    match erasure.kind:
        case ErasureKind.EVENT:
            return await _by_id(tx, [erasure.event_id], erasure.upto_position), None
        case ErasureKind.FIELD:
            return await _by_field(tx, erasure, limit), None
        case ErasureKind.TENANT:
            walked = await tx.all(
                "keys_of_tenant", tenant=erasure.tenant, after_key=after_key, limit=limit
            )
            ids = [event_id for _, event_id in walked]
            on_after = walked[-1][0] if len(walked) == limit else None
            return await _by_id(tx, ids, erasure.upto_position), on_after


async def _by_id(tx: Tx, ids: Sequence[int], upto_position: int) -> list[Erasable]:
    found = await tx.all("erasable_by_id", ids=list(ids), upto_position=upto_position)
    return [Erasable(*row) for row in found]


async def _by_field(tx: Tx, erasure: Erasure, limit: int) -> list[Erasable]:
    by_id: dict[int, Erasable] = {}
    for begin_at in range(0, len(erasure.subject), HASH_BYTES):
        digest = erasure.subject[begin_at : begin_at + HASH_BYTES]
        found = await tx.all(
            "erasable_by_field",
            hash=digest,
            tenant=erasure.tenant,
            upto_position=erasure.upto_position,
            limit=limit,
        )
        by_id.update({row[0]: Erasable(*row) for row in found})
    return [by_id[number] for number in sorted(by_id)[:limit]]


async def erase(
    tx: Tx, erasure_id: int, events: Sequence[tuple[Erasable, ErasedId]], *, limit: int, node: int
) -> bool:
    """Erase these events; False if one has more deliveries than ``limit``, and some are left."""
    held = {row[0] for row in await tx.all("erase_hold", ids=[it.event_id for it, _ in events])}
    there = [(it, erased) for it, erased in events if it.event_id in held]
    gone = await remove(tx, [it for it, _ in there], limit=limit)
    changes = {
        tenant: LedgerChange(cancelled=count) for tenant, count in gone.cancelled.items() if count
    }
    await add_to_ledger(tx, changes, node=node)
    await tx.many(
        "erased_keys_add",
        [
            (
                erased.hash,
                erased.content(it.content_hash),
                it.deliveries,
                erasure_id,
                it.accepted_at,
            )
            for it, erased in there
            if it.event_id not in gone.unfinished
        ],
    )
    await tx.all(
        "erasure_progress",
        id=erasure_id,
        events=len(there) - len(gone.unfinished),
        deliveries=gone.deliveries,
        cancelled=sum(gone.cancelled.values()),
    )
    return not gone.unfinished


class Removed:
    """What was removed of some events."""

    def __init__(self) -> None:
        self.deliveries = 0
        self.cancelled: Counter[str] = Counter()  # pending deliveries, by tenant
        self.unfinished: set[int] = set()  # events with more deliveries than the limit


async def remove(tx: Tx, events: Sequence[Erasable], *, limit: int) -> Removed:
    """Remove all rows of events, up to ``limit`` deliveries of each; the caller holds them."""
    gone = Removed()
    tenant_of = {it.event_id: it.tenant for it in events}
    ranges: list[Row] = [(it.event_id, it.last_id, limit) for it in events]
    links = await tx.many("erase_links", [(it.event_id, limit) for it in events])
    event_of: dict[int, int] = dict(links)
    replays = [(it,) for it in event_of]
    erased = [
        *await tx.many("erase_pending", ranges),
        *await tx.many("erase_pending_by_id", replays),
    ]
    await order.release_later(tx, map(rows.pending, erased))
    pending = [(row[0], row[5]) for row in erased]  # with their events
    history = [
        *await tx.many("erase_history", ranges),
        *((id_, event_of[id_]) for (id_,) in await tx.many("erase_history_by_id", replays)),
    ]
    await tx.many("attempts_remove", [(id_,) for id_, _ in (*pending, *history)])
    gone.deliveries = len(pending) + len(history)
    gone.cancelled.update(tenant_of[event_id] for _, event_id in pending)
    for removed in (links, pending, history):
        counts = Counter(event_id for _, event_id in removed)
        gone.unfinished.update(it for it, count in counts.items() if count >= limit)
    done = [it for it in events if it.event_id not in gone.unfinished]
    ids: list[Row] = [(it.event_id,) for it in done]
    await tx.many("key_remove", [(it.tenant, it.key, it.event_id) for it in done])
    await tx.many("event_fields_remove", ids)
    await tx.many("erase_event", ids)
    await tx.many("erase_jobs_of_event", ids)
    return gone


async def hide_tenant(tx: Tx, erasure: Erasure) -> None:
    """Remove at once what people or receivers could still see or use of an erased tenant.

    All of it is bounded. Keys and links that were made since the last ones were revoked are
    revoked, too.
    """
    tenant = erasure.tenant
    await tx.all("keys_raise")
    await tx.all("keys_revoke_of", tenant=tenant, now=erasure.created_at)
    await tx.all("sessions_raise")
    await tx.all("portal_links_revoke_of", tenant=tenant, now=erasure.created_at)
    for statement in _AT_ONCE:
        await tx.all(statement, tenant=tenant)


async def hide(tx: Tx, erasure_id: int, *, version: int, more: bool) -> None:
    """Note the version of the catalog with which processes forget what was erased."""
    await tx.all("erasure_hide", id=erasure_id, version=version, more=int(more))


async def remove_of_tenant(tx: Tx, erasure: Erasure, *, limit: int) -> CleanupStep:
    """Remove some rows of a tenant besides its events; returns whether all are gone."""
    tenant = erasure.tenant
    endpoints = await tx.all("erase_endpoints_of", tenant=tenant, limit=ENDPOINTS_AT_ONCE)
    left, touched = limit, 0
    for (endpoint_id,) in endpoints:
        for statement in _OF_ENDPOINT:
            removed = await tx.all(statement, endpoint_id=endpoint_id, limit=left)
            if statement == "erase_endpoint_history":
                await tx.many("attempts_remove", removed)
            left -= len(removed)
            touched += len(removed)
            if left <= 0:
                return CleanupStep(touched, done=False)
    if endpoints:
        return CleanupStep(touched, done=False)
    if not await pull_streams.erase(tx, tenant, limit=limit):
        return CleanupStep(limit, done=False)
    for statement in _OF_TENANT:
        left -= len(await tx.all(statement, tenant=tenant, limit=left))
        if left <= 0:
            return CleanupStep(limit, done=False)
    return CleanupStep(limit - left, done=True)
