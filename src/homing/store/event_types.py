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
from homing.store.catalog_versions import begin_change, raise_catalog
from homing.store.tx import Tx


async def find(tx: Tx, tenant: str, name: str) -> EventType | None:
    row = await tx.one("event_type_of", tenant=tenant, name=name)
    return None if row is None else rows.event_type(row)


async def create(tx: Tx, new: EventType, *, audit: AuditDraft | None) -> EventType:
    """Raises Conflict if the tenant has this type, too many types, or is being erased."""
    await begin_change(tx, new.tenant)
    await erasures.refuse_while_erased(tx, new.tenant)
    if await find(tx, new.tenant, new.name) is not None:
        raise Conflict(
            say(
                "The tenant {tenant} has an event type {name}: change it instead.",
                tenant=new.tenant,
                name=new.name,
            )
        )
    await tx.insert("event_type", [rows.event_type_row(new)])
    await _log(tx, audit, None, new)
    return replace(new, version=await _raise(tx, new))


async def change(tx: Tx, new: EventType, *, audit: AuditDraft | None) -> EventType:
    """Raises NotFound, or StaleCatalog if the type is not of the version that was read."""
    await begin_change(tx, new.tenant)
    before = await find(tx, new.tenant, new.name)
    if before is None:
        raise NotFound
    if before.version != new.version:
        raise StaleCatalog
    values = dict(zip(rows.COLUMNS["event_type"], rows.event_type_row(new), strict=True))
    del values["created_at"]
    await tx.all("event_type_replace", **values)
    await _log(tx, audit, before, new)
    return replace(new, version=await _raise(tx, new))


async def delete(tx: Tx, tenant: str, name: str, *, audit: AuditDraft | None) -> int:
    """Remove a type; returns the version of the catalog. Raises NotFound."""
    await begin_change(tx, tenant)
    before = await find(tx, tenant, name)
    if before is None:
        raise NotFound
    await tx.all("event_type_remove", tenant=tenant, name=name)
    await _log(tx, audit, before, None)
    return await _raise(tx, before)


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


async def _raise(tx: Tx, it: EventType) -> int:
    """The version of a change, noted by tenant; raises Conflict above the limits of a tenant."""
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
    version = await raise_catalog(tx)
    await tx.all("event_type_raise", tenant=it.tenant, name=it.name, version=version)
    await tx.all("event_type_changed", tenant=it.tenant, version=version, types=types)
    return version


async def _log(
    tx: Tx, audit: AuditDraft | None, before: EventType | None, after: EventType | None
) -> None:
    it = after or before
    assert it is not None
    await audit_log.write(
        tx, audit, tenant=it.tenant, object_id=it.name, before=before, after=after
    )
