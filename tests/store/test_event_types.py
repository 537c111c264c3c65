"""Event types in the database: versions of the catalog, limits, pages, audit, erasures."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from homing.errors import Conflict, NotFound, StaleCatalog
from homing.policy import event_types as policy
from homing.policy.audit import AuditDraft, Who
from homing.policy.event_check_rules import Check
from homing.policy.event_types import EventType, TypePlace
from homing.ports.audit import AuditFilter
from homing.ports.erasures import Erasure, ErasureKind
from homing.store import event_types as stored
from homing.store.admin import Admin
from homing.store.audit import Audit
from homing.store.tx import Db

PAID = EventType(
    tenant="acme",
    name="invoice.paid",
    description="An invoice was paid.\nIn full.",
    schema='{"type":"object"}',
    sample='{"id": 1.0}',
    check=Check.REFUSE,
    created_at=5,
    updated_at=5,
)


async def test_a_type_is_stored_changed_and_deleted_each_with_a_version(db: Db) -> None:
    admin = Admin(db)
    made = await admin.create_event_type(PAID)
    assert made == replace(PAID, version=1) == await admin.event_type("acme", "invoice.paid")
    assert (await admin.catalog_notes(0)).event_types == (("acme", 1, 1),)
    changed = await admin.change_event_type(
        replace(made, schema="", check=None, updated_at=9, created_at=1)
    )
    assert changed.version == 2
    found = await admin.event_type("acme", "invoice.paid")
    assert found == replace(PAID, schema="", check=None, updated_at=9, version=2)
    assert (await admin.catalog_notes(1)).event_types == (("acme", 2, 1),)
    assert await admin.delete_event_type("acme", "invoice.paid") == 3
    assert await admin.event_type("acme", "invoice.paid") is None
    assert (await admin.catalog_notes(2)).event_types == (("acme", 3, 0),)
    assert (await admin.catalog_notes(3)).event_types == ()


async def test_refusals_change_nothing(db: Db) -> None:
    admin = Admin(db)
    made = await admin.create_event_type(PAID)
    with pytest.raises(Conflict, match="change it instead"):
        await admin.create_event_type(PAID)
    with pytest.raises(StaleCatalog):
        await admin.change_event_type(replace(made, version=7))
    with pytest.raises(NotFound):
        await admin.change_event_type(replace(made, tenant="other"))
    with pytest.raises(NotFound):
        await admin.delete_event_type("other", "invoice.paid")
    assert await admin.catalog_version() == 1
    assert await admin.event_type("acme", "invoice.paid") == made


async def test_a_tenant_has_a_limit_of_types_and_of_their_texts(
    db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = Admin(db)
    monkeypatch.setattr(stored, "TYPES_MAX", 2)
    for name in ("a", "b"):
        await admin.create_event_type(replace(PAID, name=name))
    with pytest.raises(Conflict, match="at most 2 event types"):
        await admin.create_event_type(replace(PAID, name="c"))
    await admin.create_event_type(replace(PAID, tenant="other", name="c"))
    monkeypatch.setattr(stored, "TENANT_BYTES_MAX", 300)
    large = replace((await admin.event_type("acme", "a")) or PAID, sample='"é' + "x" * 300 + '"')
    assert large.bytes > 300
    with pytest.raises(Conflict, match="of text"):
        await admin.change_event_type(large)
    assert policy.TYPES_MAX == 1_000


async def test_pages_are_by_tenant_and_name(db: Db) -> None:
    admin = Admin(db)
    for tenant, name in (("b", "x"), ("a", "y"), ("a", "x.z"), ("a", "X"), ("a", "x_")):
        await admin.create_event_type(replace(PAID, tenant=tenant, name=name))
    names = []
    after: TypePlace | None = None
    while True:
        page, after = await admin.event_types(tenant=None, after=after, limit=2)
        names += [(it.tenant, it.name) for it in page]
        if after is None:
            break
    assert names == [("a", "X"), ("a", "x.z"), ("a", "x_"), ("a", "y"), ("b", "x")]
    page, after = await admin.event_types(tenant="a", after=TypePlace("a", "x.z"), limit=1)
    assert [(it.name, after) for it in page] == [("x_", TypePlace("a", "x_"))]
    assert page[0].has_schema
    assert page[0].check is Check.REFUSE
    assert [it.name for it in await admin.event_types_whole("a")] == ["X", "x.z", "x_", "y"]


async def test_every_change_is_in_the_audit_log_with_what_changed(db: Db) -> None:
    admin = Admin(db)

    def draft(number: int, action: str) -> AuditDraft:
        return AuditDraft(number, 7, Who("ops"), action, (), b"k")

    made = await admin.create_event_type(PAID, audit=draft(1, "event_types.create"))
    await admin.change_event_type(
        replace(made, check=Check.WARN), audit=draft(2, "event_types.change")
    )
    await admin.delete_event_type("acme", "invoice.paid", audit=draft(3, "event_types.delete"))
    entries, _ = await Audit(db).entries(AuditFilter(tenant="acme"), before_id=None, limit=9)
    assert [(it.action, it.object) for it in entries] == [
        (f"event_types.{verb}", "invoice.paid") for verb in ("delete", "change", "create")
    ]
    assert (entries[1].before, entries[1].after) == ('{"check":"refuse"}', '{"check":"warn"}')
    assert '"description":"An invoice was paid' in entries[2].after


async def test_an_erased_tenant_has_no_types_and_gets_none_while_it_is_erased(db: Db) -> None:
    admin = Admin(db)
    await admin.create_event_type(PAID)
    kept = await admin.create_event_type(replace(PAID, tenant="other"))
    erasure = Erasure(9, "acme", ErasureKind.TENANT, "", b"", 1, 9)
    await admin.begin_erasure(erasure, key=None, earlier=())
    assert await admin.event_types_whole("acme") == []
    assert await admin.event_types_whole("other") == [kept]
    assert (await admin.catalog_notes(0)).event_types == (("other", 2, 1),)
    with pytest.raises(Conflict, match="being erased"):
        await admin.create_event_type(PAID)
