"""The hot path: publish, due, settle; each call is one transaction for a batch of rows."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from msgspec.structs import replace

from homing.errors import StaleCatalog, StaleEndpoints
from homing.model import (
    PART_FIRST,
    PART_REPLAY,
    Attempt,
    Decided,
    Delivery,
    Endpoint,
    Status,
    Work,
)
from homing.ports import (
    DueAsk,
    DueRows,
    EndpointStart,
    NewEvent,
    Receipt,
    Refusal,
    SettleBatch,
)
from homing.store import causes, fair, leases, notices, retention, rollups, rows
from homing.store.tx import AlreadyWritten, Db, Mark, Row, Tx, Write, transaction
from homing.store.writes import (
    LedgerChange,
    append_events,
    known_keys,
    ledger_write,
    receipts_of,
    write_events,
)

PROBE_SCAN_MAX = 2_000  # Rows past their window that a probe skips; expiry removes them.
PROBE_FAIR_SCAN_MAX = 20  # The same, in each fair group.
_FRESH = 0


class Flow:
    """``FlowStore`` on a database; ``node`` names this process in ledger and batch marks."""

    def __init__(self, db: Db, node: int = 0) -> None:
        self._db = db
        self._node = node
        # Publish and settle have a ledger row each, so that neither waits for the other.
        self._settle_node = -1 - node
        self._in_turn = asyncio.Lock()  # Publishes are written in the order of their calls.
        self._walk = retention.Walk()
        self._settled: tuple[int, frozenset[int]] | None = None  # the last batch with its result

    @transaction(read_only=True)
    async def last_id(self, tx: Tx) -> int:
        row = await tx.one("last_id")
        assert row is not None
        return int(row[0])

    async def publish(
        self, requests: Sequence[Sequence[NewEvent]], *, catalog_version: int, number: int
    ) -> list[list[Receipt] | Refusal]:
        async def work(tx: Tx) -> list[list[Receipt] | Refusal]:
            held = await tx.one("catalog_hold")
            assert held is not None
            if held[0] != catalog_version:
                raise StaleCatalog
            known = await known_keys(tx, [new for request in requests for new in request])
            results, accepted = receipts_of(requests, known)
            await append_events(tx, accepted, node=self._node)
            return results

        async with self._in_turn:
            return await self._db.run(work, mark=Mark(self._node, "publish", number))

    # --- due deliveries ---------------------------------------------------------------------

    @transaction(read_only=True)
    async def start_page(self, tx: Tx, after_id: int, limit: int) -> list[EndpointStart]:
        found = await tx.all("endpoint_walk", after_id=after_id, limit=limit)
        return await _starts(tx, found)

    @transaction(read_only=True)
    async def bucket_page(
        self, tx: Tx, after: Mapping[int, int], *, limit: int
    ) -> tuple[list[EndpointStart], dict[int, int]]:
        found = await tx.many("bucket_walk", [(*it, limit) for it in sorted(after.items())])
        scanned: dict[int, list[int]] = defaultdict(list)
        for bucket, endpoint_id in found:
            scanned[bucket].append(endpoint_id)
        starts = await _starts(tx, [(endpoint_id,) for _, endpoint_id in found])
        on = {bucket: max(ids) for bucket, ids in scanned.items() if len(ids) == limit}
        return [it for it in starts if it.oldest_id is not None], on

    @transaction(read_only=True)
    async def endpoints(self, tx: Tx, endpoint_ids: Sequence[int]) -> list[EndpointStart]:
        return await _starts(tx, [(it,) for it in endpoint_ids])

    @transaction(read_only=True)
    async def due(self, tx: Tx, asks: Sequence[DueAsk], *, now: int) -> list[DueRows]:
        # One row more than asked for shows whether there are more, and when they are due.
        heads = await tx.many(
            "due_heads",
            [
                (
                    number,
                    it.bucket,
                    it.endpoint_id,
                    it.enabled_since,
                    it.fresh + 1,
                    it.retry + 1,
                )
                for number, it in enumerate(asks)
            ],
        )
        turns = await fair.turns(tx, asks, heads)
        choices = _choose(asks, heads, turns, now=now)
        wanted = [
            (it, ask.bucket)
            for ask, choice in zip(asks, choices, strict=True)
            for it in (*choice.fresh, *choice.retry)
        ]
        works = {row[0]: _work(row) for row in await tx.many("works", wanted)}
        return [choice.due_rows(works) for choice in choices]

    @transaction()
    async def take_probe(
        self,
        tx: Tx,
        endpoint: Endpoint,
        *,
        next_probe_at: int,
        now: int,
        skip_expired: bool,
        epoch: int = 0,
    ) -> Work | None:
        """Take a delivery for a probe; its id is committed as ``probe_after_id``."""
        alive_at = now if skip_expired else -1
        await leases.hold(tx, [(endpoint.bucket, epoch)] if epoch else ())
        chosen = await _probe_choice(tx, endpoint, alive_at=alive_at)
        if chosen is None:
            return None
        found = await tx.many("works", [(chosen, endpoint.bucket)])
        if not found:
            return None
        taken = await tx.one(
            "probe_take",
            bucket=endpoint.bucket,
            id=endpoint.id,
            generation=endpoint.generation,
            next_probe_at=next_probe_at,
            probe_after_id=chosen,
        )
        if taken is None:
            raise StaleEndpoints(frozenset({endpoint.id}))
        return _work(found[0])

    @transaction(read_only=True)
    async def expired(
        self, tx: Tx, endpoint_id: int, *, bucket: int, now: int, after_id: int, limit: int
    ) -> tuple[list[Delivery], int | None, int | None]:
        at = {"bucket": bucket, "endpoint_id": endpoint_id, "after_id": after_id, "now": now}
        scanned = await tx.one("expired_scan", **at, limit=limit)
        assert scanned is not None
        count, upto_id, next_at = scanned
        if not count:
            return [], None, None
        found = await tx.all("expired_rows", **at, upto_id=upto_id)
        last = upto_id if count == limit else None
        return [rows.pending(row) for row in found], last, next_at

    # --- outcomes ---------------------------------------------------------------------------

    async def settle(self, batch: SettleBatch) -> frozenset[int]:
        """Write a batch; if it was written before, only return its result again."""
        if self._settled is not None and self._settled[0] == batch.number:
            return self._settled[1]

        async def work(tx: Tx) -> frozenset[int]:
            if self._db.dialect == "sqlite":  # On PostgreSQL the transaction's mark does this.
                if await tx.one("settled_already", node=self._node, number=batch.number):
                    return frozenset()
                await tx.one("settled_now", node=self._node, number=batch.number)
            await leases.hold(tx, batch.fences)
            await _settle_endpoints(tx, batch.endpoints)
            if batch.guarded:
                await tx.many("endpoint_guarded", _guarded_rows(batch))
            cause_of = await causes.settle(tx, batch)
            written = _with_causes(batch, cause_of) if cause_of else batch
            gone = await _leave_pending(tx, written)
            kept = _kept_in_history(batch, gone)
            attempts = [it for it in batch.attempts if it.delivery_id not in kept]
            if gone:
                attempts = await _without_erased(tx, attempts, gone)
            writes = [
                *_append_history(written, gone, kept, node=self._settle_node),
                ("attempt", [_attempt_row(it, gone) for it in attempts]),
                ("transition", [rows.transition_row(it) for it in batch.transitions]),
                rollups.write(batch, gone, node=self._settle_node),
            ]
            await tx.write([it for it in writes if it[1]])
            await write_events(tx, batch.notices, node=self._settle_node)
            await notices.write(tx, batch.for_people, node=self._settle_node)
            return gone

        try:
            gone = await self._db.run(work, mark=Mark(self._node, "settle", batch.number))
        except AlreadyWritten:
            gone = frozenset()
        self._settled = batch.number, gone
        return gone

    async def remove_history(self, *, before: int, limit: int, epoch: int = 0) -> int:
        removed = await self._db.remove_days(before=before, limit=limit)
        walk = self._walk

        async def work(tx: Tx) -> tuple[int, retention.Walk]:
            await leases.hold(tx, [(0, epoch)] if epoch else ())
            return await retention.step(tx, walk, before=before, limit=limit)

        rows_removed, self._walk = await self._db.run(work)
        return removed + rows_removed

    @transaction(read_only=True)
    async def next_tenant(self, tx: Tx, after: str) -> str | None:
        row = await tx.one("tenant_after", after=after)
        return row[0] if row is not None else None

    @transaction()
    async def remove_history_of(
        self, tx: Tx, tenant: str, *, before: int, after_key: str, limit: int, epoch: int = 0
    ) -> tuple[int, str | None]:
        await leases.hold(tx, [(0, epoch)] if epoch else ())
        return await retention.step_of_tenant(
            tx, tenant, before=before, after_key=after_key, limit=limit
        )

    @transaction()
    async def fold_rollups(self, tx: Tx, *, now: int, before: int, limit: int) -> int:
        return await rollups.fold(tx, now=now, before=before, limit=limit)


# --- due ------------------------------------------------------------------------------------


class _Choice(NamedTuple):
    """The ids of the rows that a request gets, and whether and when others follow."""

    endpoint_id: int
    fresh: list[int]
    retry: list[int]
    more_fresh: bool
    next_due: int | None

    def due_rows(self, works: dict[int, Work]) -> DueRows:
        """The reply to a request, without deliveries whose event is missing: those stay pending."""
        return DueRows(
            self.endpoint_id,
            tuple(works[it] for it in self.fresh if it in works),
            tuple(works[it] for it in self.retry if it in works),
            self.more_fresh,
            self.next_due,
        )


def _choose(
    asks: Sequence[DueAsk], heads: list[Row], turns: Mapping[int, fair.Turns], *, now: int
) -> list[_Choice]:
    lanes: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for number, lane, due_at, delivery_id in heads:
        lanes[number, lane].append((due_at, delivery_id))
    choices = []
    for number, ask in enumerate(asks):
        fresh = sorted(lanes[number, _FRESH])
        retry = lanes[number, 1]
        if (own := turns.get(number)) is not None:
            fresh = own.in_turn(fresh)
            retry += own.retry
        retry.sort()
        due = [row for row in retry[: ask.retry] if row[0] <= now]
        next_dues = [row[0] for row in retry[len(due) : len(due) + 1]]
        if own is not None and own.next_due is not None:
            next_dues.append(own.next_due)
        choices.append(
            _Choice(
                ask.endpoint_id,
                [delivery_id for _, delivery_id in fresh[: ask.fresh]],
                [delivery_id for _, delivery_id in due],
                len(fresh) > ask.fresh or (own is not None and own.more),
                min(next_dues, default=None),
            )
        )
    return choices


def _work(row: Row) -> Work:
    return Work(rows.pending(row), rows.event(row[rows.PENDING_WIDTH :]))


async def _starts(tx: Tx, ids: Sequence[Row]) -> list[EndpointStart]:
    found = await tx.many("endpoint_start", ids)
    starts = []
    for row in sorted(found, key=itemgetter(0)):
        first, replay_due, tried_due, oldest_id = row[rows.ENDPOINT_WIDTH :]
        dues = [it for it in (replay_due, tried_due) if it is not None]
        starts.append(
            EndpointStart(rows.endpoint(row), first is not None, min(dues, default=None), oldest_id)
        )
    return starts


async def _probe_choice(tx: Tx, endpoint: Endpoint, *, alive_at: int) -> int | None:
    """The id of the oldest delivery never attempted, else of the next after the last probe."""
    firsts = []
    for part in (PART_FIRST, PART_REPLAY):
        row = await tx.one(
            "probe_first",
            bucket=endpoint.bucket,
            endpoint_id=endpoint.id,
            part=part,
            alive_at=alive_at,
            scan_limit=PROBE_SCAN_MAX,
        )
        if row is not None:
            firsts.append(int(row[0]))
    row = await tx.one(
        "probe_fair",
        bucket=endpoint.bucket,
        endpoint_id=endpoint.id,
        alive_at=alive_at,
        scan_limit=PROBE_FAIR_SCAN_MAX,
    )
    if row is not None and row[0] is not None:
        firsts.append(int(row[0]))
    if firsts:
        return min(firsts)
    for after_id in (endpoint.probe_after_id, 0):
        row = await tx.one(
            "probe_next",
            bucket=endpoint.bucket,
            endpoint_id=endpoint.id,
            after_id=after_id,
            alive_at=alive_at,
            scan_limit=PROBE_SCAN_MAX,
        )
        if row is not None:
            return int(row[0])
    return None


# --- settle ---------------------------------------------------------------------------------


async def _settle_endpoints(tx: Tx, endpoints: Sequence[Endpoint]) -> None:
    """Write the endpoints first: decisions on outdated values must not be written."""
    ordered = sorted(endpoints, key=lambda it: it.id)
    changed = [(*rows.endpoint_row(it)[6:23], it.id, it.generation, it.bucket) for it in ordered]
    written = {row[0] for row in await tx.many("endpoint_settle", changed)}
    if stale := frozenset(it.id for it in ordered) - written:
        raise StaleEndpoints(stale)


def _with_causes(batch: SettleBatch, cause_of: dict[int, int]) -> SettleBatch:
    """The batch with the cause of each delivery whose attempt has failed."""
    finished = [
        replace(it, delivery=replace(it.delivery, cause_id=cause_of[it.delivery.id]))
        if it.delivery.id in cause_of
        else it
        for it in batch.finished
    ]
    waiting = [
        replace(it, cause_id=cause_of[it.id]) if it.id in cause_of else it for it in batch.waiting
    ]
    return replace(batch, finished=tuple(finished), waiting=tuple(waiting))


def _guarded_rows(batch: SettleBatch) -> list[Row]:
    return [
        (it.guard_passed, it.guard_refused_at, it.id)
        for it in batch.endpoints
        if it.id in batch.guarded
    ]


async def _leave_pending(tx: Tx, batch: SettleBatch) -> frozenset[int]:
    """Delete finished rows and replace waiting ones; return the ids that were no longer there."""
    finished = [it.delivery.id for it in batch.finished]
    buckets = sorted({it.delivery.bucket for it in batch.finished})
    left = await tx.all("pending_finish", ids=finished, buckets=buckets) if finished else []
    waiting = sorted(batch.waiting, key=lambda it: it.id)
    replaced = await tx.many("pending_wait", [(*rows.pending_row(it)[1:], it.id) for it in waiting])
    asked = {*finished, *(it.id for it in batch.waiting)}
    asked.difference_update(row[0] for row in left)
    asked.difference_update(row[0] for row in replaced)
    return frozenset(asked)


def _kept_in_history(batch: SettleBatch, gone: frozenset[int]) -> dict[int, bytes]:
    """The attempts that succeeded at once, by delivery: they are kept in the rows of history."""
    finished = {it.delivery.id: it for it in batch.finished}
    kept: dict[int, bytes] = {}
    for attempt in batch.attempts:
        done = finished.get(attempt.delivery_id)
        if (
            done is not None
            and rows.succeeded_at_once(attempt, done)
            and attempt.delivery_id not in gone
        ):
            kept[attempt.delivery_id] = rows.first_attempt_column(attempt)
    return kept


def _append_history(
    batch: SettleBatch, gone: frozenset[int], kept: dict[int, bytes], *, node: int
) -> list[Write]:
    arrived = [
        (it.delivery.id,)
        for it in batch.finished
        if it.delivery.id in gone and it.status is Status.DELIVERED
    ]
    finished = [it for it in batch.finished if it.delivery.id not in gone]
    changes: dict[str, LedgerChange] = defaultdict(LedgerChange)
    for it in finished:
        change = changes[it.delivery.tenant]
        match it.status:
            case Status.DELIVERED:
                change.delivered += 1
            case Status.DROPPED:
                change.dropped += 1
            case Status.CANCELLED:
                change.cancelled += 1
            case Status.PENDING:
                raise AssertionError("a finished delivery is not pending")
    return [
        ("history_arrived", arrived),
        ("history", [rows.history_row(it, kept.get(it.delivery.id)) for it in finished]),
        ledger_write(changes, node=node),
    ]


async def _without_erased(
    tx: Tx, attempts: Sequence[Attempt], gone: frozenset[int]
) -> list[Attempt]:
    """Without the attempts of deliveries that were erased while they were in flight."""
    asked = sorted({it.delivery_id for it in attempts if it.delivery_id in gone})
    known = {row[0] for row in await tx.all("deliveries_known", ids=asked)} if asked else set()
    return [it for it in attempts if it.delivery_id not in gone or it.delivery_id in known]


def _attempt_row(attempt: Attempt, gone: frozenset[int]) -> Row:
    if attempt.delivery_id in gone:
        attempt = replace(attempt, decided=Decided.CANCELLED)
    return rows.attempt_row(attempt)
