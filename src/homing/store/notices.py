"""Notices to people in the database: targets, and one record per change and target.

``write`` is called by the commit that makes a change. It reads the targets in that transaction, so
a target that was just created is never missed. While WAITING_MAX records wait for a target, further
changes are only counted; the next message reports their number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from homing.errors import TooMany
from homing.languages.sentences import say
from homing.model import State, id_floor, show_id
from homing.policy.audit import AuditDraft
from homing.policy.notices import (
    ADDRESS_A_DAY_MAX,
    CREATED_A_DAY_MAX,
    DAY_MS,
    LINK_EVERY_MS,
    MESSAGE_NOTICES_MAX,
    OPERATOR,
    REMINDER_DAYS,
    SAME_URL,
    TARGET_DELETED,
    TARGETS_MAX,
    WAITING_MAX,
    Notice,
    NoticeKind,
    NoticeRecord,
    NoticeStatus,
    NoticeTarget,
    TargetKind,
    address_hash,
    wants,
)
from homing.policy.text import storable
from homing.ports import TakenMessage
from homing.store import audit as audit_log
from homing.store import erasures, leases, tenant_moves
from homing.store.catalog_versions import raise_catalog
from homing.store.tx import Db, Row, Tx, transaction

TOP_ID = (1 << 63) - 1  # above every id
HOUR_MS = 3_600_000
ERROR_CHARS_MAX = 500
_kinds = msgspec.json.Decoder(tuple[NoticeKind, ...]).decode


async def write(tx: Tx, notices: Sequence[Notice], *, node: int) -> None:
    """Write a record of each notice for each target that gets it."""
    if not notices:
        return
    tenants = sorted({OPERATOR, *(it.tenant for it in notices)})
    targets = await tx.all("notice_targets_for", tenants=tenants, limit=WAITING_MAX)
    records: list[Row] = []
    overflow: Counter[tuple[int, NoticeKind]] = Counter()
    for target_id, owner, address, kinds, waiting in targets:
        chosen = _kinds(kinds)
        for notice in notices:
            if not wants(chosen, owner, notice):
                continue
            if notice.url and address == address_hash(notice.url):
                skipped = NoticeStatus.SKIPPED
                records.append(_record(target_id, owner, notice, skipped, str(SAME_URL)))
            elif waiting < WAITING_MAX:
                waiting += 1  # noqa: PLW2901
                records.append(_record(target_id, owner, notice, NoticeStatus.WAITING))
            else:
                overflow[target_id, notice.kind] += 1
    if records:
        await tx.insert("notice", records)
    for (target_id, kind), count in sorted(overflow.items()):
        await tx.all("notice_overflow_add", target_id=target_id, node=node, kind=kind, count=count)


def _record(
    target_id: int, owner: str, notice: Notice, status: NoticeStatus, reason: str = ""
) -> Row:
    return (
        target_id,
        notice.id,
        owner,
        notice.kind,
        notice.at,
        notice.tenant,
        notice.endpoint_id,
        notice.url,
        storable(msgspec.json.encode(notice.facts).decode()),
        status,
        reason,
        0,
        None,
    )


def _read_record(row: Row) -> NoticeRecord:
    target_id, number, owner, kind, at, tenant, endpoint_id, url, facts, *rest = row
    notice = Notice(
        number, NoticeKind(kind), at, tenant, endpoint_id, url, msgspec.json.decode(facts)
    )
    status, reason, message_id, sent_at = rest
    return NoticeRecord(
        target_id, number, owner, notice, NoticeStatus(status), reason, message_id, sent_at
    )


def _target_row(it: NoticeTarget, *, address: bytes, secret: bytes) -> Row:
    return (
        it.id,
        it.tenant,
        it.kind,
        it.name,
        it.address,
        address,
        it.secret,
        secret,
        msgspec.json.encode(it.kinds).decode(),
        it.quiet_hours,
        it.time_zone,
        it.created_at,
        it.confirmed_at,
        it.deleted_at,
        it.message_id,
        it.due_at,
        it.attempts,
        it.error,
        it.sent_at,
        it.language,
    )


def read_target(row: Row) -> NoticeTarget:
    number, tenant, kind, name, address, _, secret, _, kinds, *rest = row
    quiet_hours, time_zone, created_at, confirmed_at, deleted_at, *sending = rest
    message_id, due_at, attempts, error, sent_at, language = sending
    return NoticeTarget(
        id=number,
        tenant=tenant,
        kind=TargetKind(kind),
        name=name,
        address=address,
        secret=secret,
        kinds=_kinds(kinds),
        quiet_hours=quiet_hours,
        time_zone=time_zone,
        created_at=created_at,
        confirmed_at=confirmed_at,
        deleted_at=deleted_at,
        message_id=message_id,
        due_at=due_at,
        attempts=attempts,
        error=error,
        sent_at=sent_at,
        language=language,
    )


async def _begin_reminders(tx: Tx, now: int) -> None:
    """Before the first target is made: leave out changes that are due for a reminder already."""
    if await tx.one("notice_targets_exist") is None:
        for days in REMINDER_DAYS:
            upto_id = id_floor(max(now - days * DAY_MS, 0))
            await tx.all("reminders_begin", days=days, upto_id=upto_id)


async def _check_limits(tx: Tx, target: NoticeTarget, address: bytes, *, now: int) -> None:
    """Raises TooMany. The limits of a day include targets that were deleted since."""
    if await _count(tx, "notice_targets_count", tenant=target.tenant) >= TARGETS_MAX:
        detail = (
            say(
                "The tenant {tenant} may have at most {limit} notice targets: delete one first.",
                tenant=target.tenant,
                limit=TARGETS_MAX,
            )
            if target.tenant != OPERATOR
            else say(
                "The operator may have at most {limit} notice targets: delete one first.",
                limit=TARGETS_MAX,
            )
        )
        raise TooMany(detail, after_ms=HOUR_MS)
    await _check_day(tx, target, address, now=now)


async def _check_link(tx: Tx, target: NoticeTarget, address: bytes, *, now: int) -> None:
    """Raises TooMany. A link that is sent again counts like a target for the limits of a day."""
    row = await tx.one("notice_link_latest", address_hash=address, tenant=target.tenant)
    assert row is not None
    wait_ms = row[0] + LINK_EVERY_MS - now
    if 0 < wait_ms <= LINK_EVERY_MS:
        detail = say("An address gets at most one link in five minutes: look for the e-mail first.")
        raise TooMany(detail, after_ms=wait_ms)
    await _check_day(tx, target, address, now=now)


async def _check_day(tx: Tx, target: NoticeTarget, address: bytes, *, now: int) -> None:
    since = now - DAY_MS
    limit = CREATED_A_DAY_MAX
    made = await _count(
        tx, "notice_targets_created", tenant=target.tenant, since=since, limit=limit
    )
    if made >= limit:
        detail = (
            say(
                "The tenant {tenant} may create at most {limit} notice targets in a day. A link "
                "that is sent again counts as one.",
                tenant=target.tenant,
                limit=limit,
            )
            if target.tenant != OPERATOR
            else say(
                "The operator may create at most {limit} notice targets in a day. A link that is "
                "sent again counts as one.",
                limit=limit,
            )
        )
        raise TooMany(detail, after_ms=HOUR_MS)
    if target.confirmed_at is not None:
        return
    limit = ADDRESS_A_DAY_MAX
    # Only those of this tenant: otherwise a tenant could use up another's e-mails, and would learn
    # from the refusal that somebody else has this address.
    known = await _count(
        tx,
        "notice_targets_with_address",
        address_hash=address,
        tenant=target.tenant,
        since=since,
        limit=limit,
    )
    if known >= limit:
        detail = say(
            "An address may get at most {limit} e-mails that ask for a confirmation in 24 hours: "
            "try again tomorrow.",
            limit=limit,
        )
        raise TooMany(detail, after_ms=HOUR_MS)


async def _count(tx: Tx, statement: str, **params: object) -> int:
    row = await tx.one(statement, **params)
    assert row is not None
    return int(row[0])


class Notices:
    """``NoticeStore`` on a database; ``node`` is the number of this process."""

    def __init__(self, db: Db, node: int = 0) -> None:
        self._db = db
        self._node = node

    # --- targets -----------------------------------------------------------------------------

    @transaction()
    async def create_target(
        self,
        tx: Tx,
        target: NoticeTarget,
        *,
        address: bytes,
        secret: bytes,
        now: int,
        audit: AuditDraft | None = None,
    ) -> int:
        await erasures.refuse_while_erased(tx, target.tenant)
        await tx.one("name_lock", name="notice targets")  # One at a time.
        await _check_limits(tx, target, address, now=now)
        await _begin_reminders(tx, now)
        await tx.insert("notice_target", [_target_row(target, address=address, secret=secret)])
        await _log(tx, audit, None, target)
        return await raise_catalog(tx)

    @transaction()
    async def change_target(
        self, tx: Tx, target: NoticeTarget, *, audit: AuditDraft | None = None
    ) -> NoticeTarget | None:
        before = await _held(tx, target.id)
        row = await tx.one(
            "notice_target_change",
            id=target.id,
            name=target.name,
            kinds=msgspec.json.encode(target.kinds).decode(),
            quiet_hours=target.quiet_hours,
            time_zone=target.time_zone,
            language=target.language,
        )
        if row is None:
            return None
        after = read_target(row)
        await _log(tx, audit, before, after)
        return after

    @transaction()
    async def change_secret(
        self,
        tx: Tx,
        target: NoticeTarget,
        *,
        secret: bytes,
        audit: AuditDraft | None = None,
    ) -> bool:
        row = await tx.one(
            "notice_target_secret", id=target.id, secret=target.secret, secret_hash=secret
        )
        if row is None:
            return False
        if audit is not None:
            await _log(tx, replace(audit, changed=("secret",)), target, target)
        return True

    @transaction()
    async def send_link_again(
        self,
        tx: Tx,
        target_id: int,
        *,
        message_id: int,
        now: int,
        audit: AuditDraft | None = None,
    ) -> bool:
        # As in create_target: limits are checked one after another.
        await tx.one("name_lock", name="notice targets")
        row = await tx.one("notice_link_again", id=target_id, message_id=message_id)
        if row is None:
            return False
        target, address = read_target(row), bytes(row[5])
        await _check_link(tx, target, address, now=now)
        # For the limits, it counts as a target that was created and deleted now.
        counted = replace(
            target,
            id=message_id,
            address="",
            secret="",
            created_at=now,
            deleted_at=now,
            message_id=0,
        )
        await tx.insert("notice_target", [_target_row(counted, address=address, secret=b"")])
        await audit_log.write(
            tx,
            audit,
            tenant=None if target.tenant == OPERATOR else target.tenant,
            object_id=show_id("tgt", target.id),
            before={"link": "sent"},
            after={"link": "sent again"},
        )
        return True

    @transaction()
    async def delete_target(
        self, tx: Tx, target_id: int, *, now: int, audit: AuditDraft | None = None
    ) -> int | None:
        before = await _held(tx, target_id)
        if await tx.one("notice_target_delete", id=target_id, now=now) is None:
            return None
        await tx.all("notices_skip", target_id=target_id, reason=str(TARGET_DELETED))
        await tx.all("notice_overflow_remove", target_id=target_id)
        await _log(tx, audit, before, None)
        return await raise_catalog(tx)

    @transaction()
    async def confirm_target(
        self, tx: Tx, token: str, *, now: int, audit: AuditDraft | None = None
    ) -> NoticeTarget | None:
        row = await tx.one("notice_target_confirm", secret_hash=address_hash(token), now=now)
        if row is None:
            return None
        target = read_target(row)
        await _log(tx, audit, replace(target, confirmed_at=None), target)
        return target

    @transaction(read_only=True)
    async def target(self, tx: Tx, target_id: int) -> NoticeTarget | None:
        row = await tx.one("notice_target_by_id", id=target_id)
        return None if row is None else read_target(row)

    @transaction(read_only=True)
    async def targets(
        self, tx: Tx, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[NoticeTarget], int | None]:
        before = TOP_ID if before_id is None else before_id
        if tenant is None:
            found = await tx.all("notice_targets_page", before_id=before, limit=limit + 1)
        else:
            found = await tx.all(
                "notice_targets_page_of", tenant=tenant, before_id=before, limit=limit + 1
            )
        page = [read_target(row) for row in found[:limit]]
        return page, page[-1].id if len(found) > limit else None

    # --- records -----------------------------------------------------------------------------

    @transaction(read_only=True)
    async def notices(
        self,
        tx: Tx,
        *,
        owner: str | None,
        target_id: int | None,
        before_id: int | None,
        limit: int,
    ) -> tuple[list[NoticeRecord], int | None]:
        """A page ends between two changes: the records of one change have the same id."""
        part = {"before_id": TOP_ID if before_id is None else before_id, "limit": limit + 1}
        if target_id is not None:  # All records of a target have the same owner.
            found = await tx.all("notices_page_of_target", target_id=target_id, **part)
            found = [row for row in found if owner is None or row[2] == owner]
        elif owner is not None:
            found = await tx.all("notices_page_of_owner", owner=owner, **part)
        else:
            found = await tx.all("notices_page", **part)
        page = [_read_record(row) for row in found]
        if len(page) <= limit:
            return page, None
        last = page[-1].id
        whole = [it for it in page if it.id != last]
        if not whole:  # One change has more targets than fit on a page: the rest is left out.
            return page[:limit], last
        return whole, whole[-1].id

    @transaction()
    async def write_notices(self, tx: Tx, notices: Sequence[Notice]) -> None:
        known = [await tx.one("notice_known", id=it.id) for it in notices]
        new = [it for it, row in zip(notices, known, strict=True) if row is None]
        await write(tx, new, node=self._node)

    @transaction()
    async def write_reminders(
        self, tx: Tx, *, days: int, bound_id: int, ids: Sequence[int], now: int, epoch: int = 0
    ) -> bool:
        await leases.hold(tx, [(0, epoch)] if epoch else ())
        row = await tx.one("reminders_upto", days=days)
        if row is None or row[0] >= bound_id - 1:
            return False
        limit, fresh = len(ids), iter(ids)
        found = await tx.all("reminders_scan", after_id=row[0], bound_id=bound_id, limit=limit)
        moving = {it.tenant for it in await tenant_moves.all_moves(tx)}
        reminders = []
        for _, after, at, endpoint_id, tenant, url, is_over in found:
            if endpoint_id is None or is_over or after == State.ENABLED or tenant in moving:
                continue
            facts = {"state": after, "days": days, "since": at}
            reminders.append(
                Notice(next(fresh), NoticeKind.REMINDER, now, tenant, endpoint_id, url, facts)
            )
        await write(tx, reminders, node=self._node)
        all_read = len(found) < limit
        upto_id = bound_id - 1 if all_read else found[-1][0]
        await tx.all("reminders_move", days=days, upto_id=upto_id)
        return not all_read

    # --- messages ----------------------------------------------------------------------------

    @transaction(read_only=True)
    async def targets_to_send(self, tx: Tx, *, after_id: int, limit: int) -> list[NoticeTarget]:
        found = await tx.all("notice_targets_waiting", after_id=after_id, limit=limit)
        found += await tx.all("notice_targets_confirming", after_id=after_id, limit=limit)
        targets = {row[0]: read_target(row) for row in found}
        return [targets[number] for number in sorted(targets)[:limit]]

    @transaction()
    async def take_message(
        self, tx: Tx, target_id: int, *, message_id: int, epoch: int = 0
    ) -> TakenMessage | None:
        await leases.hold(tx, [(0, epoch)] if epoch else ())
        await _hold_owner(tx, target_id)
        held = await tx.one("notice_target_hold", id=target_id)
        if held is None:
            return None
        if held[0]:
            taken = await _taken(tx, target_id, held[0])
            if taken.notices or taken.more:
                return taken
        claim = {"target_id": target_id, "message_id": message_id}
        await tx.all("message_claim", **claim, limit=MESSAGE_NOTICES_MAX)
        await tx.all("message_claim_overflow", **claim)
        taken = await _taken(tx, target_id, message_id)
        is_empty = not taken.notices and not taken.more
        await tx.all("message_begin", id=target_id, message_id=0 if is_empty else message_id)
        return None if is_empty else taken

    @transaction()
    async def message_sent(
        self, tx: Tx, target_id: int, message_id: int, *, now: int, due_at: int, epoch: int = 0
    ) -> None:
        await leases.hold(tx, [(0, epoch)] if epoch else ())
        await _hold_owner(tx, target_id)
        await tx.all("message_sent", target_id=target_id, message_id=message_id, now=now)
        await tx.all("notice_overflow_sent", target_id=target_id, message_id=message_id)
        await tx.all("message_end", id=target_id, message_id=message_id, now=now, due_at=due_at)

    @transaction()
    async def message_failed(
        self,
        tx: Tx,
        target_id: int,
        message_id: int,
        *,
        error: str,
        due_at: int,
        epoch: int = 0,
    ) -> None:
        await leases.hold(tx, [(0, epoch)] if epoch else ())
        await _hold_owner(tx, target_id)
        text = storable(error)[:ERROR_CHARS_MAX]
        await tx.all(
            "message_failed", id=target_id, message_id=message_id, error=text, due_at=due_at
        )


async def _held(tx: Tx, target_id: int) -> NoticeTarget | None:
    """The target as it is, locked until the end of the transaction."""
    await tx.one("notice_target_hold", id=target_id)
    row = await tx.one("notice_target_by_id", id=target_id)
    return None if row is None else read_target(row)


async def _hold_owner(tx: Tx, target_id: int) -> None:
    """Raises TenantMoving: nothing is sent for a tenant that moves to another installation."""
    row = await tx.one("notice_target_tenant", id=target_id)
    if row is not None:
        await tenant_moves.hold(tx, row[0])


async def _log(
    tx: Tx, audit: AuditDraft | None, before: NoticeTarget | None, after: NoticeTarget | None
) -> None:
    """Write the audit entry of a change of a target."""
    it = after or before
    assert it is not None
    await audit_log.write(
        tx,
        audit,
        tenant=None if it.tenant == OPERATOR else it.tenant,
        object_id=show_id("tgt", it.id),
        before=before,
        after=after,
    )


async def _taken(tx: Tx, target_id: int, message_id: int) -> TakenMessage:
    found = await tx.all("message_notices", target_id=target_id, message_id=message_id)
    more = await tx.all("message_overflow", target_id=target_id, message_id=message_id)
    return TakenMessage(
        message_id,
        tuple(_read_record(row).notice for row in found),
        {NoticeKind(kind): int(count) for kind, count in more},
    )
