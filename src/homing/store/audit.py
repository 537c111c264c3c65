"""The audit log in the database: entries, segments, and the head of the log.

``write`` is called by the commit that makes a change, so that either both are stored or neither.
Writers never wait for each other here: entries are only inserted, and the maintenance leader hashes
them later, in segments.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from homing.errors import FormSent
from homing.languages.sentences import say
from homing.model import id_floor
from homing.policy.audit import (
    ADDRESS_CHARS_MAX,
    NAME_CHARS_MAX,
    OBJECT_CHARS_MAX,
    AuditDraft,
    AuditEntry,
    Head,
    Segment,
    Who,
    before_and_after,
    digest_of,
    form_path,
    state_of,
)
from homing.policy.sent_form import SentForm, refuse_changed
from homing.policy.text import storable
from homing.ports.audit import AuditFilter
from homing.store import leases, tenant_moves
from homing.store.tx import Db, Row, Tx, transaction

TOP_ID = (1 << 63) - 1  # above every id
SCAN_ROWS = 5_000  # that one page reads at most
NOTHING = "{}"  # the values of a change that changes none
FORM_LIFE_MS = 2 * 86_400_000  # how long a form that was sent is known
FORMS_AT_ONCE = 100


async def write(
    tx: Tx,
    draft: AuditDraft | None,
    *,
    tenant: str | None,
    object_id: str,
    before: object | None = None,
    after: object | None = None,
) -> None:
    """Add the entry of a change to its transaction; None: the change has no caller.

    A call that changes nothing leaves no entry. Raises TenantMoving or TenantMoved: a tenant that
    moves to another installation is not changed. Raises FormOutdated or FormSent for a form that
    was made from other values, or was sent before.
    """
    if tenant is not None:
        await tenant_moves.hold(tx, tenant)
    if draft is None:
        return
    if draft.form is not None:
        if before is not None:
            path = form_path(tenant, object_id)
            refuse_changed(draft.form.seal, path, state_of(before))
        await _use_form(tx, draft.form, now=draft.at)
    old, new = before_and_after(before, after, draft.changed)
    if old == new == NOTHING:
        return
    who = draft.who
    entry = AuditEntry(
        id=draft.id,
        at=draft.at,
        tenant=tenant,
        who=replace(
            who,
            name=_cut(who.name, NAME_CHARS_MAX),
            address=_cut(who.address, ADDRESS_CHARS_MAX),
            person=_cut(who.person, NAME_CHARS_MAX),
        ),
        action=draft.action,
        object=_cut(object_id, OBJECT_CHARS_MAX),
        before=storable(old),
        after=storable(new),
    )
    signed = replace(entry, digest=digest_of(entry, draft.key))
    await tx.insert("audit_entry", [entry_row(signed)])


async def _use_form(tx: Tx, form: SentForm, *, now: int) -> None:
    """Note that a form was sent; raises FormSent after another submit of the same form."""
    if not form.once:
        return
    await tx.all("forms_past", before=now - FORM_LIFE_MS, limit=FORMS_AT_ONCE)
    await tx.all("form_use", once=form.once, submit=form.submit, used_at=now)
    row = await tx.one("form_submit", once=form.once)
    if row is None or bytes(row[0]) != form.submit:
        raise FormSent(say("Nothing was done again. Reload the page to see the result."))


def _cut(text: str, chars_max: int) -> str:
    return storable(text)[:chars_max]


def entry_row(it: AuditEntry) -> Row:
    return (
        it.id,
        it.at,
        it.tenant,
        it.who.key_id,
        it.who.name,
        it.who.tenant,
        it.who.address,
        it.who.person,
        it.action,
        it.object,
        it.before,
        it.after,
        it.refused,
        it.count,
        it.digest,
        it.segment,
    )


def entry_of(row: Row) -> AuditEntry:
    number, at, tenant, key_id, name, who_tenant, address, person, *rest = row
    action, object_id, before, after, refused, count, digest, segment = rest
    return AuditEntry(
        id=number,
        at=at,
        tenant=tenant,
        who=Who(name, key_id, who_tenant, address, person),
        action=action,
        object=object_id,
        before=before,
        after=after,
        refused=refused,
        count=count,
        digest=bytes(digest),
        segment=segment,
    )


class Audit:
    """``AuditStore`` on a database."""

    def __init__(self, db: Db) -> None:
        self._db = db

    # --- the key of the log ------------------------------------------------------------------

    @transaction(read_only=True)
    async def log_key(self, tx: Tx) -> str | None:
        row = await tx.one("audit_log_key")
        return None if row is None else row[0]

    @transaction()
    async def set_log_key(self, tx: Tx, key: str, *, before: str | None, mac: bytes | None) -> str:
        replaced = await tx.one("audit_log_key_set", log_key=key, seen=before)
        if replaced is not None and mac is not None:
            await tx.all("audit_head_sign", mac=mac)
        row = await tx.one("audit_log_key")
        assert row is not None
        return str(row[0])

    # --- entries -----------------------------------------------------------------------------

    @transaction(read_only=True)
    async def last_id(self, tx: Tx) -> int:
        row = await tx.one("audit_last_id")
        assert row is not None
        return int(row[0])

    @transaction()
    async def add_counted(self, tx: Tx, entries: Sequence[AuditEntry]) -> None:
        # Those of a commit whose reply was lost are there already.
        found = await tx.all("audit_entries", ids=[it.id for it in entries])
        known = {row[0] for row in found}
        await tx.insert("audit_entry", [entry_row(it) for it in entries if it.id not in known])

    @transaction(view=True)
    async def entries(
        self, tx: Tx, conditions: AuditFilter, *, before_id: int | None, limit: int
    ) -> tuple[list[AuditEntry], int | None]:
        it = conditions
        part = {
            "before_id": TOP_ID if before_id is None else before_id,
            "from_id": 0 if it.since is None else id_floor(max(it.since, 0)),
            "scan_limit": SCAN_ROWS,
        }
        if it.object is not None:
            scanned = await tx.all("audit_scan_of_object", object=it.object, **part)
        elif it.tenant is not None:
            scanned = await tx.all("audit_scan_of_tenant", tenant=it.tenant, **part)
        else:
            scanned = await tx.all("audit_scan", **part)
        kept = [row[0] for row in scanned if _fits(row, it)]
        after = kept[limit - 1] if len(kept) > limit else None
        if after is None and len(scanned) == SCAN_ROWS:
            after = scanned[-1][0]
        found = await tx.all("audit_entries", ids=kept[:limit])
        return [entry_of(row) for row in found], after

    # --- segments ----------------------------------------------------------------------------

    @transaction(view=True)
    async def head(self, tx: Tx) -> Head | None:
        row = await tx.one("audit_head")
        if row is None:
            return None
        last, last_hash, removed, removed_hash, entries, mac, damaged = row
        return Head(
            last,
            bytes(last_hash),
            removed,
            bytes(removed_hash),
            entries,
            bytes(mac),
            damaged,
        )

    @transaction(view=True)
    async def loose_entries(self, tx: Tx, *, limit: int) -> list[AuditEntry]:
        found = await tx.all("audit_entries_of", segment=0, after_id=-1, limit=limit)
        return [entry_of(row) for row in found]

    @transaction()
    async def add_segment(
        self,
        tx: Tx,
        segment: Segment,
        *,
        ids: Sequence[int],
        head: Head,
        seen: Head,
        epoch: int = 0,
    ) -> bool:
        await leases.hold(tx, [(0, epoch)] if epoch else ())
        if not await _move_head(tx, head, seen=seen):
            return False
        await tx.all("audit_entries_join", segment=segment.number, ids=list(ids))
        row = (segment.number, segment.entries, segment.first_at, segment.last_at, segment.hash)
        await tx.insert("audit_segment", [row])
        return True

    @transaction(view=True)
    async def segments(self, tx: Tx, *, after: int, limit: int) -> list[Segment]:
        found = await tx.all("audit_segments", after=after, limit=limit)
        return [
            Segment(number, entries, first_at, last_at, bytes(digest))
            for number, entries, first_at, last_at, digest in found
        ]

    @transaction(view=True)
    async def entries_of(
        self, tx: Tx, number: int, *, after_id: int, limit: int
    ) -> list[AuditEntry]:
        found = await tx.all("audit_entries_of", segment=number, after_id=after_id, limit=limit)
        return [entry_of(row) for row in found]

    @transaction(view=True)
    async def stray_entries(self, tx: Tx, *, limit: int) -> list[int]:
        return [row[0] for row in await tx.all("audit_strays", limit=limit)]

    @transaction()
    async def remove_segment(
        self, tx: Tx, number: int, *, head: Head, seen: Head, epoch: int = 0
    ) -> bool:
        await leases.hold(tx, [(0, epoch)] if epoch else ())
        if not await _move_head(tx, head, seen=seen):
            return False
        await tx.all("audit_entries_remove", segment=number)
        await tx.all("audit_segment_remove", number=number)
        return True


async def _move_head(tx: Tx, head: Head, *, seen: Head) -> bool:
    row = await tx.one(
        "audit_head_move",
        last=head.last,
        last_hash=head.last_hash,
        removed=head.removed,
        removed_hash=head.removed_hash,
        removed_entries=head.removed_entries,
        mac=head.mac,
        damaged=head.damaged,
        seen_last=seen.last,
        seen_removed=seen.removed,
    )
    return row is not None


def _fits(row: Row, it: AuditFilter) -> bool:
    _, at, tenant, key_id, who, person, action, object_id = row
    return (
        it.tenant in {None, tenant}
        and (it.who is None or it.who in {who, person} or key_id in {it.key_id} - {None})
        and (it.action is None or action == it.action or action.startswith(f"{it.action}."))
        and it.object in {None, object_id}
        and (it.since is None or at >= it.since)
        and (it.until is None or at < it.until)
    )
