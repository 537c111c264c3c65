"""The hot path: publish, due, settle; each call is one transaction for a batch of rows."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from homing.errors import Fenced, StaleEndpoints
from homing.model import (
    PART_FIRST,
    PART_REPLAY,
    Attempt,
    Decided,
    Delivery,
    Endpoint,
    State,
    Status,
    Work,
)
from homing.ports import (
    DueAsk,
    DueRows,
    EndpointStart,
    NewEvent,
    Place,
    ProbeTaken,
    Published,
    SettleBatch,
    SettleResult,
    Source,
)
from homing.ports.flow import ErasedPlace, Retention
from homing.store import (
    acceptance,
    causes,
    fair,
    latest,
    leases,
    notices,
    order,
    retention,
    rollups,
    rows,
    unpaused,
)
from homing.store.marks import MarkMemory
from homing.store.tx import AlreadyWritten, Db, Mark, Row, Tx, Write, transaction
from homing.store.writes import (
    LedgerChange,
    append_events,
    known_keys,
    ledger_write,
    receipts_of,
    with_blocked,
    write_events,
)

T = TypeVar("T")

PROBE_SCAN_MAX = 2_000  # Rows past their window that a probe skips; expiry removes them.
PROBE_FAIR_SCAN_MAX = 20  # The same, in each fair group.
LATEST_NODE = 1 << 20  # above the nodes of processes


class Flow:
    """``FlowStore`` on a database; ``node`` names this process in ledger and batch marks."""

    def __init__(self, db: Db, node: int = 0, *, shared: bool = False) -> None:
        """``shared``: other processes use this SQLite, too, as in tests of fleets."""
        self._db = db
        self._node = node
        # Publish and settle have a ledger row each, so that neither waits for the other.
        self._settle_node = -1 - node
        self._latest_node = LATEST_NODE + node  # what is superseded outside of a publish
        self._in_turn = asyncio.Lock()  # Publishes are written in the order of their calls.
        self._walk = retention.Walk()
        self._settled: tuple[int, SettleResult] | None = None  # the last batch with its result
        self._marks = MarkMemory() if shared and db.dialect == "sqlite" else None

    @transaction(read_only=True)
    async def last_id(self, tx: Tx) -> int:
        row = await tx.one("last_id")
        assert row is not None
        return int(row[0])

    @transaction()
    async def raise_positions(self, tx: Tx) -> None:
        await acceptance.raise_above(tx)

    async def publish(
        self, requests: Sequence[Sequence[NewEvent]], *, number: int, fence: int = 0
    ) -> Published:
        async def work(tx: Tx) -> Published:
            known = await known_keys(tx, [new for request in requests for new in request])
            results, accepted = receipts_of(requests, known)
            position, blocked = await append_events(tx, accepted, node=self._node)
            superseded: Counter[int] = Counter()
            if blocked and any(new.latest for new in accepted):
                superseded = await latest.published(tx, accepted, blocked, node=self._node)
            return Published(with_blocked(results, requests, blocked, superseded), position)

        async with self._in_turn:
            return await self._run(work, Mark(self._node, "publish", number, fence))

    async def _run(self, work: Callable[[Tx], Awaitable[T]], mark: Mark) -> T:
        """Run a batch; raises DatabaseBehind if commits of this process are lost."""
        marks = self._marks
        if marks is None:  # On PostgreSQL the database compares, when its connection is new.
            return await self._db.run(work, mark=mark)
        marks.begin(mark)

        async def marked(tx: Tx) -> T:
            row = await tx.one("last_mark", node=mark.node, kind=mark.kind)
            marks.check(mark[:2], None if row is None else int(row[0]))
            if row is not None and row[1] != mark.fence:
                raise Fenced
            result = await work(tx)
            await tx.all("mark_batch", **mark._asdict())
            return result

        result = await self._db.run(marked, mark=mark)
        marks.commit(mark)
        return result

    async def check_marks(self) -> None:
        """Raises DatabaseBehind if the database no longer has the last batches of this process."""
        marks = self._marks
        if marks is None:
            await self._db.check_marks(self._node)
            return

        seen = marks.committed(self._node)  # before the database is asked

        async def read(tx: Tx) -> dict[str, int | None]:
            return {
                kind: None if row is None else int(row[0])
                for kind in seen
                for row in [await tx.one("last_mark", node=self._node, kind=kind)]
            }

        for kind, found in (await self._db.run(read, read_only=True)).items():
            marks.check((self._node, kind), found, seen=seen[kind])

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
        if any(it.paused for it in asks):
            others = iter(await _due(tx, [it for it in asks if not it.paused], now=now))
            return [
                await _due_unpaused(tx, it, now=now) if it.paused else next(others) for it in asks
            ]
        return await _due(tx, asks, now=now)

    @transaction(read_only=True)
    async def older(
        self,
        tx: Tx,
        endpoint_id: int,
        *,
        bucket: int,
        after_id: int,
        before_id: int,
        limit: int,
    ) -> list[Delivery]:
        found = await tx.all(
            "pending_older",
            endpoint_id=endpoint_id,
            bucket=bucket,
            after_id=after_id,
            before_id=before_id,
            limit=limit,
        )
        return [rows.pending(row) for row in found]

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
        return await _take_probe(tx, endpoint, chosen, next_probe_at=next_probe_at)

    @transaction()
    async def take_unpaused_probe(
        self,
        tx: Tx,
        endpoint: Endpoint,
        *,
        next_probe_at: int,
        now: int,
        skip_expired: bool,
        paused: frozenset[int],
        seen: Mapping[Source, Place],
        epoch: int = 0,
    ) -> ProbeTaken:
        await leases.hold(tx, [(endpoint.bucket, epoch)] if epoch else ())
        alive_at = now if skip_expired else -1
        chosen, on, more = await unpaused.probe(
            tx, endpoint, alive_at=alive_at, paused=paused, seen=seen
        )
        work = await _take_probe(tx, endpoint, chosen, next_probe_at=next_probe_at)
        return ProbeTaken(work, on, more)

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

    async def settle(self, batch: SettleBatch) -> SettleResult:
        """Write a batch; if it was written before, only return its result again."""
        if self._settled is not None and self._settled[0] == batch.number:
            return self._settled[1]

        async def work(tx: Tx) -> SettleResult:
            if self._db.dialect == "sqlite":  # On PostgreSQL the transaction's mark does this.
                if await tx.one("settled_already", node=self._node, number=batch.number):
                    return SettleResult(known=False)
                await tx.one("settled_now", node=self._node, number=batch.number)
            await leases.hold(tx, batch.fences)
            if any(it.after is State.ENABLED for it in batch.transitions):
                await acceptance.take(tx)  # What was unblocked before is not fresh.
            await _settle_endpoints(tx, batch.endpoints)
            if batch.guarded:
                await tx.many("endpoint_guarded", _guarded_rows(batch))
            cause_of = await causes.settle(tx, batch)
            written = _with_causes(batch, cause_of) if cause_of else batch
            await _hold_keys(tx, batch)
            gone = await _leave_pending(tx, written)
            swapped = await _superseded(tx, written, gone, node=self._latest_node)
            kept = _kept_in_history(batch, gone)
            attempts = [it for it in batch.attempts if it.delivery_id not in kept]
            attempts = _decided(attempts, swapped)
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
            unblocked = [*await _unblock(tx, batch, gone), *(it.free for it in swapped)]
            return SettleResult(gone, tuple(unblocked), frozenset(it.older_id for it in swapped))

        try:
            settled = await self._run(work, Mark(self._node, "settle", batch.number, batch.fence))
        except AlreadyWritten:
            settled = SettleResult(known=False)
        self._settled = batch.number, settled
        return settled

    @transaction()
    async def newest(
        self,
        tx: Tx,
        deliveries: Sequence[Delivery],
        *,
        now: int,
        fences: Sequence[tuple[int, int]] = (),
        wait: bool = True,
    ) -> dict[int, Work | int]:
        await leases.hold(tx, fences)
        return await latest.newest(tx, deliveries, now=now, node=self._latest_node, wait=wait)

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
    async def forget_erased(
        self, tx: Tx, keep: Retention, *, after: ErasedPlace, limit: int, epoch: int = 0
    ) -> tuple[int, ErasedPlace | None]:
        await leases.hold(tx, [(0, epoch)] if epoch else ())
        return await retention.forget_erased(tx, keep, after=after, limit=limit)

    @transaction()
    async def expire_blocked(
        self, tx: Tx, keep: Retention, *, after_id: int, now: int, limit: int, epoch: int = 0
    ) -> tuple[int, int | None]:
        await leases.hold(tx, [(0, epoch)] if epoch else ())
        return await retention.expire_blocked(
            tx, keep, after_id=after_id, now=now, limit=limit, node=self._settle_node
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
    lanes: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for number, lane, *head in heads:
        lanes[number, lane].append(tuple(head))
    choices = []
    for number, ask in enumerate(asks):
        fresh = [(turn, id_) for turn, _, id_ in sorted(lanes[number, fair.FRESH])]
        retry = fair.held(lanes[number, fair.HELD], now=now)
        retry += [(due_at, turn, id_) for turn, due_at, id_ in lanes[number, fair.RETRY]]
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
                [delivery_id for *_, delivery_id in due],
                len(fresh) > ask.fresh or (own is not None and own.more),
                min(next_dues, default=None),
            )
        )
    return choices


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


async def _due(tx: Tx, asks: Sequence[DueAsk], *, now: int) -> list[DueRows]:
    if not asks:
        return []
    # One row more than asked for shows whether there are more, and when they are due.
    heads = await tx.many(
        "due_heads",
        [
            (
                number,
                it.bucket,
                it.endpoint_id,
                it.fresh + 1,
                it.retry + 1,
            )
            for number, it in enumerate(asks)
        ],
    )
    turns = await fair.turns(tx, asks, heads, now=now)
    choices = _choose(asks, heads, turns, now=now)
    wanted = [
        (it, ask.bucket)
        for ask, choice in zip(asks, choices, strict=True)
        for it in (*choice.fresh, *choice.retry)
    ]
    works = rows.works(await tx.many("works", wanted))
    return [choice.due_rows(works) for choice in choices]


async def _due_unpaused(tx: Tx, ask: DueAsk, *, now: int) -> DueRows:
    """The next rows of an endpoint without those of its paused subscriptions."""
    chosen = await unpaused.due(tx, ask, now=now)
    wanted = [(it, ask.bucket) for it in (*chosen.fresh, *chosen.retry)]
    works = rows.works(await tx.many("works", wanted))
    return DueRows(
        ask.endpoint_id,
        tuple(works[it] for it in chosen.fresh if it in works),
        tuple(works[it] for it in chosen.retry if it in works),
        chosen.more_fresh,
        chosen.next_due,
        chosen.seen,
    )


async def _take_probe(
    tx: Tx, endpoint: Endpoint, chosen: int | None, *, next_probe_at: int
) -> Work | None:
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
    return rows.work(found[0])


async def _probe_choice(tx: Tx, endpoint: Endpoint, *, alive_at: int) -> int | None:
    """The id of the oldest delivery never attempted, else of the next after the last probe."""
    firsts: list[tuple[int, int]] = []  # position, id
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
            firsts.append((row[0], row[1]))
    row = await tx.one(
        "probe_fair",
        bucket=endpoint.bucket,
        endpoint_id=endpoint.id,
        alive_at=alive_at,
        scan_limit=PROBE_FAIR_SCAN_MAX,
    )
    if row is not None:
        firsts.append((row[0], row[1]))
    if firsts:
        return min(firsts)[1]
    place = {"bucket": endpoint.bucket, "endpoint_id": endpoint.id}
    if await tx.one("has_blocked", **place) is not None:
        row = await tx.one(
            "probe_tried",
            **place,
            after_id=endpoint.probe_after_id,
            alive_at=alive_at,
            scan_limit=PROBE_SCAN_MAX,
        )
        return None if row is None else int(row[0])
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
    replaced = await tx.many(
        "pending_wait", [(*rows.pending_row(it)[1:-1], it.id) for it in waiting]
    )
    asked = {*finished, *(it.id for it in batch.waiting)}
    asked.difference_update(row[0] for row in left)
    asked.difference_update(row[0] for row in replaced)
    return frozenset(asked)


async def _hold_keys(tx: Tx, batch: SettleBatch) -> None:
    keyed = [it.delivery for it in batch.finished if it.delivery.order_key]
    keyed += [it for it in batch.waiting if it.order_key]
    if keyed:
        await order.hold(tx, {order.key_of(it) for it in keyed})


async def _unblock(tx: Tx, batch: SettleBatch, gone: frozenset[int]) -> list[Delivery]:
    """Unblock the next deliveries of the keys of finished ones, and of ones that were cancelled."""
    keyed = [it for it in batch.finished if it.delivery.order_key]
    if not keyed and not gone:
        return []
    freed = {
        order.key_of(it.delivery): order.Freed(it.finished_at, it.status is Status.DROPPED)
        for it in keyed
        if it.delivery.id not in gone
    }
    if gone:
        ends = {it.delivery.id: it.finished_at for it in batch.finished if it.delivery.order_key}
        ends |= {it.id: 0 for it in batch.waiting if it.order_key}
        late = [id_ for id_ in ends if id_ in gone]
        at = max((it.finished_at for it in batch.attempts), default=0)
        for key in await order.release_settled(tx, late):
            freed.setdefault(key, order.Freed(at))
    return await order.unblock(tx, freed)


async def _superseded(
    tx: Tx, batch: SettleBatch, gone: frozenset[int], *, node: int
) -> list[latest.Swapped]:
    """Supersede waiting deliveries whose attempts have failed, where there is a newer event."""
    if not batch.latest:
        return []
    asked = set(batch.latest) - gone
    failed = [it for it in batch.waiting if it.id in asked]
    now = max((it.finished_at for it in batch.attempts), default=0)
    return await latest.after_failure(tx, failed, now=now, node=node)


def _decided(attempts: Sequence[Attempt], swapped: Sequence[latest.Swapped]) -> list[Attempt]:
    """The attempts with what was decided after those whose deliveries are superseded."""
    if not swapped:
        return list(attempts)
    ids = {it.older_id for it in swapped}
    return [
        replace(it, decided=Decided.SUPERSEDED, due_at=None) if it.delivery_id in ids else it
        for it in attempts
    ]


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
            case Status.PENDING | Status.SUPERSEDED:
                raise AssertionError(f"{it.status} is not the end of an attempt")
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
