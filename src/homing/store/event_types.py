"""Event types in the database. A change raises the version of the catalog, noted by tenant."""

from __future__ import annotations

from msgspec.structs import replace

from homing.errors import Conflict, NotFound, StaleCatalog
from homing.languages.sentences import say
from homing.policy.audit import AuditDraft
from homing.policy.event_types import (
    TENANT_BYTES_MAX,
    TYPES_MAX,
    EventType,
    TypePlace,
    TypeSummary,
)
from homing.store import audit as audit_log
from homing.store import erasures, rows
from homing.store.tx import Tx


async def find(tx: Tx, tenant: str, name: str) -> EventType | None:
    row = await tx.one("event_type_of", tenant=tenant, name=name)
    return None if row is None else rows.event_type(row)


async def create(tx: Tx, new: EventType, *, version: int, audit: AuditDraft | None) -> EventType:
    """Raises Conflict if the tenant has this type, too many types, or is being erased."""
    await erasures.refuse_while_erased(tx, new.tenant)
    if await find(tx, new.tenant, new.name) is not None:
        raise Conflict(
            say(
                "The tenant {tenant} has an event type {name}: change it instead.",
                tenant=new.tenant,
                name=new.name,
            )
        )
    stored = replace(new, version=version)
    await tx.insert("event_type", [rows.event_type_row(stored)])
    await _changed(tx, stored, version=version)
    await _log(tx, audit, None, stored)
    return stored


async def change(tx: Tx, new: EventType, *, version: int, audit: AuditDraft | None) -> EventType:
    """Raises NotFound, or StaleCatalog if the type is not of the version that was read."""
    before = await find(tx, new.tenant, new.name)
    if before is None:
        raise NotFound
    if before.version != new.version:
        raise StaleCatalog
    stored = replace(new, version=version)
    values = dict(zip(rows.COLUMNS["event_type"], rows.event_type_row(stored), strict=True))
    del values["created_at"]
    await tx.all("event_type_replace", **values)
    await _changed(tx, stored, version=version)
    await _log(tx, audit, before, stored)
    return stored


async def delete(
    tx: Tx, tenant: str, name: str, *, version: int, audit: AuditDraft | None
) -> EventType:
    """Raises NotFound."""
    before = await find(tx, tenant, name)
    if before is None:
        raise NotFound
    await tx.all("event_type_remove", tenant=tenant, name=name)
    await _changed(tx, before, version=version)
    await _log(tx, audit, before, None)
    return before


async def page(
    tx: Tx, *, tenant: str | None, after: TypePlace | None, limit: int
) -> tuple[list[TypeSummary], TypePlace | None]:
    after = after or TypePlace("", "")
    if tenant is None:
        found = await tx.all(
            "event_types_page", after_tenant=after.tenant, after_name=after.name, limit=limit + 1
        )
    else:
        found = await tx.all(
            "event_types_page_of", tenant=tenant, after_name=after.name, limit=limit + 1
        )
    shown = [rows.type_summary(row) for row in found[:limit]]
    last = TypePlace(shown[-1].tenant, shown[-1].name) if len(found) > limit else None
    return shown, last


async def whole(tx: Tx, tenant: str) -> list[EventType]:
    return [rows.event_type(row) for row in await tx.all("event_types_whole", tenant=tenant)]


async def _changed(tx: Tx, it: EventType, *, version: int) -> None:
    """Note that a type of this tenant has changed; raises Conflict above the limits of a tenant."""
    row = await tx.one("event_type_sizes", tenant=it.tenant)
    assert row is not None
    types, size = row
    if types > TYPES_MAX:
        raise Conflict(
            say("A tenant may have at most {limit} event types: delete one first.", limit=TYPES_MAX)
        )
    if size > TENANT_BYTES_MAX:
        raise Conflict(
            say(
                "The event types of a tenant may have at most {mib} MiB of "
                "text: make schemas and samples shorter, or delete a type.",
                mib=TENANT_BYTES_MAX // 1024**2,
            )
        )
    await tx.all("event_type_changed", tenant=it.tenant, version=version, types=types)


async def _log(
    tx: Tx, audit: AuditDraft | None, before: EventType | None, after: EventType | None
) -> None:
    it = after or before
    assert it is not None
    await audit_log.write(
        tx, audit, tenant=it.tenant, object_id=it.name, before=before, after=after
    )
