"""Subscriptions without a URL: ``PullStore`` on a database."""

from __future__ import annotations

from collections.abc import Sequence

from homing.errors import BehindRetention, Conflict, NotFound
from homing.languages.sentences import say
from homing.model import Event, show_id
from homing.policy.audit import AuditDraft
from homing.ports.pull import PAGE_BYTES_MAX, READERS_MAX, PullEntry, PullPage, PullReader
from homing.store import audit as audit_log
from homing.store import erasures, rows, tenant_moves
from homing.store.tx import Db, Row, Tx, transaction

_AHEAD = (
    "The cursor is ahead of the database: it may have lost its newest commits, for example in a "
    "failover. Read without a cursor, or from the reader's own."
)


class Pulls:
    """``PullStore`` on a database."""

    def __init__(self, db: Db) -> None:
        self._db = db

    @transaction(view=True)
    async def page(
        self,
        tx: Tx,
        subscription_id: int,
        *,
        tenant: str,
        reader: str,
        after: int | None,
        bound_id: int,
        limit: int,
    ) -> PullPage:
        head, removed = await _stream(tx, subscription_id)
        if after is None:
            known = await _reader(tx, subscription_id, reader)
            after = None if known is None else known.position
        if after is None:
            after = await _before_oldest(tx, subscription_id, removed, head, bound_id)
        elif after > head:
            raise Conflict(_AHEAD)
        upto = min(after + limit, head)
        sizes = await tx.all("pull_sizes", subscription_id=subscription_id, after=after, upto=upto)
        if after < removed or (sizes and sizes[0][1] < bound_id):
            oldest = await _before_oldest(tx, subscription_id, removed, head, bound_id)
            if oldest > after:
                raise BehindRetention(oldest)
        sizes = _that_fit(sizes)
        hidden = tenant in await erasures.being_erased(tx)
        ids = [event_id for _, event_id, size in sizes if size is not None and not hidden]
        found = await tx.all("pull_events", ids=ids) if ids else []
        events: dict[int, Event] = {row[0]: rows.event(row) for row in found}
        entries = [
            PullEntry(position, events[event_id])
            for position, event_id, _ in sizes
            if event_id in events
        ]
        return PullPage(entries, after, sizes[-1][0] if sizes else upto, head)

    @transaction(view=True)
    async def heads(self, tx: Tx, subscription_ids: Sequence[int]) -> dict[int, int]:
        return dict(await tx.all("pull_heads", ids=list(subscription_ids)))

    @transaction(view=True)
    async def readers(self, tx: Tx, subscription_id: int) -> tuple[list[PullReader], int]:
        head, _ = await _stream(tx, subscription_id)
        found = await tx.all("pull_readers", subscription_id=subscription_id)
        return [rows.pull_reader(row) for row in found], head

    @transaction()
    async def begin_reader(
        self, tx: Tx, subscription_id: int, name: str, *, now: int
    ) -> PullReader:
        await _hold(tx, subscription_id)
        known = await _reader(tx, subscription_id, name)
        return known or await _add(tx, subscription_id, name, position=None, now=now)

    @transaction()
    async def ack(
        self, tx: Tx, subscription_id: int, name: str, *, position: int, now: int
    ) -> PullReader:
        await _hold(tx, subscription_id)
        head, _ = await _stream(tx, subscription_id)
        if position > head:
            raise Conflict(_AHEAD)
        asked = {"subscription_id": subscription_id, "name": name}
        row = await tx.one("pull_ack", **asked, position=position, now=now)
        if row is not None:
            return rows.pull_reader(row)
        return await _add(tx, subscription_id, name, position=position, now=now)

    @transaction()
    async def remove_reader(
        self, tx: Tx, subscription_id: int, name: str, *, audit: AuditDraft | None = None
    ) -> PullReader:
        await _hold(tx, subscription_id)
        row = await tx.one("pull_reader_remove", subscription_id=subscription_id, name=name)
        if row is None:
            raise NotFound(say("The subscription has no reader {name}.", name=name))
        reader = rows.pull_reader(row)
        subscription = await tx.one("subscription_by_id", id=subscription_id)
        await audit_log.write(
            tx,
            audit,
            tenant=None if subscription is None else rows.subscription(subscription).tenant,
            object_id=show_id("sub", subscription_id),
            before={"reader": reader.name, "position": reader.position},
        )
        return reader


async def _hold(tx: Tx, subscription_id: int) -> None:
    """Raises TenantMoving or TenantMoved: no reader of a tenant that moves is changed."""
    row = await tx.one("pull_stream_tenant", subscription_id=subscription_id)
    if row is not None:
        await tenant_moves.hold(tx, row[0])


async def _stream(tx: Tx, subscription_id: int, *, lock: bool = False) -> tuple[int, int]:
    """The position of the newest entry, and that of the last one that retention removed."""
    name = "pull_stream_lock" if lock else "pull_stream"
    row = await tx.one(name, subscription_id=subscription_id)
    if row is None:
        raise NotFound("There is no such subscription.")
    return row[0], row[1]


async def _reader(tx: Tx, subscription_id: int, name: str) -> PullReader | None:
    row = await tx.one("pull_reader_by_name", subscription_id=subscription_id, name=name)
    return None if row is None else rows.pull_reader(row)


async def _before_oldest(
    tx: Tx, subscription_id: int, removed: int, head: int, bound_id: int
) -> int:
    """The position before the oldest entry that retention keeps; the end if it keeps none."""
    row = await tx.one(
        "pull_oldest", subscription_id=subscription_id, removed=removed, bound_id=bound_id
    )
    return head if row is None else row[0] - 1


async def _add(
    tx: Tx, subscription_id: int, name: str, *, position: int | None, now: int
) -> PullReader:
    """A new reader at this position, or at the newest entry; raises Conflict for one too many."""
    head, _ = await _stream(tx, subscription_id, lock=True)
    known = [
        rows.pull_reader(it) for it in await tx.all("pull_readers", subscription_id=subscription_id)
    ]
    if there := next((it for it in known if it.name == name), None):
        return there  # Another request has just added it.
    if len(known) >= READERS_MAX:
        names = ", ".join(it.name for it in known)
        raise Conflict(
            f"A subscription has at most {READERS_MAX} readers: remove one of {names} first."
        )
    acked_at = None if position is None else now
    reader = PullReader(name, head if position is None else position, now, acked_at)
    await tx.insert("pull_reader", [rows.pull_reader_row(subscription_id, reader)])
    return reader


def _that_fit(sizes: list[Row]) -> list[Row]:
    """The first entries whose events fit on one page; at least one."""
    total = 0
    for count, (_, _, size) in enumerate(sizes):
        total += size or 0
        if total > PAGE_BYTES_MAX and count:
            return sizes[:count]
    return sizes
